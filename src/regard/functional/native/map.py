"""Kernel-backed tiles and statistics of an attention map.

Scores are computed in the compute dtype (float32 for half precision) with the same bits in every pass, so that weights
agree with softmax statistics to the last digit of a score. Sums over many cells are accumulated in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from regard.functional import native
from regard.functional.arrays import Array, is_finite, widest_float
from regard.functional.blocks import spans
from regard.functional.dispatch import choose_implementation
from regard.functional.inputs import AttentionInputs
from regard.functional.native.attention import kernel_call
from regard.functional.native.convert import compute_type
from regard.functional.native.mask_args import kernel_mask_args
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.functional.scores.layout import Index
from regard.functional.scores.stages import STAGES, Stage

Pooling: TypeAlias = Literal["max", "mean"]
"""How the weights of a cell of an overview become one number; the mean is divided by the caller."""


class RowStatistics(NamedTuple):
    """Statistics of each row of weights; None for those that were not requested."""

    entropy: Array | None  # ... H T in float64
    mean_distance: Array | None  # ... H T in float64
    top_weights: Array | None  # ... H T k, the largest
    top_keys: Array | None  # ... H T k, their keys; −1 where a query attends to fewer than k


def native_map_inputs(p: AttentionInputs, trace: Recorder = NULL_RECORDER) -> AttentionInputs | None:
    """Return the inputs of the map kernel, or None if the kernel is not to be used.

    An error if ``implementation="native"`` is not available.
    """
    return (
        p.to_compute_dtype().replace(dtype=p.compute_dtype, v=None, dropout=None)
        if choose_implementation(p, trace)[0] == "native"
        else None
    )


def upcast_for_kernel(p: AttentionInputs) -> AttentionInputs:
    """Return inputs in float64, where the library has it."""
    return p.upcast().replace(dtype=widest_float(p.layout.xp, p.layout.device))


def exposes_masked_nonfinite(p: AttentionInputs, stage: str) -> bool:
    """Tell whether NaN or infinity of masked keys would appear in scores before the mask."""
    masks = p.mask is not None or (p.bias is not None and p.bias.can_mask)
    return stage in ("scores", "capped") and masks and not is_finite(p.k)


def native_softmax_stats(p: AttentionInputs) -> SoftmaxStats:
    """Return the softmax statistics of each row, NumPy arrays ``... H T 1``, row_sum in float64."""
    stats = _empty_stats(p, p.layout.queries)
    for _, at, call in _calls(p, slice(0, p.layout.queries)):
        native.kernel().map_softmax_stats(call, *(x[..., at, 0] for x in stats))
    return stats


def map_tile(p: AttentionInputs, rows: Index, cols: Index, stage: Stage, stats: SoftmaxStats | None = None) -> Array:
    """Return a stage of some rows and columns, ``... H R C``; `stats`, if known, are those of all rows."""
    columns = np.arange(cols.start, cols.stop) if isinstance(cols, slice) else np.asarray(cols)
    columns = np.ascontiguousarray(columns, np.int32)
    part = _empty(p, (_length(rows), len(columns)))
    for these, at, call in _calls(p, rows):
        row_stats = () if stats is None or stage != "weights" else (x[..., 0] for x in stats.rows(these))
        native.kernel().map_tile(call, STAGES.index(stage), columns, part[..., at, :], *row_stats)
    return _of_library(p, part)


def row_statistics(
    p: AttentionInputs, stats: SoftmaxStats, *, entropy: bool = False, mean_distance: bool = False, top: int = 0
) -> RowStatistics:
    """Return the requested statistics of each row, in one pass over the map."""
    count = p.layout.queries
    offset = p.layout.resolve_offset()
    offset = np.asarray(offset if isinstance(offset, int) else np.asarray(offset)[..., 0, 0])
    statistics = RowStatistics(
        _empty(p, (count,), np.float64) if entropy else None,
        _empty(p, (count,), np.float64) if mean_distance else None,
        _empty(p, (count, top)) if top else None,
        _empty(p, (count, top), np.int32) if top else None,
    )
    for these, at, call in _calls(p, slice(0, count)):
        parts = (None if x is None else x[..., at] for x in statistics[:2])
        largest = (None if x is None else x[..., at, :] for x in statistics[2:])
        position = (offset + at.start).astype(np.int32)
        native.kernel().map_row_statistics(call, *(x[..., 0] for x in stats.rows(these)), position, *parts, *largest)
    return RowStatistics(*(None if x is None else _of_library(p, x) for x in statistics))


def column_sums(p: AttentionInputs, stats: SoftmaxStats) -> Array:
    """Return the total weight of each key, ``... H S`` in float64."""
    total = np.zeros((*p.layout.shape[:-2], p.layout.keys))
    for these, _, call in _calls(p, slice(0, p.layout.queries)):
        part = _empty(p, (p.layout.keys,), np.float64)
        native.kernel().map_column_sums(call, *(x[..., 0] for x in stats.rows(these)), part)
        total += part
    return _of_library(p, total)


def pooled_map(
    p: AttentionInputs, row_edges: np.ndarray, col_edges: np.ndarray, how: Pooling
) -> tuple[Array, SoftmaxStats]:
    """Return the maximum or sum of the weights between edges, ``... H P Q`` in float64, and the rows' softmax stats.

    The kernel pools at most one block of queries at a time; larger cells are combined here.
    """
    join = np.maximum if how == "max" else np.add
    overview = np.zeros((*p.layout.shape[:-2], len(row_edges) - 1, len(col_edges) - 1))
    columns = col_edges.astype(np.int32)
    covered = slice(int(row_edges[0]), int(row_edges[-1]))
    stats = _empty_stats(p, _length(covered))
    for these, at, call in _calls(p, covered):
        assert isinstance(these, slice)
        pieces = [
            (cell, start)
            for cell, (a, b) in enumerate(pairwise(row_edges.tolist()))
            for start in range(max(a, these.start), min(b, these.stop), native.kernel().BLOCK_QUERIES)
        ]
        rows = np.array([*(start - these.start for _, start in pieces), these.stop - these.start], np.int32)
        part = _empty(p, (len(pieces), len(columns) - 1), np.float64)
        row_stats = (x[..., at, 0] for x in stats)
        native.kernel().map_pooled(call, rows, columns, how == "mean", part, *row_stats)
        cells, firsts = np.unique([cell for cell, _ in pieces], return_index=True)
        overview[..., cells, :] = join(overview[..., cells, :], join.reduceat(part, firsts, axis=-2))
    return _of_library(p, overview), stats


def _calls(p: AttentionInputs, rows: Index) -> Iterator[tuple[Index, slice, Any]]:
    """Yield parts of `rows`, their place in `rows`, and the kernel's call for each."""
    mask_args = kernel_mask_args(p)
    rows = rows if isinstance(rows, slice) else np.asarray(rows)
    for at in spans(_length(rows), mask_args.max_rows(rows)):
        these = slice(rows.start + at.start, rows.start + at.stop) if isinstance(rows, slice) else rows[at]
        yield these, at, kernel_call(p, mask_args, these)


def _length(rows: Index) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else int(rows.shape[0])


def _empty(p: AttentionInputs, shape: tuple[int, ...], dtype: Any = None) -> np.ndarray:
    return native.empty((*p.layout.shape[:-2], *shape), np.dtype(dtype or compute_type(p.dtype)))


def _empty_stats(p: AttentionInputs, rows: int) -> SoftmaxStats:
    return SoftmaxStats(_empty(p, (rows, 1)), _empty(p, (rows, 1), np.float64))


def _of_library(p: AttentionInputs, x: np.ndarray) -> Array:
    return x if p.layout.xp is np else p.layout.xp.asarray(x, device=p.layout.device)
