"""Attention in 50 digits, written with loops over mpmath numbers: an oracle that shares no code with regard."""

import mpmath
import numpy as np


def exact_attention(q, k, v, *, attends=None, bias=None, scale=None):
    """Return context and weights as float64, for q ``T D``, k ``S D``, v ``S Dv``; `attends` and `bias` are ``T S``."""
    with mpmath.workdps(50):
        length, keys, width = len(q), len(k), v.shape[1]
        scale = 1 / mpmath.sqrt(q.shape[1]) if scale is None else mpmath.mpf(scale)
        context, weights = np.zeros((length, width)), np.zeros((length, keys))
        for i in range(length):
            attended = [j for j in range(keys) if attends is None or attends[i, j]]
            scores = {}
            for j in attended:
                dot = mpmath.fsum(mpmath.mpf(float(a)) * mpmath.mpf(float(b)) for a, b in zip(q[i], k[j], strict=True))
                scores[j] = dot * scale + (0 if bias is None else mpmath.mpf(float(bias[i, j])))
            highest = max(scores.values(), default=0)
            exponentials = {j: mpmath.exp(score - highest) for j, score in scores.items()}
            total = mpmath.fsum(exponentials.values())
            for j in attended:
                weights[i, j] = exponentials[j] / total
            for c in range(width):
                terms = (exponentials[j] * mpmath.mpf(float(v[j, c])) for j in attended)
                context[i, c] = mpmath.fsum(terms) / total if attended else 0
        return context, weights
