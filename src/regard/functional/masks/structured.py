"""Masks given by a rule of O(n) numbers: causal, sliding window, key lengths, segments, key ranges."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, as_array, namespace
from regard.functional.masks.base import BlockKind, KeyRanges, Mask
from regard.functional.rules import Axes, rule
from regard.functional.scores.layout import MAX_POSITION, Index, ScoreLayout, bounds_of, broadcasts, take
from regard.functional.scores.part import ScorePart

__all__ = ("Causal", "KeyLengths", "KeyRangeMask", "PrefixLM", "SegmentMask", "SlidingWindow")

_NO_FIRST, _NO_LAST = np.zeros(1, np.int64), np.full(1, 2 * MAX_POSITION)


class _Band(Mask):
    """Keys from `left` before to `right` after the position of each query; None: all of them."""

    left: int | None
    right: int | None
    query_offset: int | Array | None
    shift_invariant = True

    @property
    def uses_positions(self) -> bool:  # type: ignore[override]
        """Whether the mask depends on the query_offset of the call: it has none of its own."""
        return self.query_offset is None

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError if the offset does not fit the layout."""
        layout.check_per_sequence(self.query_offset, "query_offset")

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return where position − left ≤ key ≤ position + right."""
        position = layout.query_indices(rows) + layout.resolve_offset(self.query_offset)
        key = layout.key_indices(cols)
        allowed = layout.xp.ones_like(key, dtype=layout.xp.bool)
        if self.left is not None:
            allowed = layout.xp.logical_and(allowed, key >= position - self.left)
        if self.right is not None:
            allowed = layout.xp.logical_and(allowed, key <= position + self.right)
        return allowed

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:
        """Compare the corners of the block with the band."""
        bounds = bounds_of(layout.resolve_offset(self.query_offset))
        if bounds is None:
            return BlockKind.PARTIAL
        first, last = rows.start + bounds[0], rows.stop - 1 + bounds[1]  # positions of the first and last query
        all_before = self.left is not None and cols.stop - 1 < first - self.left
        all_after = self.right is not None and cols.start > last + self.right
        if all_before or all_after:
            return BlockKind.EMPTY
        left_fits = self.left is None or cols.start >= last - self.left
        right_fits = self.right is None or cols.stop - 1 <= first + self.right
        return BlockKind.FULL if left_fits and right_fits else BlockKind.PARTIAL

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges:
        """Return the band around the position of each query."""
        position = _with_query_axis(layout.resolve_offset(self.query_offset)) + np.arange(layout.queries)
        first = _NO_FIRST if self.left is None else position - self.left
        return KeyRanges(first, _NO_LAST if self.right is None else position + (self.right + 1))


@rule
class SlidingWindow(_Band):
    """Each query attends to the keys around its own position.

    Parameters
    ----------
    left, right : int or None
        How many keys before and after the query's own position; None: all of them.
    query_offset : int, or integer array with one for each batch entry, optional
        Query i is at position i + query_offset. By default that of the call, else S − T.
    """

    left: int | None = None
    right: int | None = None
    query_offset: Annotated[int | Array | None, Axes("...", positions="offset")] = None

    def __post_init__(self) -> None:
        for side, count in (("left", self.left), ("right", self.right)):
            if count is not None and (not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 0):
                raise RegardError(f"window {side} must be None or a count of keys, 0 or more, got {count!r}")
            if count is not None:
                object.__setattr__(self, side, min(int(count), MAX_POSITION))


@rule
class Causal(_Band):
    """No query attends to later positions than its own; `query_offset` as in `SlidingWindow`."""

    query_offset: Annotated[int | Array | None, Axes("...", positions="offset")] = None
    left = None
    right = 0


@rule
class KeyLengths(Mask):
    """The first keys of each batch entry; the rest is padding.

    Parameters
    ----------
    lengths : int, or integer array with one for each batch entry
    """

    lengths: Annotated[int | Array, Axes("...", positions="keys")]
    shift_invariant = True
    _name = "key_lengths"

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless all lengths lie between 0 and S."""
        layout.check_per_sequence(self.lengths, self._name)
        bounds = bounds_of(self._lengths(layout))
        if bounds is not None and not 0 <= bounds[0] <= bounds[1] <= layout.keys:
            raise RegardError(f"{self._name} must lie between 0 and the {layout.keys} keys, got {self.lengths}")

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        """Return where key < length."""
        return layout.key_indices(cols) < self._lengths(layout)

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:  # noqa: ARG002
        """Compare the columns with the shortest and the longest length."""
        bounds = bounds_of(self._lengths(layout))
        if bounds is None or (bounds[0] < cols.stop and cols.start < bounds[1]):
            return BlockKind.PARTIAL
        return BlockKind.FULL if cols.stop <= bounds[0] else BlockKind.EMPTY

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges:
        """Return the first keys."""
        return KeyRanges(_NO_FIRST, _with_query_axis(self._lengths(layout)))

    def _lengths(self, layout: ScoreLayout) -> int | Array:
        return layout.per_sequence(self.lengths, self._name)


