"""Which query may look at which key: rules that answer for any block of cells and never hold n² of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.functional.arrays import as_array, is_boolean, is_concretely_true, namespace
from regard.functional.score_layout import MAX_POSITION, Index, ScoreLayout, bounds_of, broadcasts, take, take_broadcast


class BlockKind(enum.Enum):
    """How much of a block of cells may be looked at."""

    EMPTY = "empty"
    PARTIAL = "partial"
    FULL = "full"


class KeyRanges(NamedTuple):
    """The keys that each query may look at, where they lie side by side: first ≤ key < last.

    Parameters
    ----------
    first, last : integer NumPy array that broadcasts to ``... H T``
        They may lie outside the keys that there are.
    """

    first: np.ndarray
    last: np.ndarray

    def intersect(self, other: KeyRanges) -> KeyRanges:
        """Return what the two have in common."""
        return KeyRanges(np.maximum(self.first, other.first), np.minimum(self.last, other.last))


class Mask:
    """A rule that says which query may look at which key.

    KernelMaskArgs combine: ``Causal() & KeyLengths([3, 5])`` allows what both allow, ``Causal() | PrefixLM(4)`` what one of
    them allows. A boolean array stands for `DenseMask` there. Whatever takes ``mask=`` takes a rule, also one of your own:
    a subclass with a method `allows`, and `cover` if blocks can be ruled out.
    """

    __array_ufunc__ = None  # array & mask is ours to answer, not NumPy's cell by cell
    uses_positions = False

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError if the rule does not fit the layout."""

    def to_namespace(self, layout: ScoreLayout) -> Mask:  # noqa: ARG002
        """Return the rule made from arrays of the library of the layout, where it holds any."""
        return self

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return where `rows` may look at `cols`: boolean, broadcasts to ``... H R C``."""
        raise NotImplementedError

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:  # noqa: ARG002
        """Tell, without looking at its cells one by one, how much of a block may be looked at.

        PARTIAL is always a right answer; it only costs time.
        """
        return BlockKind.PARTIAL

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges | None:  # noqa: ARG002
        """Return for each query the keys it may look at, where they lie side by side; None where they do not.

        None is always a right answer; it only costs time.
        """
        return None

    def __and__(self, other: Mask | Array) -> Mask:
        return LogicalAnd(self, as_mask(other))

    def __rand__(self, other: Mask | Array) -> Mask:
        return LogicalAnd(as_mask(other), self)

    def __or__(self, other: Mask | Array) -> Mask:
        return LogicalOr(self, as_mask(other))

    def __ror__(self, other: Mask | Array) -> Mask:
        return LogicalOr(as_mask(other), self)


class _Band(Mask):
    """Keys from `left` before to `right` behind the position of each query; None is all of them."""

    left: int | None
    right: int | None
    query_offset: int | Array | None

    @property
    def uses_positions(self) -> bool:  # type: ignore[override]
        """Whether the query_offset of the call counts, or the rule has its own."""
        return self.query_offset is None

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError if the offset does not fit the layout."""
        layout.check_per_sequence(self.query_offset, "query_offset")

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return where the key is neither too far left nor too far right of the query's position."""
        position, key = layout.query_indices(rows) + layout.resolve_offset(self.query_offset), layout.key_indices(cols)
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
        far_left = self.left is not None and cols.stop - 1 < first - self.left
        far_right = self.right is not None and cols.start > last + self.right
        if far_left or far_right:
            return BlockKind.EMPTY
        left_fits = self.left is None or cols.start >= last - self.left
        right_fits = self.right is None or cols.stop - 1 <= first + self.right
        return BlockKind.FULL if left_fits and right_fits else BlockKind.PARTIAL

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges:
        """Return the band around the position of each query."""
        position = _of_rows(layout.resolve_offset(self.query_offset)) + np.arange(layout.queries)
        first = _NONE if self.left is None else position - self.left
        return KeyRanges(first, _ALL if self.right is None else position + (self.right + 1))


@dataclass(frozen=True, eq=False)
class SlidingWindow(_Band):
    """Each query sees the keys around its own position.

    Parameters
    ----------
    left, right : int or None
        How many keys before and behind the query's own position; None is all of them.
    query_offset : int, or integer array with one for each batch entry, optional
        Query i stands at position i + query_offset. By default that of the call, else S − T.
    """

    left: int | None = None
    right: int | None = None
    query_offset: int | Array | None = None

    def __post_init__(self) -> None:
        for side, count in (("left", self.left), ("right", self.right)):
            if count is not None and (not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 0):
                raise RegardError(f"window {side} must be None or a count of keys, 0 or more, got {count!r}")
            if count is not None:
                object.__setattr__(self, side, min(int(count), MAX_POSITION))


