"""What turns the scores of a row into weights."""

from __future__ import annotations

from typing import Any, NamedTuple

from regard._typing import Array
from regard.functional._arrays import widest_float
from regard.functional._grid import Index, take
from regard.functional._softmax import infinity_as_largest, or_one, shift_of


class Normaliser(NamedTuple):
    """What turns the scores of a row into weights, exp(score − highest) / total; each ``... H R 1``.

    The two are kept apart: added up as highest + log(total) they would lose the digits of the second where the first
    is large.
    """

    highest: Array
    total: Array

    def of(self, rows: Index) -> Normaliser:
        """Return that of some rows."""
        return Normaliser(*(take(x, rows, -2) for x in self))

    def weights(self, biased: Array, xp: Any) -> Array:
        """Return the weights of scores, ``... H R C``."""
        return xp.exp(infinity_as_largest(biased) - shift_of(self.highest)) / or_one(self.total)

    def lse(self, xp: Any, device: Any) -> Array:
        """Return log Σ exp(score), ``... H R``, in the widest floats there are; −inf for an empty row."""
        wide = widest_float(xp, device)
        highest, total = (xp.astype(x[..., 0], wide) for x in self)
        return xp.where(total == 0, -xp.inf, highest + xp.log(or_one(total)))
