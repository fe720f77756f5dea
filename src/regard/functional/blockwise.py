"""Blockwise attention: memory of O(n · D) by an online softmax over blocks of keys.

References
----------
Rabe and Staats (2021), "Self-attention does not need O(n²) memory", https://arxiv.org/abs/2112.05682; Dao et al.
(2022), "FlashAttention", https://arxiv.org/abs/2205.14135.
"""

from __future__ import annotations

from regard.functional.arrays import Array, concat
from regard.functional.blocks import block_sizes, nonempty_blocks, spans
from regard.functional.inputs import AttentionInputs
from regard.functional.nonfinite import finite_matmul, nonzero, restore_nonfinite
from regard.functional.online_softmax import SoftmaxStats, initial_stats, online_softmax_step
from regard.functional.reference import repeat_kv
from regard.functional.scores.layout import Index, take
from regard.functional.scores.stages import block_scores


def blockwise(p: AttentionInputs) -> tuple[Array, SoftmaxStats]:
    """Return the context, ``... H T Dv``, and the stats of its rows, in the dtype of the inputs."""
    rows, cols = block_sizes(p)
    parts = [_rows(p, span, spans(p.layout.keys, cols)) for span in spans(p.layout.queries, rows)]
    contexts, stats = zip(*parts, strict=True)
    return concat(contexts, -2), SoftmaxStats(*(concat(x, -2) for x in zip(*stats, strict=True)))


def _rows(p: AttentionInputs, rows: slice, cols: list[slice]) -> tuple[Array, SoftmaxStats]:
    """Return the context of some queries, ``... H R Dv``, and their stats."""
    xp = p.layout.xp
    stats = initial_stats(p, rows)
    shape = (*p.context_shape[:-2], stats.row_sum.shape[-2], p.context_shape[-1])
    context = xp.zeros(shape, dtype=p.q.dtype, device=p.layout.device)
    marks = span = None
    for _, span, unmasked in nonempty_blocks(p, rows, cols):
        block = block_scores(p, rows, span, unmasked=unmasked)
        stats, correction, exponentials = online_softmax_step(stats, block.biased, xp)
        if p.dropout is not None:
            exponentials = exponentials * p.dropout.factors(p.layout, rows, span, p.q.dtype)
        v = repeat_kv(take(p.v, span, -2), p.q)
        product, new_marks = finite_matmul(exponentials, v, block.mask)
        context = context * correction + product
        if new_marks is not None:
            marks = new_marks if marks is None else xp.logical_or(marks, new_marks)
    if span is None:  # autograd of PyTorch needs a path to every input
        context = context + sum(xp.sum(x[..., :0, :]) for x in (p.q, p.k, p.v))
    context = context / nonzero(stats.row_sum, xp)
    return context if marks is None else restore_nonfinite(context, marks), stats


def softmax_stats(p: AttentionInputs, rows: Index) -> SoftmaxStats:
    """Return the stats of some rows over all keys, ``... H R 1``, a block at a time."""
    row_size, col_size = block_sizes(p)
    cols = spans(p.layout.keys, col_size)
    parts = [_stats(p, chunk, cols) for chunk in _chunks(rows, row_size)]
    return SoftmaxStats(*(concat(x, -2) for x in zip(*parts, strict=True)))


def _stats(p: AttentionInputs, rows: Index, cols: list[slice]) -> SoftmaxStats:
    stats = initial_stats(p, rows)
    for _, span, unmasked in nonempty_blocks(p, rows, cols):
        stats, _, _ = online_softmax_step(stats, block_scores(p, rows, span, unmasked=unmasked).biased, p.layout.xp)
    return stats


def _chunks(rows: Index, size: int) -> list[Index]:
    """Return rows, a slice ``start:stop`` or an array, in pieces of at most `size`."""
    if isinstance(rows, slice):
        return [slice(rows.start + s.start, rows.start + s.stop) for s in spans(rows.stop - rows.start, size)]
    return [rows[span] for span in spans(int(rows.shape[0]), size)]