@rule
class PrefixLM(KeyLengths):
    """Every query attends to the first keys: ``Causal() | PrefixLM(n)`` is bidirectional in the prefix, then causal."""

    _name = "prefix lengths"


@rule
class SegmentMask(Mask):
    """A query attends to the keys of its own segment: several documents packed into one sequence.

    Parameters
    ----------
    queries : integer array, ``T`` or ``... T``
        The segment of each query.
    keys : integer array, ``S`` or ``... S``, optional
        The segment of each key; those of the queries by default.
    """

    queries: Annotated[Array, Axes("... T")]
    keys: Annotated[Array | None, Axes("... S")] = None
    shift_invariant = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "queries", as_array(self.queries, "segments"))
        if self.keys is not None:
            object.__setattr__(self, "keys", as_array(self.keys, "segments"))

    def take(self, part: ScorePart) -> Mask:
        """Return the mask of a part, where queries and keys are no longer the same."""
        return super().take(part) if self.keys is not None else SegmentMask(*self._ids()).take(part)

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless each query and each key has a segment."""
        for name, ids, length in zip(("queries", "keys"), self._ids(), (layout.queries, layout.keys), strict=True):
            if ids.ndim < 1 or not namespace(ids).isdtype(ids.dtype, "integral"):
                raise RegardError(f"SegmentMask needs integer arrays, got {ids.dtype} for {name}")
            if ids.shape[-1] != length or not broadcasts(ids.shape[:-1], layout.batch_shape):
                hint = "; give the segments of the keys too" if self.keys is None and name == "keys" else ""
                raise RegardError(
                    f"SegmentMask has {name} of shape {tuple(ids.shape)} for scores {layout.shape}: "
                    f"{length} {name} need a segment each{hint}"
                )

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        """Return where query and key have the same segment."""
        queries, keys = self._ids()
        queries, keys = take(queries, rows, -1)[..., None, :, None], take(keys, cols, -1)[..., None, None, :]
        same = queries == keys  # ... 1 R C
        return same[0, ...] if same.ndim == 3 else same

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:  # noqa: ARG002
        """Compare the smallest and largest segment of the rows with those of the columns."""
        queries, keys = self._ids()
        query_bounds, key_bounds = bounds_of(queries[..., rows]), bounds_of(keys[..., cols])
        if query_bounds is None or key_bounds is None:
            return BlockKind.PARTIAL
        if query_bounds[1] < key_bounds[0] or key_bounds[1] < query_bounds[0]:
            return BlockKind.EMPTY
        return BlockKind.FULL if len({*query_bounds, *key_bounds}) == 1 else BlockKind.PARTIAL

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges | None:
        """Return the keys of each query's segment; None if the keys of a segment are not consecutive."""
        queries, keys = (np.asarray(ids) for ids in self._ids())
        batch = np.broadcast_shapes(queries.shape[:-1], keys.shape[:-1])
        shape = (*batch, 1, layout.queries) if len(layout.shape) > 2 else (layout.queries,)
        queries, keys = (
            np.broadcast_to(ids, (*batch, ids.shape[-1])).reshape(math.prod(batch), ids.shape[-1])
            for ids in (queries, keys)
        )
        ranges = [_segment_ranges(*ids) for ids in zip(queries, keys, strict=True)]
        if any(pair is None for pair in ranges):
            return None
        return KeyRanges(*(np.reshape([pair[i] for pair in ranges], shape) for i in range(2)))  # type: ignore[index]

    def _ids(self) -> tuple[Array, Array]:
        return self.queries, self.queries if self.keys is None else self.keys


