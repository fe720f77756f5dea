"""Lesson 002: a batch, and which token attends to which.

The lesson multiplies queries and keys with ``np.dot``, which pairs every text of a batch with every other: its scores
for one text are ``(1, 6, 1, 6)``, and with a second text the two mix.

New in regard: scores are ``(1, 6, 6)``, and the texts of a batch do not mix. As in the lesson the weights are random,
so the attention pattern is meaningless.
"""

from __future__ import annotations

import numpy as np

from regard import Trace, attention
from regard.views import select, top_k

SENTENCE = "The cat sat on the mat"
E = 8


def main() -> None:
    """Print the shapes, the largest weight of each token, and the change of a text in a batch of two."""
    tokens = SENTENCE.split()
    rng = np.random.default_rng(2)
    x = rng.random((1, len(tokens), E))  # B T E
    w_q, w_k, w_v = rng.random((3, E, E))

    trace = Trace()
    output = attention(x @ w_q, x @ w_k, x @ w_v, trace=trace)
    weights = trace["weights"]
    print("x:", x.shape, " scores:", trace["scores"].shape, " weights:", weights.shape, " output:", output.shape)
    print("np.dot makes scores of", np.dot(x @ w_q, np.transpose(x @ w_k, (0, 2, 1))).shape, end="\n\n")

    for token, ((key, weight),) in zip(tokens, top_k(select(weights, tokens), 1), strict=True):
        print(f"{token:4} attends most to {tokens[key]:4} ({weight:.1%})")

    two = np.concatenate([x, rng.random(x.shape)])  # 2 T E
    batched = attention(two @ w_q, two @ w_k, two @ w_v)[0]
    print("\nThe largest change of the first text beside a second one:", abs(batched - output[0]).max())


if __name__ == "__main__":
    main()