@dataclass(frozen=True, eq=False)
class Causal(_Band):
    """No query sees the keys behind its own position.

    Parameters
    ----------
    query_offset : int, or integer array with one for each batch entry, optional
        Query i stands at position i + query_offset. By default that of the call, else S − T.
    """

    query_offset: int | Array | None = None
    left = None
    right = 0


@dataclass(frozen=True, eq=False)
class KeyLengths(Mask):
    """Only the first keys of each batch entry are there; the rest is padding.

    Parameters
    ----------
    lengths : int, or integer array with one for each batch entry
    """

    lengths: int | Array

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless all lengths lie between 0 and S."""
        layout.check_per_sequence(self.lengths, self._name)
        bounds = bounds_of(self._lengths(layout))
        if bounds is not None and not 0 <= bounds[0] <= bounds[1] <= layout.keys:
            raise RegardError(f"{self._name} must lie between 0 and the {layout.keys} keys, got {self.lengths}")

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        """Return where the key is one of the first."""
        return layout.key_indices(cols) < self._lengths(layout)

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:  # noqa: ARG002
        """Compare the columns with the shortest and the longest."""
        bounds = bounds_of(self._lengths(layout))
        if bounds is None:
            return BlockKind.PARTIAL
        return (
            BlockKind.FULL
            if cols.stop <= bounds[0]
            else BlockKind.EMPTY
            if cols.start >= bounds[1]
            else BlockKind.PARTIAL
        )

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges:
        """Return the first keys."""
        return KeyRanges(_NONE, _of_rows(self._lengths(layout)))

    def _lengths(self, layout: ScoreLayout) -> int | Array:
        return layout.per_sequence(self.lengths, self._name)

    _name = "key_lengths"


class PrefixLM(KeyLengths):
    """Every query sees the first keys: ``Causal() | PrefixLM(n)`` reads a prompt both ways and goes on causally.

    Parameters
    ----------
    lengths : int, or integer array with one for each batch entry
    """

    _name = "prefix lengths"


@dataclass(frozen=True, eq=False)
class SegmentMask(Mask):
    """A query sees the keys of its own segment: documents packed one behind the other into one row.

    Parameters
    ----------
    queries : integer array, ``T`` or ``... T``
        The segment of each query.
    keys : integer array, ``S`` or ``... S``, optional
        The segment of each key; those of the queries by default.
    """

    queries: Array
    keys: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "queries", as_array(self.queries, "segments"))
        if self.keys is not None:
            object.__setattr__(self, "keys", as_array(self.keys, "segments"))

    def to_namespace(self, layout: ScoreLayout) -> SegmentMask:
        """Return the segments as arrays of the library of the layout."""
        return SegmentMask(
            layout.to_namespace(self.queries), None if self.keys is None else layout.to_namespace(self.keys)
        )

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless there is a segment for each query and each key."""
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
        """Return where query and key are of one segment."""
        queries, keys = self._ids()
        queries, keys = take(queries, rows, -1)[..., None, :, None], take(keys, cols, -1)[..., None, None, :]
        same = queries == keys  # ... 1 R C
        return same[0, ...] if same.ndim == 3 else same

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:  # noqa: ARG002
        """Compare the smallest and the largest segment of the rows with those of the columns."""
        queries, keys = self._ids()
        query_bounds, key_bounds = bounds_of(queries[..., rows]), bounds_of(keys[..., cols])
        if query_bounds is None or key_bounds is None:
            return BlockKind.PARTIAL
        if query_bounds[1] < key_bounds[0] or key_bounds[1] < query_bounds[0]:
            return BlockKind.EMPTY
        return BlockKind.FULL if {*query_bounds} == {*key_bounds} and len({*query_bounds}) == 1 else BlockKind.PARTIAL

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges | None:
        """Return the keys of each query's segment; None if those of a segment do not lie side by side."""
        queries, keys = (np.asarray(ids) for ids in self._ids())
        lead = np.broadcast_shapes(queries.shape[:-1], keys.shape[:-1])
        shape = (*lead, 1, layout.queries) if len(layout.shape) > 2 else (layout.queries,)
        queries, keys = (
            np.broadcast_to(ids, (*lead, ids.shape[-1])).reshape(-1, ids.shape[-1]) for ids in (queries, keys)
        )
        found = [_runs(one, other) for one, other in zip(queries, keys, strict=True)]
        if any(runs is None for runs in found):
            return None
        return KeyRanges(*(np.reshape([runs[i] for runs in found], shape) for i in range(2)))  # type: ignore[index]

    def _ids(self) -> tuple[Array, Array]:
        return self.queries, self.queries if self.keys is None else self.keys


