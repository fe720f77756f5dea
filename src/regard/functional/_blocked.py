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

from regard._typing import Array
from regard.functional._arrays import side_by_side
from regard.functional._grid import Index, take
from regard.functional._normaliser import Normaliser
from regard.functional._plan import block_sizes, seen_blocks, spans
from regard.functional._problem import Problem, for_each_query_head, heads
from regard.functional._scores import score, weighted_sum, with_infinities
from regard.functional._softmax import infinity_as_largest, or_one, shift_of


def blocked(p: Problem) -> tuple[Array, Normaliser]:
    """Return the context, ``... H T Dv`` in the precision of the problem, and what normalised each row."""
    rows, cols = block_sizes(p)
    parts = [attend(p, span, spans(p.grid.keys, cols)) for span in spans(p.grid.queries, rows)]
    contexts, normalisers = zip(*parts, strict=True)
    return side_by_side(contexts, -2), Normaliser(*(side_by_side(x, -2) for x in zip(*normalisers, strict=True)))


def attend(p: Problem, rows: slice, cols: list[slice]) -> tuple[Array, Normaliser]:
    """Return the context of some queries, ``... H R Dv``, and their normaliser, over the keys of all `cols`."""
    xp = p.grid.xp
    state = _start(p, rows)
    shape = (*p.context_shape[:-2], state.total.shape[-2], p.context_shape[-1])
    context = xp.zeros(shape, dtype=p.q.dtype, device=p.grid.device)
    marks = span = None
    for _, span, full in seen_blocks(p, rows, cols):
        tile = score(p, rows, span, full=full)
        state, shrink, exponentials = _onward(state, tile.biased, xp)
        if p.dropout is not None:
            exponentials = exponentials * p.dropout.factors(p.grid, rows, span, p.q.dtype)
        v = for_each_query_head(take(p.v, span, -2), heads(p.q))
        part, seen_marks = weighted_sum(exponentials, v, tile.seen)
        context = context * shrink + part
        if seen_marks is not None:
            marks = seen_marks if marks is None else xp.logical_or(marks, seen_marks)
    if span is None:  # PyTorch wants its zeros to come from somewhere
        context = context + sum(xp.sum(x[..., :0, :]) for x in (p.q, p.k, p.v))
    return with_infinities(context / or_one(state.total), marks), state


def normaliser(p: Problem, rows: Index) -> Normaliser:
    """Return what normalises the scores of some queries over all keys, ``... H R 1``, a block at a time."""
    row_size, col_size = block_sizes(p)
    cols = spans(p.grid.keys, col_size)
    parts = [_normaliser(p, some, cols) for some in _chunks(rows, row_size)]
    return Normaliser(*(side_by_side(x, -2) for x in zip(*parts, strict=True)))


def _normaliser(p: Problem, rows: Index, cols: list[slice]) -> Normaliser:
    state = _start(p, rows)
    for _, span, full in seen_blocks(p, rows, cols):
        state, _, _ = _onward(state, score(p, rows, span, full=full).biased, p.grid.xp)
    return state


def _chunks(rows: Index, size: int) -> list[Index]:
    """Return rows, a slice ``start:stop`` or an array, in pieces of at most `size`."""
    if isinstance(rows, slice):
        return [slice(rows.start + s.start, rows.start + s.stop) for s in spans(rows.stop - rows.start, size)]
    return [rows[span] for span in spans(int(rows.shape[0]), size)]


def _start(p: Problem, rows: Index) -> Normaliser:
    """Return the state before any key: nothing yet, or the sink, which is there for every query."""
    xp, grid = p.grid.xp, p.grid
    shape = (*grid.shape[:-2], grid.rows(rows).shape[0], 1)
    if p.sinks is None:
        highest = xp.full(shape, -xp.inf, dtype=p.q.dtype, device=grid.device)
    else:
        highest = xp.broadcast_to(infinity_as_largest(p.sinks), shape)
    return Normaliser(highest, xp.astype(highest != -xp.inf, p.q.dtype))


def _onward(state: Normaliser, biased: Array, xp: Any) -> tuple[Normaliser, Array, Array]:
    """Return the state after one more block, the factor by which what was gathered shrinks, and the exponentials."""
    biased = infinity_as_largest(biased)
    highest = xp.maximum(state.highest, xp.max(biased, axis=-1, keepdims=True))
    shift = shift_of(highest)
    exponentials = xp.exp(biased - shift)
    shrink = xp.exp(state.highest - shift)
    return (
        Normaliser(highest, state.total * shrink + xp.sum(exponentials, axis=-1, keepdims=True)),
        shrink,
        exponentials,
    )
