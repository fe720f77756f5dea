"""Masks: which query attends to which key, answered for any block of the map without holding n² entries."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, as_array, is_boolean, is_concretely_true
from regard.functional.rules import Axes, Rule, rule
from regard.functional.scores.layout import Index, ScoreLayout, broadcasts, take_broadcast
from regard.functional.scores.part import ScorePart


class BlockKind(enum.Enum):
    """How much of a block a mask allows."""

    EMPTY = "empty"
    PARTIAL = "partial"
    FULL = "full"


class KeyRanges(NamedTuple):
    """The keys that each query attends to, where they are consecutive: first ≤ key < last.

    Parameters
    ----------
    first, last : integer NumPy array that broadcasts to ``... H T``
        May lie outside 0 to S.
    """

    first: np.ndarray
    last: np.ndarray

    def intersect(self, other: KeyRanges) -> KeyRanges:
        """Return the intersection of two ranges for each query."""
        return KeyRanges(np.maximum(self.first, other.first), np.minimum(self.last, other.last))


class Mask(Rule):
    """Base class of masks.

    Masks combine: ``Causal() & KeyLengths([3, 5])`` allows what both allow, ``Causal() | PrefixLM(4)`` what one of them
    allows. A boolean array there means `DenseMask`. Every ``mask=`` takes a subclass of your own with a method
    `allows`, and `block_kind` if it can skip blocks.
    """

    __array_ufunc__ = None  # array & mask calls __rand__, not NumPy's elementwise &

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return where `rows` attend to `cols`: boolean, broadcasts to ``... H R C``."""
        raise NotImplementedError

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:  # noqa: ARG002
        """Return how much of a block is allowed, in less time than `allows` takes.

        PARTIAL is always correct, and slower.
        """
        return BlockKind.PARTIAL

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges | None:  # noqa: ARG002
        """Return the keys that each query attends to, where they are consecutive; else None.

        None is always correct, and slower.
        """
        return None

    def take(self, part: ScorePart) -> Mask:
        """Return the mask of a part of the scores."""
        return self.taken(part) or PartOfMask(self, part)

    def __and__(self, other: Mask | Array) -> Mask:
        return LogicalAnd(self, as_mask(other))

    def __rand__(self, other: Mask | Array) -> Mask:
        return LogicalAnd(as_mask(other), self)

    def __or__(self, other: Mask | Array) -> Mask:
        return LogicalOr(self, as_mask(other))

    def __ror__(self, other: Mask | Array) -> Mask:
        return LogicalOr(as_mask(other), self)


@rule
class DenseMask(Mask):
    """A boolean array that broadcasts to ``... H T S``; True: the query attends to the key."""

    array: Annotated[Array, Axes("... H T S")]
    shift_invariant = head_invariant = True

    def __post_init__(self) -> None:
        array = as_array(self.array, "mask")
        if not is_boolean(array):
            raise RegardError(
                f"mask must be boolean (True: the query attends to the key), got {array.dtype}: of 0 and 1 make one, "
                "mask != 0; numbers that are added to the scores are bias="
            )
        object.__setattr__(self, "array", array)

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless the array broadcasts to the scores."""
        check_broadcast(self.array, "mask", layout)

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        """Return the block of the array."""
        return take_broadcast(self.array, rows, cols)

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:
        """Reduce the block of the array."""
        block = self.allows(layout, rows, cols)
        if is_concretely_true(layout.xp.all(block)):
            return BlockKind.FULL
        return BlockKind.EMPTY if is_concretely_true(~layout.xp.any(block)) else BlockKind.PARTIAL


@dataclass(frozen=True, eq=False)
class _Combination(Mask):
    """Two masks, combined."""

    one: Mask
    other: Mask
    shift_invariant = head_invariant = True

    @property
    def uses_positions(self) -> bool:  # type: ignore[override]
        """Whether one of them depends on the query_offset of the call."""
        return self.one.uses_positions or self.other.uses_positions

    def check(self, layout: ScoreLayout) -> None:
        """Check both."""
        self.one.check(layout)
        self.other.check(layout)

    def _combined_kind(self, layout: ScoreLayout, rows: slice, cols: slice, dominant: BlockKind) -> BlockKind:
        """Return `dominant` if one of the masks has it, else the kind of both, PARTIAL if they differ."""
        one = self.one.block_kind(layout, rows, cols)
        if one is dominant:
            return dominant
        other = self.other.block_kind(layout, rows, cols)
        return one if one is other else dominant if other is dominant else BlockKind.PARTIAL


@rule
class LogicalAnd(_Combination):
    """What both masks allow: ``one & other``."""

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return the logical and."""
        return layout.xp.logical_and(self.one.allows(layout, rows, cols), self.other.allows(layout, rows, cols))

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges | None:
        """Return the intersection."""
        one, other = self.one.key_ranges(layout), self.other.key_ranges(layout)
        return None if one is None or other is None else one.intersect(other)

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:
        """EMPTY where one is, FULL where both are."""
        return self._combined_kind(layout, rows, cols, BlockKind.EMPTY)


