"""What turns the scores of a row into weights."""

from __future__ import annotations

from typing import Any, NamedTuple

from regard._utils.typing import Array
from regard.functional.arrays import widest_float
from regard.functional.score_layout import Index, take
from regard.functional.softmax import clamp_posinf, finite_row_max, nonzero


class SoftmaxStats(NamedTuple):
    """What turns the scores of a row into weights, exp(score − row_max) / row_sum; each ``... H R 1``.

    The two are kept apart: added up as row_max + log(row_sum) they would lose the digits of the second where the first
    is large.
    """

    row_max: Array
    row_sum: Array

    def of(self, rows: Index) -> SoftmaxStats:
        """Return that of some rows."""
        return SoftmaxStats(*(take(x, rows, -2) for x in self))

    def weights(self, biased: Array, xp: Any) -> Array:
        """Return the weights of scores, ``... H R C``."""
        return xp.exp(clamp_posinf(biased) - finite_row_max(self.row_max)) / nonzero(self.row_sum)

    def lse(self, xp: Any, device: Any) -> Array:
        """Return log Σ exp(score), ``... H R``, in the widest floats there are; −inf for an empty row."""
        wide = widest_float(xp, device)
        row_max, row_sum = (xp.astype(x[..., 0], wide) for x in self)
        return xp.where(row_sum == 0, -xp.inf, row_max + xp.log(nonzero(row_sum)))
