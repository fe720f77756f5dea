"""Lesson 001: nine words with positions, two heads and an output projection, to the last printed digit.

The weights are those of the notebook after ``np.random.seed(42)``, one matrix for each head.

New in regard: both heads are computed at once, and the softmax shifts each row by its own maximum, so that a row far
below the others does not underflow.
"""

from __future__ import annotations

import numpy as np

from regard import Trace, nn
from regard.functional import merge_heads
from regard.text import WordTokenizer

SENTENCE = "The quick brown fox jumps over the lazy dog"
WORD_EMBEDDINGS = np.array(
    [
        [1.0, 0.5, 0.2, 0.8],  # the: in lower case the sentence has eight different words
        [0.3, 1.0, 0.7, 0.1],
        [0.6, 0.2, 1.0, 0.4],
        [0.9, 0.8, 0.3, 1.0],
        [0.4, 0.6, 0.8, 0.2],
        [0.7, 0.3, 0.5, 0.9],
        [0.2, 0.9, 0.4, 0.6],
        [0.8, 0.4, 0.9, 0.3],
    ]
)
POSITION_EMBEDDINGS = np.array([[p, 10 - p, p, 10 - p] for p in range(9)]) / 10


def main() -> None:
    """Print the input, the shape of every step and the output of the notebook."""
    encoding = WordTokenizer.from_text(SENTENCE)(SENTENCE)
    embeddings = nn.Embedding(WORD_EMBEDDINGS)(encoding.ids) + POSITION_EMBEDDINGS
    print(f"Input embeddings (word + position) of {len(encoding)} tokens:")
    for token, embedding in zip(encoding.tokens, embeddings, strict=True):
        print(f"  {token:5} {embedding}")

    random = np.random.RandomState(42)
    w_q, w_k, w_v = (random.randn(2, 4, 2) * 0.3 for _ in range(3))  # H E D
    w_o = random.randn(4, 4) * 0.3
    attention = nn.SelfAttention.from_weights(w_q, w_k, w_v, w_o)
    trace = Trace()
    output = attention(embeddings, trace=trace)

    print("\nEvery step, with the heads as the first axis:")
    for name in trace.names():
        print(f"  {name:8} {trace.axes(name):7} = {trace[name].shape}")
    print(f"  the contexts of the heads, concatenated: {merge_heads(trace['context']).shape}")
    print("\nFinal output after the output projection:")
    print(output)


if __name__ == "__main__":
    main()
