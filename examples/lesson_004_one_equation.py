"""Lesson 004: softmax(Q Kᵀ / √d) V on four tokens of eight numbers, seed 42.

New in regard: the two extensions at the end of the lesson. Several heads are one argument, a batch is one more leading
axis.
"""

from __future__ import annotations

import numpy as np

from regard import Trace, nn


def main() -> None:
    """Print the lesson's output and weights, then those of two heads, of a batch, and of both."""
    np.set_printoptions(precision=8, suppress=True)
    random = np.random.RandomState(42)
    x = random.randn(4, 8)  # T E
    w_q, w_k, w_v = (random.randn(8, 8) * 0.1 for _ in range(3))  # E D

    one_head = nn.SelfAttention.from_weights(w_q, w_k, w_v)
    two_heads = nn.SelfAttention.from_weights(w_q, w_k, w_v, num_heads=2)
    batch = np.stack([x, x[::-1]])  # the text and its reverse, B T E

    trace = Trace()
    print("Attention output:\n", one_head(x, trace=trace))
    print("Attention weights:\n", trace["weights"][0])

    for label, layer, texts in (
        ("Two heads", two_heads, x),
        ("The text and its reverse", one_head, batch),
        ("Both, with two heads", two_heads, batch),
    ):
        trace = Trace()
        output = layer(texts, trace=trace)
        print(f"\n{label}: output {output.shape}, weights {trace.axes('weights')} = {trace['weights'].shape}")
        print("last row of the output:", output.reshape(-1, 8)[-1])
    print("\nThe last row of the reverse is the first row of the text: without positions, order makes no difference.")


if __name__ == "__main__":
    main()
