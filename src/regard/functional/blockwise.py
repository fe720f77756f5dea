"""Attention in memory of O(n · D): block by block, with a softmax that goes on as keys come in.

The weights of a row need the sum over all of its keys. Block by block only the sum so far is known, and the largest
score so far, by which the exponentials are shifted. When a later block holds a larger score, what was gathered shrinks
by exp(old maximum − new maximum), and the sums go on as if the new one had been known from the start.

References
----------
Milakov and Gimelshein (2018), "Online normalizer calculation for softmax", https://arxiv.org/abs/1805.02867; Dao et
al. (2022), "FlashAttention", https://arxiv.org/abs/2205.14135.
"""

from __future__ import annotations

from typing import Any

from regard._utils.typing import Array
from regard.functional.arrays import concat
from regard.functional.dispatch import block_sizes, nonempty_blocks, spans
from regard.functional.inputs import AttentionInputs, heads, repeat_kv
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.score_layout import Index, take
from regard.functional.scores import restore_nonfinite, score, weighted_sum
from regard.functional.softmax import clamp_posinf, finite_row_max, nonzero


def blockwise(p: AttentionInputs) -> tuple[Array, SoftmaxStats]:
    """Return the context, ``... H T Dv`` in the precision of the problem, and what normalised each row."""
    rows, cols = block_sizes(p)
    parts = [attend(p, span, spans(p.layout.keys, cols)) for span in spans(p.layout.queries, rows)]
    contexts, normalisers = zip(*parts, strict=True)
    return concat(contexts, -2), SoftmaxStats(*(concat(x, -2) for x in zip(*normalisers, strict=True)))


def attend(p: AttentionInputs, rows: slice, cols: list[slice]) -> tuple[Array, SoftmaxStats]:
    """Return the context of some queries, ``... H R Dv``, and their normaliser, over the keys of all `cols`."""
    xp = p.layout.xp
    state = _start(p, rows)
    shape = (*p.context_shape[:-2], state.row_sum.shape[-2], p.context_shape[-1])
    context = xp.zeros(shape, dtype=p.q.dtype, device=p.layout.device)
    marks = span = None
    for _, span, full in nonempty_blocks(p, rows, cols):
        tile = score(p, rows, span, full=full)
        state, shrink, exponentials = online_softmax_step(state, tile.biased, xp)
        if p.dropout is not None:
            exponentials = exponentials * p.dropout.factors(p.layout, rows, span, p.q.dtype)
        v = repeat_kv(take(p.v, span, -2), heads(p.q))
        part, seen_marks = weighted_sum(exponentials, v, tile.allowed)
        context = context * shrink + part
        if seen_marks is not None:
            marks = seen_marks if marks is None else xp.logical_or(marks, seen_marks)
    if span is None:  # PyTorch wants its zeros to come from somewhere
        context = context + sum(xp.sum(x[..., :0, :]) for x in (p.q, p.k, p.v))
    return restore_nonfinite(context / nonzero(state.row_sum), marks), state


def normaliser(p: AttentionInputs, rows: Index) -> SoftmaxStats:
    """Return what normalises the scores of some queries over all keys, ``... H R 1``, a block at a time."""
    row_size, col_size = block_sizes(p)
    cols = spans(p.layout.keys, col_size)
    parts = [_normaliser(p, some, cols) for some in _chunks(rows, row_size)]
    return SoftmaxStats(*(concat(x, -2) for x in zip(*parts, strict=True)))


def _normaliser(p: AttentionInputs, rows: Index, cols: list[slice]) -> SoftmaxStats:
    state = _start(p, rows)
    for _, span, full in nonempty_blocks(p, rows, cols):
        state, _, _ = online_softmax_step(state, score(p, rows, span, full=full).biased, p.layout.xp)
    return state


def _chunks(rows: Index, size: int) -> list[Index]:
    """Return rows, a slice ``start:stop`` or an array, in pieces of at most `size`."""
    if isinstance(rows, slice):
        return [slice(rows.start + s.start, rows.start + s.stop) for s in spans(rows.stop - rows.start, size)]
    return [rows[span] for span in spans(int(rows.shape[0]), size)]


def _start(p: AttentionInputs, rows: Index) -> SoftmaxStats:
    """Return the state before any key: nothing yet, or the sink, which is there for every query."""
    xp, layout = p.layout.xp, p.layout
    shape = (*layout.shape[:-2], layout.rows(rows).shape[0], 1)
    if p.sinks is None:
        row_max = xp.full(shape, -xp.inf, dtype=p.q.dtype, device=layout.device)
    else:
        row_max = xp.broadcast_to(clamp_posinf(p.sinks), shape)
    return SoftmaxStats(row_max, xp.astype(row_max != -xp.inf, p.q.dtype))


def online_softmax_step(state: SoftmaxStats, biased: Array, xp: Any) -> tuple[SoftmaxStats, Array, Array]:
    """Return the state after one more block, the factor by which what was gathered shrinks, and the exponentials."""
    biased = clamp_posinf(biased)
    row_max = xp.maximum(state.row_max, xp.max(biased, axis=-1, keepdims=True))
    shift = finite_row_max(row_max)
    exponentials = xp.exp(biased - shift)
    shrink = xp.exp(state.row_max - shift)
    return (
        SoftmaxStats(row_max, state.row_sum * shrink + xp.sum(exponentials, axis=-1, keepdims=True)),
        shrink,
        exponentials,
    )
