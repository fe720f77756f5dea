"""Online softmax: the running maximum and sum of each row, as blocks of keys come in.

A block can hold a larger score than all blocks before it. What was summed is then multiplied by
exp(old maximum − new maximum), as if the new maximum had been subtracted from the start.

References
----------
Milakov and Gimelshein (2018), "Online normalizer calculation for softmax", https://arxiv.org/abs/1805.02867.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.functional.arrays import Array, widest_float
from regard.functional.inputs import AttentionInputs
from regard.functional.nonfinite import clamp_posinf, nonzero, zero_neginf
from regard.functional.scores.layout import Index, take


class SoftmaxStats(NamedTuple):
    """Maximum and sum of softmax rows: the weights are exp(score − row_max) / row_sum. Each is ``... H R 1``.

    They are kept apart, because row_max + log(row_sum) loses the digits of the sum where the maximum is large.
    """

    row_max: Array
    row_sum: Array

    def rows(self, rows: Index) -> SoftmaxStats:
        """Return the stats of some rows."""
        return SoftmaxStats(*(take(x, rows, -2) for x in self))

    def sum_from(self, row_max: Array, xp: Any) -> Array:
        """Return Σ exp(score − row_max) for another maximum, ``... H R 1``."""
        with np.errstate(over="ignore"):  # to −inf, of which the exponential is 0
            shift = xp.astype(self.row_max - zero_neginf(row_max, xp), self.row_sum.dtype, copy=False)
        return self.row_sum * xp.exp(shift)

    def merged(self, other: SoftmaxStats, xp: Any) -> SoftmaxStats:
        """Return the stats over the keys of both."""
        row_max = xp.maximum(self.row_max, other.row_max)
        return SoftmaxStats(row_max, self.sum_from(row_max, xp) + other.sum_from(row_max, xp))

    def weights(self, biased: Array, xp: Any) -> Array:
        """Return the weights of biased scores, ``... H R C``."""
        return xp.exp(clamp_posinf(biased, xp) - zero_neginf(self.row_max, xp)) / nonzero(self.row_sum, xp)

    def lse(self, xp: Any, device: Any) -> Array:
        """Return log Σ exp(score), ``... H R``, in the widest float of the library; −inf for an empty row."""
        wide = widest_float(xp, device)
        with np.errstate(over="ignore"):  # of longdouble
            row_max, row_sum = (xp.astype(x[..., 0], wide) for x in self)
        return xp.where(row_sum == 0, -xp.inf, clamp_posinf(row_max, xp) + xp.log(nonzero(row_sum, xp)))


def initial_stats(p: AttentionInputs, rows: Index) -> SoftmaxStats:
    """Return the stats before any key: an empty row, or the sink alone."""
    xp, layout = p.layout.xp, p.layout
    shape = (*layout.shape[:-2], layout.query_indices(rows).shape[0], 1)
    if p.sinks is None:
        row_max = xp.full(shape, -xp.inf, dtype=p.q.dtype, device=layout.device)
    else:
        row_max = xp.broadcast_to(clamp_posinf(p.sinks, xp), shape)
    return SoftmaxStats(row_max, xp.astype(row_max != -xp.inf, p.q.dtype))


def online_softmax_step(stats: SoftmaxStats, biased: Array, xp: Any) -> tuple[SoftmaxStats, Array, Array]:
    """Return the stats after one more block, the correction of earlier sums, and the exponentials of the block."""
    biased = clamp_posinf(biased, xp)
    row_max = xp.maximum(stats.row_max, xp.max(biased, axis=-1, keepdims=True))
    shift = zero_neginf(row_max, xp)
    with np.errstate(over="ignore"):  # to −inf, of which the exponential is 0
        exponentials, correction = xp.exp(biased - shift), xp.exp(stats.row_max - shift)
    row_sum = stats.row_sum * correction + xp.sum(exponentials, axis=-1, keepdims=True)
    return SoftmaxStats(row_max, row_sum), correction, exponentials