@dataclass(frozen=True, eq=False)
class KeyRangeMask(Mask):
    """Each query sees the keys from `first` up to, and without, `last`: what a mask of any origin often comes down to.

    Parameters
    ----------
    first, last : integer array that broadcasts to ``... H T``
        Where they are equal a query sees nothing.
    """

    first: Array
    last: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", as_array(self.first, "first"))
        object.__setattr__(self, "last", as_array(self.last, "last"))

    def to_namespace(self, layout: ScoreLayout) -> KeyRangeMask:
        """Return the spans as arrays of the library of the layout."""
        return KeyRangeMask(layout.to_namespace(self.first), layout.to_namespace(self.last))

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless there are two numbers for each query, which lie between 0 and S."""
        for name, ends in (("first", self.first), ("last", self.last)):
            if not namespace(ends).isdtype(ends.dtype, "integral"):
                raise RegardError(f"KeyRangeMask needs integer arrays, got {ends.dtype} for {name}")
            if ends.ndim < 1 or ends.shape[-1] != layout.queries or not broadcasts(ends.shape, layout.shape[:-1]):
                raise RegardError(
                    f"KeyRangeMask has {name} of shape {tuple(ends.shape)} for scores {layout.shape}: {layout.queries} queries "
                    f"need a number each"
                )
            bounds = bounds_of(ends)
            if bounds is not None and not 0 <= bounds[0] <= bounds[1] <= layout.keys:
                raise RegardError(f"{name} of KeyRangeMask must lie between 0 and the {layout.keys} keys, got {bounds}")

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return where the key is one of the query's span."""
        first, last = (take(ends, rows, -1)[..., None] for ends in (self.first, self.last))
        return layout.xp.logical_and(layout.key_indices(cols) >= first, layout.key_indices(cols) < last)

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:  # noqa: ARG002
        """Compare the columns with the widest span of the rows, and with what all of them share."""
        first, last = bounds_of(self.first[..., rows]), bounds_of(self.last[..., rows])
        if first is None or last is None:
            return BlockKind.PARTIAL
        if cols.stop <= first[0] or cols.start >= last[1]:
            return BlockKind.EMPTY
        return BlockKind.FULL if cols.start >= first[1] and cols.stop <= last[0] else BlockKind.PARTIAL

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges:  # noqa: ARG002
        """Return the spans."""
        return KeyRanges(np.asarray(self.first), np.asarray(self.last))


