"""Blocks of a call of attention, as calls of their own: rules stay rules, counted from the block's first key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard.functional.arrays import Array
from regard.functional.biases import ALiBi, Bias, DenseBias, DistanceBias, RelativePositionBias
from regard.functional.block_mask import BLOCK_KEYS, BLOCK_QUERIES, BlockMask, batch_and_head_indices
from regard.functional.inputs import AttentionInputs
from regard.functional.mask_rules import Causal, KeyLengths, KeyRangeMask, SegmentMask, SlidingWindow
from regard.functional.masks import BlockKind, DenseMask, KeyRanges, LogicalAnd, LogicalOr, Mask
from regard.functional.score_layout import Index, ScoreLayout, bounds_of, take_broadcast
from regard.functional.score_mod import ScoreMod


@dataclass(frozen=True, eq=False)
class ScoreBlock:
    """Consecutive batch entries, heads, queries and keys of a layout of NumPy arrays."""

    layout: ScoreLayout  # of all
    entries: tuple[slice, ...]  # batch entries and heads: of the axes before T S
    rows: slice
    cols: slice

    @property
    def own_layout(self) -> ScoreLayout:
        """The layout of the block alone, with the positions that its queries have among its keys."""
        shape = (*(part.stop - part.start for part in (*self.entries, self.rows, self.cols)),)
        given, whole = self.layout.query_offset, self.layout
        offset = whole.keys - whole.queries if given is None else given
        return ScoreLayout(whole.xp, whole.device, shape, self.offset(offset))

    def offset(self, offset: Any) -> Any:
        """Return a `query_offset` of the call, counted from the first key of the block."""
        shift = self.rows.start - self.cols.start
        return self.per_sequence(offset) + shift if np.ndim(offset) else int(offset) + shift

    def per_sequence(self, value: Any) -> Any:
        """Return the entries of a number for each batch entry."""
        return _sliced(np.asarray(value, np.int64), self.entries[:-1]) if np.ndim(value) else value

    def take_entries(self, x: np.ndarray, after: int) -> np.ndarray:
        """Return the batch entries and heads of an array that broadcasts to ``... H`` and `after` more axes."""
        count = max(0, x.ndim - after)
        return x[(*_broadcast_slices(x.shape[:count], self.entries), ...)] if count else x

    def shift(self, rows: Index, cols: Index) -> tuple[Index, Index]:
        """Return rows and columns of the block as those of the whole."""
        return _shifted(rows, self.rows), _shifted(cols, self.cols)


def slice_inputs(p: AttentionInputs, block: ScoreBlock) -> AttentionInputs:
    """Return the inputs of a block, without its arrays q, k and v: to be given by `replace`."""
    return p.replace(
        q=None,
        k=None,
        v=None,
        layout=block.own_layout,
        mask=None if p.mask is None else slice_mask(p.mask, block),
        bias=None if p.bias is None else slice_bias(p.bias, block),
        sinks=None if p.sinks is None else block.take_entries(p.sinks, 2),
    )


def nonempty_spans(p: AttentionInputs, entries: tuple[slice, ...], rows: slice, edges: Sequence[int]) -> Iterator[int]:
    """Yield the number of each span of keys between two edges of which the mask leaves something to some queries.

    Halves of which it leaves nothing are not looked into.
    """
    if rows.stop > rows.start:
        bare = p.replace(bias=None, sinks=None)
        yield from _nonempty_between(bare, entries, rows, edges, 0, len(edges) - 1)


def _nonempty_between(
    p: AttentionInputs, entries: tuple[slice, ...], rows: slice, edges: Sequence[int], first: int, end: int
) -> Iterator[int]:
    cols = slice(edges[first], edges[end])
    if cols.stop <= cols.start or _is_empty(p, ScoreBlock(p.layout, entries, rows, cols)):
        return
    if end - first == 1:
        yield first
        return
    middle = (first + end) // 2
    yield from _nonempty_between(p, entries, rows, edges, first, middle)
    yield from _nonempty_between(p, entries, rows, edges, middle, end)


def _is_empty(p: AttentionInputs, block: ScoreBlock) -> bool:
    if p.mask is None:
        return False
    layout = block.own_layout
    rows, cols = (slice(0, size) for size in layout.shape[-2:])
    return slice_mask(p.mask, block).block_kind(layout, rows, cols) is BlockKind.EMPTY


def slice_mask(mask: Mask, block: ScoreBlock) -> Mask:
    """Return the rule of a block."""
    first, count = block.cols.start, block.cols.stop - block.cols.start
    if isinstance(mask, LogicalAnd | LogicalOr):
        return type(mask)(slice_mask(mask.one, block), slice_mask(mask.other, block))
    if isinstance(mask, Causal | SlidingWindow):
        offset = mask.query_offset
        return mask if offset is None else replace(mask, query_offset=block.offset(offset))
    if isinstance(mask, KeyLengths):  # and PrefixLM
        lengths = np.clip(np.asarray(block.per_sequence(mask.lengths)) - first, 0, count)
        return type(mask)(lengths if lengths.ndim else int(lengths))
    if isinstance(mask, SegmentMask):
        queries, keys = (np.asarray(ids) for ids in (mask.queries, mask.queries if mask.keys is None else mask.keys))
        return SegmentMask(
            _sliced(queries[..., block.rows], block.entries[:-1], 1),
            _sliced(keys[..., block.cols], block.entries[:-1], 1),
        )
    if isinstance(mask, KeyRangeMask):
        ends = (block.take_entries(np.asarray(x)[..., block.rows], 1) for x in (mask.first, mask.last))
        return KeyRangeMask(*(np.clip(x.astype(np.int64) - first, 0, count) for x in ends))
    if isinstance(mask, DenseMask):
        return DenseMask(take_broadcast(block.take_entries(np.asarray(mask.array), 2), block.rows, block.cols))
    if isinstance(mask, BlockMask):
        return _MaskOfBlock(*_part_of_block_mask(mask, block))
    return _MaskOfBlock(mask, block)


def slice_bias(bias: Bias, block: ScoreBlock) -> Bias:
    """Return the bias of a block."""
    parameter: Any = None if bias.parameter is None else np.asarray(bias.parameter)
    heads = block.entries[-1:] or (slice(0, 1),)
    if isinstance(bias, ALiBi):
        return ALiBi(_sliced(parameter, heads))
    if isinstance(bias, RelativePositionBias):
        return bias.with_parameter(parameter[:, *_broadcast_slices(parameter.shape[1:], heads)])
    if isinstance(bias, DistanceBias):
        offsets = bounds_of(block.layout.resolve_offset())
        assert offsets is not None
        least = block.cols.start - (block.rows.stop - 1) - offsets[1]
        most = block.cols.stop - 1 - block.rows.start - offsets[0]
        at = slice(least - bias.min_distance, max(least, most + 1) - bias.min_distance)
        return DistanceBias(block.take_entries(parameter, 1)[..., at], least)
    if isinstance(bias, DenseBias):
        return DenseBias(take_broadcast(block.take_entries(parameter, 2), block.rows, block.cols))
    if isinstance(bias, ScoreMod):
        b, h = bias.indices or batch_and_head_indices(block.layout)
        derivative = _AtBlock(bias.derivative, block) if callable(bias.derivative) else bias.derivative
        indices = block.take_entries(np.asarray(b), 2), block.take_entries(np.asarray(h), 2)
        return ScoreMod(_AtBlock(bias.score_mod, block), derivative, indices)
    return _BiasOfBlock(bias, block)


@dataclass(frozen=True, eq=False)
class _MaskOfBlock(Mask):
    """A mask of the whole call, evaluated at a block of it."""

    mask: Mask
    block: ScoreBlock

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        allowed = np.asarray(self.mask.allows(self.block.layout, *self.block.shift(rows, cols)))
        return self.block.take_entries(allowed, 2)

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:  # noqa: ARG002
        return self.mask.block_kind(self.block.layout, *self.block.shift(rows, cols))

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges | None:  # noqa: ARG002
        whole = self.mask.key_ranges(self.block.layout)
        if whole is None:
            return None
        ends = (x[..., self.block.rows] if x.shape[-1] != 1 else x for x in whole)
        return KeyRanges(*(self.block.take_entries(x, 1) - self.block.cols.start for x in ends))


@dataclass(frozen=True, eq=False)
class _BiasOfBlock(Bias):
    """A bias of the whole call, evaluated at a block of it."""

    bias: Bias
    block: ScoreBlock
    parameter = None

    @property
    def can_mask(self) -> bool:  # type: ignore[override]
        return self.bias.can_mask

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        values = np.asarray(self.bias.values(self.block.layout, *self.block.shift(rows, cols)))
        return self.block.take_entries(values, 2)


@dataclass(frozen=True, eq=False)
class _AtBlock:
    """A function of a score and its indices, called with the indices that a block has in the whole."""

    function: Callable[..., Any]
    block: ScoreBlock

    def __call__(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return self.function(score, b, h, q_idx + self.block.rows.start, kv_idx + self.block.cols.start)


def _part_of_block_mask(mask: BlockMask, block: ScoreBlock) -> tuple[BlockMask, ScoreBlock]:
    """Return the blocks of 64 × 96 that a block overlaps, as a mask, and the place of the block among them."""
    above, below = block.rows.start // BLOCK_QUERIES, -(-block.rows.stop // BLOCK_QUERIES)
    before, after = block.cols.start // BLOCK_KEYS, -(-block.cols.stop // BLOCK_KEYS)
    table = mask.blocks[..., above:below, before:after]
    used, index = np.unique(table[table >= 0], return_inverse=True)
    blocks = table.copy()
    blocks[table >= 0] = index.reshape(-1)
    queries = min(below * BLOCK_QUERIES, mask.num_queries) - above * BLOCK_QUERIES
    keys = min(after * BLOCK_KEYS, mask.num_keys) - before * BLOCK_KEYS
    part = BlockMask(blocks, mask.tiles[used], queries, keys)
    layout = replace(block.layout, shape=(*block.layout.shape[:-2], queries, keys))
    rows, cols = (
        slice(span.start - first, span.stop - first)
        for span, first in ((block.rows, above * BLOCK_QUERIES), (block.cols, before * BLOCK_KEYS))
    )
    return part, ScoreBlock(layout, block.entries, rows, cols)


def _sliced(x: np.ndarray, slices: tuple[slice, ...], after: int = 0) -> np.ndarray:
    """Return the slices of the axes before the last `after`, as far as x has them; an axis of 1 stays."""
    count = max(0, x.ndim - after)
    return x[(*_broadcast_slices(x.shape[:count], slices), ...)] if count else x


def _broadcast_slices(shape: tuple[int, ...], slices: tuple[slice, ...]) -> list[Any]:
    """Return one slice for each axis, the last with the last; all of an axis of 1, which broadcasts."""
    chosen = (slice(None),) * (len(shape) - len(slices)) + slices[max(0, len(slices) - len(shape)) :]
    return [slice(None) if size == 1 else part for size, part in zip(shape, chosen, strict=True)]


def _shifted(index: Index, span: slice) -> Index:
    if not isinstance(index, slice):
        return index + span.start
    start, stop, step = index.indices(span.stop - span.start)
    return slice(start + span.start, stop + span.start, step)
