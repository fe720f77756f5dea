"""Fewer points of a long run: every so many of its checkpoints, and the mean loss of so many steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def spread(values: Sequence[int], count: int) -> list[int]:
    """Return at most `count` of some values, evenly spread, the first and the last among them."""
    if len(values) <= count:
        return list(values)
    return [values[round(n * (len(values) - 1) / max(1, count - 1))] for n in range(count)]


def mean_losses(steps: Sequence[int], values: Sequence[float], count: int) -> tuple[list[int], list[float], int]:
    """Return at most `count` points of a loss curve, each the mean of equally many steps and at the last of them.

    The third is of how many.
    """
    size = -(-len(values) // count)
    if size <= 1:
        return list(steps), list(values), 1
    ends = [*range(size, len(values), size), len(values)]
    means = [float(np.mean(values[max(0, end - size) : end])) for end in ends]
    return [steps[end - 1] for end in ends], means, size