@dataclass(frozen=True, eq=False)
class DenseMask(Mask):
    """A boolean array, True = may look, that broadcasts to ``... H T S``."""

    array: Array

    def __post_init__(self) -> None:
        array = as_array(self.array, "mask")
        if not is_boolean(array):
            raise RegardError(
                f"mask must be boolean with True = may look, got {array.dtype}; to add numbers to the scores use bias="
            )
        object.__setattr__(self, "array", array)

    def to_namespace(self, layout: ScoreLayout) -> DenseMask:
        """Return the array as one of the library of the layout."""
        return DenseMask(layout.to_namespace(self.array))

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless the array broadcasts to the scores."""
        check_broadcast(self.array, "mask", layout)

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        """Return the block of the array."""
        return take_broadcast(self.array, rows, cols)

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:
        """Look whether the block holds a True and a False."""
        block = self.allows(layout, rows, cols)
        if is_concretely_true(layout.xp.all(block)):
            return BlockKind.FULL
        return BlockKind.EMPTY if is_concretely_true(~layout.xp.any(block)) else BlockKind.PARTIAL


@dataclass(frozen=True, eq=False)
class _Pair(Mask):
    """Two rules, joined."""

    one: Mask
    other: Mask

    @property
    def uses_positions(self) -> bool:  # type: ignore[override]
        """Whether one of them asks where the queries stand."""
        return self.one.uses_positions or self.other.uses_positions

    def to_namespace(self, layout: ScoreLayout) -> Mask:
        """Return both beside the layout."""
        return type(self)(self.one.to_namespace(layout), self.other.to_namespace(layout))

    def check(self, layout: ScoreLayout) -> None:
        """Check both."""
        self.one.check(layout)
        self.other.check(layout)

    def _cover(self, layout: ScoreLayout, rows: slice, cols: slice, decides: BlockKind) -> BlockKind:
        """Return `decides` where one of the rules has it, else what both have in common."""
        one = self.one.block_kind(layout, rows, cols)
        if one is decides:
            return decides
        other = self.other.block_kind(layout, rows, cols)
        return one if one is other else decides if other is decides else BlockKind.PARTIAL


class LogicalAnd(_Pair):
    """What two rules allow: ``one & other``."""

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return the logical and."""
        return layout.xp.logical_and(self.one.allows(layout, rows, cols), self.other.allows(layout, rows, cols))

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges | None:
        """Return what both have in common."""
        one, other = self.one.key_ranges(layout), self.other.key_ranges(layout)
        return None if one is None or other is None else one.intersect(other)

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:
        """EMPTY where one is, FULL where both are."""
        return self._cover(layout, rows, cols, BlockKind.EMPTY)


class LogicalOr(_Pair):
    """What one of two rules allows: ``one | other``."""

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return the logical or."""
        return layout.xp.logical_or(self.one.allows(layout, rows, cols), self.other.allows(layout, rows, cols))

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges | None:
        """Return both together; None where there is a gap between them."""
        one, other = self.one.key_ranges(layout), self.other.key_ranges(layout)
        if one is None or other is None:
            return None
        bounds = [np.clip(x, 0, layout.keys) for x in (*one, *other)]
        first, last, other_first, other_last = np.broadcast_arrays(*bounds)
        nothing, nothing_more = last <= first, other_last <= other_first
        if np.any((np.maximum(first, other_first) > np.minimum(last, other_last)) & ~nothing & ~nothing_more):
            return None
        return KeyRanges(
            np.where(nothing, other_first, np.where(nothing_more, first, np.minimum(first, other_first))),
            np.where(nothing, other_last, np.where(nothing_more, last, np.maximum(last, other_last))),
        )

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:
        """FULL where one is, EMPTY where both are."""
        return self._cover(layout, rows, cols, BlockKind.FULL)


def as_mask(mask: Mask | Array) -> Mask:
    """Return a boolean array as `DenseMask`, a rule as it is."""
    return mask if isinstance(mask, Mask) else DenseMask(mask)


def logical_and(*masks: Mask | None) -> Mask | None:
    """Return the rule that allows what all given ones allow; None when none is given."""
    joined: Mask | None = None
    for mask in masks:
        if mask is not None:
            joined = mask if joined is None else LogicalAnd(joined, mask)
    return joined


_NONE, _ALL = np.zeros(1, np.int64), np.full(1, 2 * MAX_POSITION)


def _of_rows(value: int | Array) -> np.ndarray:
    """Return an integer, or an array ``... 1 1 1`` with one for each entry, as what broadcasts to ``... H T``."""
    array = np.asarray(value)
    return array[..., 0] if array.ndim else array[None]


def _runs(queries: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return where the run of each query's segment among the keys begins and ends; None if one has several runs."""
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if keys.size else np.zeros(0, np.int64)
    ends, ids = np.append(starts[1:], keys.size), keys[starts]
    order = np.argsort(ids, kind="stable")
    starts, ends, ids = starts[order], ends[order], ids[order]
    if np.any(ids[1:] == ids[:-1]):
        return None
    at = np.searchsorted(ids, queries)
    there = np.append(ids, 0)[at] == queries
    there &= at < ids.size
    return np.where(there, np.append(starts, 0)[at], 0), np.where(there, np.append(ends, 0)[at], 0)


def check_broadcast(array: Array, name: str, layout: ScoreLayout) -> None:
    """Raise RegardError unless `array` broadcasts to the scores."""
    if not broadcasts(array.shape, layout.shape):
        raise RegardError(
            f"{name} {tuple(array.shape)} does not broadcast to the scores {layout.shape} (... heads, queries, keys)"
        )
