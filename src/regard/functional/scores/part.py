"""Some of the scores: batch entries and heads, or a block of consecutive queries and keys of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.functional.arrays import Array, namespace
from regard.functional.scores.layout import ALL, Index, ScoreLayout


@dataclass(frozen=True, eq=False)
class ScorePart:
    """Some of the batch entries and heads of a layout; of a layout of NumPy arrays, a block of their scores.

    Positions in a block are counted from its first query and key.
    """

    layout: ScoreLayout  # of all
    index: tuple[Any, ...]  # of each axis before T S: a slice, or an integer, which removes the axis (not of a block)
    rows: slice = field(default_factory=lambda: slice(None))
    cols: slice = field(default_factory=lambda: slice(None))

    @property
    def is_block(self) -> bool:
        """Whether it is a block: only some queries and keys, which may be all of them."""
        return self.rows != ALL

    @property
    def shift(self) -> int:
        """What is added to an offset of the queries in a block."""
        return int(self.rows.start - self.cols.start)

    @property
    def block_layout(self) -> ScoreLayout:
        """The layout of a block alone, with the positions that its queries have among its keys."""
        shape = (*(part.stop - part.start for part in (*self.index, self.rows, self.cols)),)
        whole, offset = self.layout, self.layout.query_offset
        if offset is None:
            offset = whole.keys - whole.queries
        offset = self.take(np.asarray(offset, np.int64), "...") if np.ndim(offset) else int(offset)
        return ScoreLayout(whole.xp, whole.device, shape, offset + self.shift)

    def take(self, x: Array, names: str = "... H T S") -> Array:
        """Return the part of an array whose axes have these names, as in `rules.Axes`; missing ones are added."""
        lead = [*zip(self.index, self.layout.shape[:-2], strict=True)]
        by_name = {"...": lead[:-1], "H": lead[-1:], "T": [(self.rows, self.layout.queries)]}
        by_name["S"] = [(self.cols, self.layout.keys)]
        axes = [axis for name in names.split() for axis in by_name.get(name, [(ALL, 0)])]
        x = namespace(x).reshape(x, (1,) * (len(axes) - x.ndim) + tuple(x.shape))
        taken = zip(x.shape[x.ndim - len(axes) :], axes, strict=True)
        return x[(..., *(_broadcast_index(at, full) if size == 1 else at for size, (at, full) in taken))]

    def whole(self, rows: Index, cols: Index) -> tuple[Index, Index]:
        """Return rows and columns of the part as those of the whole."""
        return _shifted(rows, self.rows), _shifted(cols, self.cols)


def _broadcast_index(at: int | slice, full: int) -> int | slice:
    """Return the index into an axis of length 1 that broadcasts to `full`."""
    if not isinstance(at, slice):
        return 0
    return ALL if at == ALL or range(full)[at] else slice(0, 0)


def _shifted(index: Index, span: slice) -> Index:
    if span == ALL:
        return index
    if not isinstance(index, slice):
        return index + span.start
    start, stop, step = index.indices(span.stop - span.start)
    return slice(start + span.start, stop + span.start, step)