@rule
class LogicalOr(_Combination):
    """What at least one of two masks allows: ``one | other``."""

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return the logical or."""
        return layout.xp.logical_or(self.one.allows(layout, rows, cols), self.other.allows(layout, rows, cols))

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges | None:
        """Return the union; None if there is a gap in it."""
        one, other = self.one.key_ranges(layout), self.other.key_ranges(layout)
        if one is None or other is None:
            return None
        clipped = [np.clip(x, 0, layout.keys) for x in (*one, *other)]
        first, last, other_first, other_last = np.broadcast_arrays(*clipped)
        empty, other_empty = last <= first, other_last <= other_first
        if np.any((np.maximum(first, other_first) > np.minimum(last, other_last)) & ~empty & ~other_empty):
            return None
        return KeyRanges(
            np.where(empty, other_first, np.where(other_empty, first, np.minimum(first, other_first))),
            np.where(empty, other_last, np.where(other_empty, last, np.maximum(last, other_last))),
        )

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:
        """FULL where one is, EMPTY where both are."""
        return self._combined_kind(layout, rows, cols, BlockKind.FULL)


@dataclass(frozen=True, eq=False)
class PartOfMask(Mask):
    """A mask of all scores, evaluated at a part of them."""

    mask: Mask
    part: ScorePart

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        """Return where the whole mask allows it."""
        return self.part.take(self.mask.allows(self.part.layout, *self.part.whole(rows, cols)), "... H R C")

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:  # noqa: ARG002
        """Return that of the whole mask, which is of all batch entries and heads."""
        return self.mask.block_kind(self.part.layout, *self.part.whole(rows, cols))

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges | None:  # noqa: ARG002
        """Return the ranges of the whole mask, counted from the first key of the part."""
        ranges = self.mask.key_ranges(self.part.layout)
        if ranges is None:
            return None
        return KeyRanges(*(self.part.take(x, "... H T") - (self.part.cols.start or 0) for x in ranges))


def as_mask(mask: Mask | Array) -> Mask:
    """Return a boolean array as a `DenseMask`, a mask unchanged."""
    return mask if isinstance(mask, Mask) else DenseMask(mask)


def logical_and(*masks: Mask | None) -> Mask | None:
    """Return the mask that allows what all given masks allow; None if none is given."""
    combined: Mask | None = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else LogicalAnd(combined, mask)
    return combined


def check_broadcast(array: Array, name: str, layout: ScoreLayout) -> None:
    """Raise RegardError unless `array` broadcasts to the scores."""
    if not broadcasts(array.shape, layout.shape):
        raise RegardError(
            f"{name} {tuple(array.shape)} does not broadcast to the scores {layout.shape} (... heads, queries, keys)"
        )