@rule
class KeyRangeMask(Mask):
    """Each query attends to first ≤ key < last.

    Parameters
    ----------
    first, last : integer array that broadcasts to ``... H T``
        Where they are equal the query attends to no key.
    """

    first: Annotated[Array, Axes("... H T", positions="keys")]
    last: Annotated[Array, Axes("... H T", positions="keys")]
    shift_invariant = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", as_array(self.first, "first"))
        object.__setattr__(self, "last", as_array(self.last, "last"))

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless each query has two numbers between 0 and S."""
        for name, ends in (("first", self.first), ("last", self.last)):
            if not namespace(ends).isdtype(ends.dtype, "integral"):
                raise RegardError(f"KeyRangeMask needs integer arrays, got {ends.dtype} for {name}")
            if ends.ndim < 1 or ends.shape[-1] != layout.queries or not broadcasts(ends.shape, layout.shape[:-1]):
                raise RegardError(
                    f"KeyRangeMask has {name} of shape {tuple(ends.shape)} for scores {layout.shape}: "
                    f"{layout.queries} queries need a number each"
                )
            bounds = bounds_of(ends)
            if bounds is not None and not 0 <= bounds[0] <= bounds[1] <= layout.keys:
                raise RegardError(f"{name} of KeyRangeMask must lie between 0 and the {layout.keys} keys, got {bounds}")

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return where the key lies in the query's range."""
        first, last = (take(ends, rows, -1)[..., None] for ends in (self.first, self.last))
        return layout.xp.logical_and(layout.key_indices(cols) >= first, layout.key_indices(cols) < last)

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:  # noqa: ARG002
        """Compare the columns with the union and the intersection of the rows' ranges."""
        first, last = bounds_of(self.first[..., rows]), bounds_of(self.last[..., rows])
        if first is None or last is None:
            return BlockKind.PARTIAL
        if cols.stop <= first[0] or cols.start >= last[1]:
            return BlockKind.EMPTY
        return BlockKind.FULL if cols.start >= first[1] and cols.stop <= last[0] else BlockKind.PARTIAL

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges:  # noqa: ARG002
        """Return the ranges."""
        return KeyRanges(np.asarray(self.first), np.asarray(self.last))


def _with_query_axis(value: int | Array) -> np.ndarray:
    """Return an integer, or an array ``... 1 1 1`` with one for each batch entry, as what broadcasts to ``... H T``."""
    array = np.asarray(value)
    return array[..., 0] if array.ndim else array[None]


def _segment_ranges(queries: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the first key and the end of each query's segment; None if a segment is not consecutive."""
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if keys.size else np.zeros(0, np.int64)
    ends, ids = np.append(starts[1:], keys.size), keys[starts]
    order = np.argsort(ids, kind="stable")
    starts, ends, ids = starts[order], ends[order], ids[order]
    if np.any(ids[1:] == ids[:-1]):
        return None
    at = np.searchsorted(ids, queries)
    has_keys = (at < ids.size) & (np.append(ids, 0)[at] == queries)
    return np.where(has_keys, np.append(starts, 0)[at], 0), np.where(has_keys, np.append(ends, 0)[at], 0)
