"""Lesson 000: self-attention step by step, for three words of four integers each.

The lesson multiplies by random matrices. These are chosen for pen and paper: the keys are unit vectors, so that the
query of a word is its row of scores, and with √3 · ln 2 in the queries every exponential is a power of two.

New in regard: each step has a name in a trace, and no score overflows the softmax.
"""

from __future__ import annotations

import numpy as np

from regard import Trace, nn, softmax

EMBEDDINGS = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]])
W_Q = np.sqrt(3) * np.log(2) * np.array([[3, 0, 0], [0, 0, 0], [-3, 1, 2], [1, 0, 1]])
W_K = np.array([[0, 0, 1], [0, 0, 0], [1, 0, -1], [0, 1, 0]])
W_V = np.array([[1, 0, 2], [0, 3, 0], [0, 1, 0], [2, 0, 1]])


def main() -> None:
    """Print every step of the lesson with its axes, its shape and its numbers."""
    np.set_printoptions(precision=4, suppress=True)
    attention = nn.SelfAttention.from_weights(W_Q, W_K, W_V)
    trace = Trace()
    attention(EMBEDDINGS, trace=trace)

    for name in trace:
        print(f"{name}: {trace.axes(name)} = {trace[name].shape}\n{trace[name]}\n")

    print("Each row of weights sums to", trace["weights"].sum(axis=-1))
    print("Each row of scores in units of ln 2 is a row of exponents:\n", trace["scores"] / np.log(2))
    print("Scores of 1000, which overflow in the lesson's softmax, give", softmax([1000.0, 1000.0, 0.0]))


if __name__ == "__main__":
    main()
