"""Slices of a call of attention along heads and batch entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard.functional.arrays import Array, namespace
from regard.functional.biases import Bias, DenseBias
from regard.functional.block_mask import batch_and_head_indices
from regard.functional.heads import count_heads
from regard.functional.inputs import AttentionInputs
from regard.functional.masks import BlockKind, DenseMask, KeyRanges, LogicalAnd, Mask
from regard.functional.score_layout import Index, ScoreLayout
from regard.functional.score_mod import ScoreMod


def slice_heads(p: AttentionInputs, index: Sequence[int | slice]) -> tuple[AttentionInputs, HeadSlice]:
    """Return the inputs of some heads and batch entries, and the slice itself.

    Parameters
    ----------
    p : AttentionInputs
    index : sequence of int or slice
        One for each axis before ``T S``; an integer removes its axis.
    """
    part = HeadSlice(p.layout, tuple(index))
    sizes = zip(part.index, p.layout.shape[:-2], strict=True)
    shape = tuple(len(range(size)[i]) for i, size in sizes if isinstance(i, slice))
    offset = p.layout.resolve_offset()
    layout = replace(
        p.layout, shape=(*shape, *p.layout.shape[-2:]), offsets=None if isinstance(offset, int) else part.take(offset)
    )
    sliced = replace(
        p,
        q=part.take(p.q),
        k=part.take_kv(p.k),
        layout=layout,
        mask=None if p.mask is None else part.slice_mask(p.mask),
        bias=None if p.bias is None else part.slice_bias(p.bias),
        sinks=None if p.sinks is None else part.take(p.sinks),
    )
    return sliced, part


def is_head_slice(p: AttentionInputs) -> bool:
    """Tell whether the inputs are a slice whose mask, bias or offsets refer to the whole call."""
    is_sliced = isinstance(p.bias, SlicedBias) or (isinstance(p.bias, ScoreMod) and p.bias.indices is not None)
    return p.layout.offsets is not None or _is_sliced(p.mask) or is_sliced


def _is_sliced(mask: Mask | None) -> bool:
    if isinstance(mask, LogicalAnd):
        return _is_sliced(mask.one) or _is_sliced(mask.other)
    return isinstance(mask, _SlicedMask)


@dataclass(frozen=True, eq=False)
class HeadSlice:
    """An index of the axes before ``T S`` of a layout, to take from arrays that broadcast to it."""

    layout: ScoreLayout
    index: tuple[Any, ...]

    def take(self, x: Array) -> Array:
        """Return the slice of an array that broadcasts to ``... H`` and two more axes."""
        x = namespace(x).reshape(x, (1,) * (len(self.index) + 2 - x.ndim) + tuple(x.shape))
        axes = zip(self.index, x.shape, self.layout.shape[:-2], strict=False)
        return x[(*(_broadcast_index(i, full) if size == 1 else i for i, size, full in axes), ...)]

    def take_kv(self, k: Array) -> Array:
        """Return the slice of keys ``... G S D``, with one key head for each query head of the slice."""
        xp, groups, query_heads = namespace(k), count_heads(k), self.layout.heads
        if groups in (1, query_heads):
            return self.take(k)
        if range(query_heads)[self.index[-1]] == range(query_heads):  # all heads, which go on sharing
            return HeadSlice(self.layout, (*self.index[:-1], slice(None))).take(k)
        if isinstance(self.index[-1], int):
            shared = self.index[-1] * groups // query_heads
            return HeadSlice(self.layout, (*self.index[:-1], shared)).take(k)
        chosen = [h * groups // query_heads for h in range(query_heads)[self.index[-1]]]
        k = xp.take(k, xp.asarray(np.asarray(chosen, dtype=np.int64), device=self.layout.device), axis=-3)
        return HeadSlice(self.layout, (*self.index[:-1], slice(None))).take(k)

    def slice_mask(self, mask: Mask) -> Mask:
        """Return the slice of a mask."""
        if isinstance(mask, LogicalAnd):
            return LogicalAnd(self.slice_mask(mask.one), self.slice_mask(mask.other))
        return DenseMask(self.take(mask.array)) if isinstance(mask, DenseMask) else _SlicedMask(mask, self)

    def slice_bias(self, bias: Bias) -> Bias:
        """Return the slice of a bias."""
        if isinstance(bias, ScoreMod):
            b, h = (self.take(x) for x in batch_and_head_indices(self.layout))
            return replace(bias, indices=(b, h))
        return DenseBias(self.take(bias.parameter)) if isinstance(bias, DenseBias) else SlicedBias(bias, self)


@dataclass(frozen=True, eq=False)
class _SlicedMask(Mask):
    """A mask of the whole call, evaluated and then sliced."""

    mask: Mask
    part: HeadSlice

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        return self.part.take(self.mask.allows(self.part.layout, rows, cols))

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:  # noqa: ARG002
        return self.mask.block_kind(self.part.layout, rows, cols)

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges | None:  # noqa: ARG002
        whole = self.mask.key_ranges(self.part.layout)
        return None if whole is None else KeyRanges(*(self.part.take(x[..., None])[..., 0] for x in whole))


@dataclass(frozen=True, eq=False)
class SlicedBias(Bias):
    """A bias of the whole call, evaluated and then sliced."""

    bias: Bias
    part: HeadSlice

    @property
    def can_mask(self) -> bool:  # type: ignore[override]
        """That of the whole bias."""
        return self.bias.can_mask

    @property
    def by_distance(self) -> bool:  # type: ignore[override]
        """That of the whole bias."""
        return self.bias.by_distance

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        """Return the part of the values of the whole bias."""
        return self.part.take(self.bias.values(self.part.layout, rows, cols))


def _broadcast_index(index: int | slice, full: int) -> int | slice:
    """Return the index into an axis of length 1 that broadcasts to `full`."""
    if not isinstance(index, slice):
        return 0
    return slice(None) if range(full)[index] else slice(0, 0)
