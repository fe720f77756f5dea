"""Some heads and batch entries of a map: its layout, its arrays, and the rules by which its scores become weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard._utils.typing import Array
from regard.functional.arrays import namespace
from regard.functional.biases import Bias, DenseBias
from regard.functional.grouped_heads import count_heads
from regard.functional.inputs import AttentionInputs
from regard.functional.masks import BlockKind, DenseMask, KeyRanges, LogicalAnd, Mask
from regard.functional.score_layout import Index, ScoreLayout


def slice_heads(p: AttentionInputs, index: Sequence[int | slice]) -> tuple[AttentionInputs, HeadSlice]:
    """Return the problem of some entries, one index for each axis before ``T S``, and how others are taken.

    An integer takes its axis away.
    """
    part = HeadSlice(p.layout, tuple(index))
    lead = zip(part.index, p.layout.shape[:-2], strict=True)
    shape = tuple(len(range(size)[i]) for i, size in lead if isinstance(i, slice))
    offset = p.layout.resolve_offset()
    layout = replace(
        p.layout, shape=(*shape, *p.layout.shape[-2:]), offsets=None if isinstance(offset, int) else part.of(offset)
    )
    problem = replace(
        p,
        q=part.of(p.q),
        k=part.of_keys(p.k),
        layout=layout,
        mask=None if p.mask is None else part.of_mask(p.mask),
        bias=None if p.bias is None else part.of_bias(p.bias),
        sinks=None if p.sinks is None else part.of(p.sinks),
    )
    return problem, part


def is_head_slice(p: AttentionInputs) -> bool:
    """Tell whether a problem is known only as a part of another, whose rules it asks."""
    return p.layout.offsets is not None or _asks(p.mask) or isinstance(p.bias, _PartOfBias)


def _asks(mask: Mask | None) -> bool:
    return _asks(mask.one) or _asks(mask.other) if isinstance(mask, LogicalAnd) else isinstance(mask, _PartOfMask)


@dataclass(frozen=True, eq=False)
class HeadSlice:
    """Some entries of the axes before ``T S`` of a layout, and how to take them from what broadcasts to it."""

    layout: ScoreLayout
    index: tuple[Any, ...]

    def of(self, x: Array) -> Array:
        """Return the entries of an array that broadcasts to ``... H`` and two more axes."""
        x = namespace(x).reshape(x, (1,) * (len(self.index) + 2 - x.ndim) + tuple(x.shape))
        axes = zip(self.index, x.shape, self.layout.shape[:-2], strict=False)
        return x[(*(_of_one(i, full) if size == 1 else i for i, size, full in axes), ...)]

    def of_keys(self, k: Array) -> Array:
        """Return the entries of keys ``... G S D``, a row of heads for each query head that is taken."""
        xp, groups, query_heads = namespace(k), count_heads(k), self.layout.heads
        if groups in (1, query_heads):
            return self.of(k)
        if isinstance(self.index[-1], int):
            shared = self.index[-1] * groups // query_heads
            return HeadSlice(self.layout, (*self.index[:-1], shared)).of(k)
        chosen = [h * groups // query_heads for h in range(query_heads)[self.index[-1]]]
        k = xp.take(k, xp.asarray(np.asarray(chosen, dtype=np.int64), device=self.layout.device), axis=-3)
        return HeadSlice(self.layout, (*self.index[:-1], slice(None))).of(k)

    def of_mask(self, mask: Mask) -> Mask:
        """Return a mask of the layout for the entries."""
        if isinstance(mask, LogicalAnd):
            return LogicalAnd(self.of_mask(mask.one), self.of_mask(mask.other))
        return DenseMask(self.of(mask.array)) if isinstance(mask, DenseMask) else _PartOfMask(mask, self)

    def of_bias(self, bias: Bias) -> Bias:
        """Return a bias of the layout for the entries."""
        return DenseBias(self.of(bias.parameter)) if isinstance(bias, DenseBias) else _PartOfBias(bias, self)


@dataclass(frozen=True, eq=False)
class _PartOfMask(Mask):
    """A mask, for some heads and batch entries of the layout that it was made for."""

    mask: Mask
    part: HeadSlice

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        return self.part.of(self.mask.allows(self.part.layout, rows, cols))

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:  # noqa: ARG002
        return self.mask.block_kind(self.part.layout, rows, cols)

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges | None:  # noqa: ARG002
        whole = self.mask.key_ranges(self.part.layout)
        return None if whole is None else KeyRanges(*(self.part.of(x[..., None])[..., 0] for x in whole))


@dataclass(frozen=True, eq=False)
class _PartOfBias(Bias):
    """A bias, for some heads and batch entries of the layout that it was made for."""

    bias: Bias
    part: HeadSlice

    @property
    def can_mask(self) -> bool:  # type: ignore[override]
        return self.bias.can_mask

    @property
    def by_distance(self) -> bool:  # type: ignore[override]
        return self.bias.by_distance

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        return self.part.of(self.bias.values(self.part.layout, rows, cols))


def _of_one(index: int | slice, full: int) -> int | slice:
    """Return the index into an axis of length 1 that is broadcast to `full`."""
    if not isinstance(index, slice):
        return 0
    return slice(None) if range(full)[index] else slice(0, 0)
