"""The inputs of a part of a call of attention, as those of a call of its own: some heads, or a block of the scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from regard.functional.arrays import Array, namespace
from regard.functional.biases.base import PartOfBias
from regard.functional.biases.score_mod import ScoreMod
from regard.functional.heads import count_heads
from regard.functional.inputs import AttentionInputs
from regard.functional.masks.base import BlockKind, PartOfMask
from regard.functional.rules import Rule
from regard.functional.scores.part import ScorePart


def slice_heads(p: AttentionInputs, index: Sequence[int | slice]) -> tuple[AttentionInputs, ScorePart]:
    """Return the inputs of some heads and batch entries, and the part itself.

    Parameters
    ----------
    p : AttentionInputs
    index : sequence of int or slice
        One for each axis before ``T S``; an integer removes its axis.
    """
    part = ScorePart(p.layout, tuple(index))
    sizes = zip(part.index, p.layout.shape[:-2], strict=True)
    shape = tuple(len(range(size)[i]) for i, size in sizes if isinstance(i, slice))
    offset = p.layout.resolve_offset()
    layout = replace(
        p.layout, shape=(*shape, *p.layout.shape[-2:]), offsets=None if isinstance(offset, int) else part.take(offset)
    )
    sliced = replace(
        p,
        q=part.take(p.q),
        k=_take_kv(part, p.k),
        layout=layout,
        mask=None if p.mask is None else p.mask.take(part),
        bias=None if p.bias is None else p.bias.take(part),
        sinks=None if p.sinks is None else part.take(p.sinks),
    )
    return sliced, part


def _take_kv(part: ScorePart, k: Array) -> Array:
    """Return the part of keys ``... G S D``, with one key head for each query head of the part."""
    xp, groups, query_heads = namespace(k), count_heads(k), part.layout.heads
    if groups in (1, query_heads):
        return part.take(k)
    *batch, heads = part.index
    if range(query_heads)[heads] == range(query_heads):  # all heads, which continue to share
        return ScorePart(part.layout, (*batch, slice(None))).take(k)
    if isinstance(heads, int):
        return ScorePart(part.layout, (*batch, heads * groups // query_heads)).take(k)
    shared = np.asarray([h * groups // query_heads for h in range(query_heads)[heads]], dtype=np.int64)
    k = xp.take(k, xp.asarray(shared, device=part.layout.device), axis=-3)
    return ScorePart(part.layout, (*batch, slice(None))).take(k)


def is_head_slice(p: AttentionInputs) -> bool:
    """Tell whether the inputs are a slice whose mask, bias or offsets refer to the whole call."""
    return p.layout.offsets is not None or _refers_to_whole(p.mask) or _refers_to_whole(p.bias)


def _refers_to_whole(rule: Rule | None) -> bool:
    if rule is None:
        return False
    if isinstance(rule, PartOfMask | PartOfBias) or (isinstance(rule, ScoreMod) and rule.indices is not None):
        return True
    values = (getattr(rule, field.name) for field in rule.rule_fields)
    return any(_refers_to_whole(x) for x in values if isinstance(x, Rule))


def slice_inputs(p: AttentionInputs, block: ScorePart) -> AttentionInputs:
    """Return the inputs of a block, without its arrays q, k and v: to be given by `replace`."""
    return p.replace(
        q=None,
        k=None,
        v=None,
        layout=block.block_layout,
        mask=None if p.mask is None else p.mask.take(block),
        bias=None if p.bias is None else p.bias.take(block),
        sinks=None if p.sinks is None else block.take(p.sinks, "... H R C"),
    )


def nonempty_spans(
    p: AttentionInputs, entries: tuple[slice, ...], rows: slice, edges: Sequence[int], first: int = 0
) -> Iterator[int]:
    """Yield the number, from `first` on, of each span of keys between two edges that some queries attend to.

    Halves of which the mask leaves nothing are not looked into.
    """
    cols = slice(edges[0], edges[-1])
    if rows.stop <= rows.start or cols.stop <= cols.start or _is_empty(p, ScorePart(p.layout, entries, rows, cols)):
        return
    if len(edges) == 2:
        yield first
        return
    middle = (len(edges) - 1) // 2
    yield from nonempty_spans(p, entries, rows, edges[: middle + 1], first)
    yield from nonempty_spans(p, entries, rows, edges[middle:], first + middle)


def _is_empty(p: AttentionInputs, block: ScorePart) -> bool:
    if p.mask is None:
        return False
    layout = block.block_layout
    rows, cols = (slice(0, size) for size in layout.shape[-2:])
    return p.mask.take(block).block_kind(layout, rows, cols) is BlockKind.EMPTY
