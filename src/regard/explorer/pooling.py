"""Pooled parts and overviews of a head's weights."""

from __future__ import annotations

from functools import reduce
from typing import Any, get_args

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.native.map import Pooling
from regard.metrics.layer_maps import WEIGHTS_PER_BLOCK, CancelCheck, LayerMap
from regard.trace.attention_map import AttentionMap
from regard.trace.overviews import equal_edges


def check_pool(pool: str) -> None:
    """Raise `RegardError` unless `pool` is a pooling."""
    if pool not in get_args(Pooling):
        raise RegardError(f"pool is {' or '.join(map(repr, get_args(Pooling)))}, not {pool!r}")


def overview(layer: LayerMap, head: int, shape: tuple[int, int], pool: Pooling, check: CancelCheck) -> np.ndarray:
    """Return an overview of a whole head, ``P Q``."""
    source = layer.heads[head]
    if isinstance(source, AttentionMap) and not layer.is_padded:
        return np.asarray(source.pooled(shape, pool, check=check))
    rows, cols = (equal_edges(0, layer.length, count) for count in shape)
    return pooled_region(layer, head, rows, cols, pool, check)


def pooled_region(
    layer: LayerMap, head: int, row_edges: np.ndarray, col_edges: np.ndarray, pool: Pooling, check: CancelCheck
) -> np.ndarray:
    """Return a region of a head, each cell the largest or the mean weight between two edges of each axis."""
    cols = slice(int(col_edges[0]), int(col_edges[-1]))
    width = max(1, cols.stop - cols.start)
    strips, first, count = [], 0, len(row_edges) - 1
    while first < count:
        check()
        last = first + 1
        while last < count and (row_edges[last + 1] - row_edges[first]) * width <= WEIGHTS_PER_BLOCK:
            last += 1
        rows = slice(int(row_edges[first]), int(row_edges[last]))
        strip = layer.tile(head, rows, cols)
        strips.append(pool_between(strip, row_edges[first : last + 1] - rows.start, col_edges - cols.start, pool))
        first = last
    return np.concatenate(strips)


def resized(weights: np.ndarray, side: int) -> np.ndarray:
    """Return ``side side`` cells: the largest weight in each, or, along an axis that is shorter, weights repeated."""
    for axis in (0, 1):
        starts = np.arange(side) * weights.shape[axis] // side
        if weights.shape[axis] < side:
            weights = np.take(weights, starts, axis)
        else:
            weights = np.maximum.reduceat(weights, starts, axis)
    return weights


def pool_between(weights: np.ndarray, row_edges: np.ndarray, col_edges: np.ndarray, pool: Pooling) -> np.ndarray:
    """Return the largest or the mean weight between edges that cover all of ``T S``."""
    heights, widths = np.diff(row_edges), np.diff(col_edges)
    join: Any = np.maximum if pool == "max" else np.add
    if len(heights) == len(weights) and len(widths) == weights.shape[1]:
        return weights
    dtype = weights.dtype if pool == "max" else np.float64
    if len(set(heights)) == len(set(widths)) == 1:  # faster than reduceat, as is a loop over a short last axis
        blocks = weights.reshape(len(heights), heights[0], len(widths), widths[0])
        pooled = reduce(join, np.moveaxis(join.reduce(blocks, axis=1, dtype=dtype), -1, 0))
    else:
        pooled = join.reduceat(join.reduceat(weights, row_edges[:-1], axis=0, dtype=dtype), col_edges[:-1], axis=1)
    if pool == "mean":
        pooled = pooled / (heights[:, None] * widths)
    return np.asarray(pooled, dtype=weights.dtype)


def pool_overview(
    overview: np.ndarray, length: int, row_edges: np.ndarray, col_edges: np.ndarray, pool: Pooling
) -> np.ndarray:
    """Return cells between edges, pooled from the cells of a whole map's overview that they touch.

    The mean is that of the overview's cells, whose sizes differ by one token at most.
    """
    row_cells = _touched_cells(row_edges, length, overview.shape[0])
    col_cells = _touched_cells(col_edges, length, overview.shape[1])
    strips = np.stack([_pool_axis(overview[a:b], pool, 0) for a, b in row_cells])
    return np.stack([_pool_axis(strips[:, a:b], pool, 1) for a, b in col_cells], axis=1)


def _touched_cells(edges: np.ndarray, length: int, count: int) -> np.ndarray:
    """Return the half-open range of cells, of `count` over `length`, that each bin between two edges touches."""
    cell_edges = equal_edges(0, length, count)
    first = np.searchsorted(cell_edges, edges[:-1], side="right") - 1
    stop = np.searchsorted(cell_edges, edges[1:], side="left")
    return np.stack([first, stop], axis=1)


def _pool_axis(part: np.ndarray, pool: Pooling, axis: int) -> np.ndarray:
    return np.asarray(part.max(axis=axis) if pool == "max" else part.mean(axis=axis, dtype=np.float64))
