"""Overviews of attention maps: their cells, and how weights, or finer cells, become one number.

Each cell is the largest or the mean of the weights between two edges of each axis. Sums are kept until the end, where
`cell_means` divides them by the size of the cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, get_args

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.functional.arrays import Array
from regard.functional.inputs import AttentionInputs
from regard.functional.native.map import Pooling
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.scores.tile import attention_tile

POOLINGS: tuple[str, ...] = get_args(Pooling)
"""The ways in which the weights of a cell of an overview become one number."""

PooledPair: TypeAlias = tuple[np.ndarray, np.ndarray]
"""The largest of the weights of each cell, and their sum."""

JOINS = (np.maximum, np.add)  # which make one of two
_STRIP_WEIGHTS = 2**21  # that are held at a time while cells are pooled


def check_pooling(how: object) -> None:
    """Raise RegardError unless `how` is one of `POOLINGS`."""
    if how not in POOLINGS:
        raise RegardError(f"how must be {' or '.join(POOLINGS)}, got {how!r}")


def overview_edges(shape: Sequence[int], size: object, how: object) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of the rows and columns of an overview of `size`, ``(P, Q)``, of a map ``... T S``.

    Raises
    ------
    RegardError
        The size is not a pair of whole numbers of at least 1, or `how` is not a way to pool.
    """
    check_pooling(how)
    if not isinstance(size, Sequence) or len(size) != 2:
        raise RegardError(f"the size of an overview is (rows, columns), got {size!r}")
    counts = [whole_number("a side of an overview", count, 1) for count in size]
    rows, cols = (equal_edges(0, length, count) for length, count in zip(shape[-2:], counts, strict=True))
    return rows, cols


def equal_edges(start: int, stop: int, count: int) -> np.ndarray:
    """Return the edges of `count` cells that cover start to stop, equal but for one position; at most one each."""
    count = min(count, stop - start)
    return start + np.arange(count + 1) * (stop - start) // max(count, 1)


def bin_edges(start: int, stop: int, bin_size: int) -> np.ndarray:
    """Return the edges of cells of one size, the last of what is left."""
    return np.append(np.arange(start, stop, bin_size), stop)


def cells_inside(edges: np.ndarray, span: slice) -> tuple[int, np.ndarray]:
    """Return the first cell that overlaps a span, and the edges of all that do, counted from its start."""
    first = int(np.searchsorted(edges, span.start, side="right")) - 1
    end = int(np.searchsorted(edges, span.stop, side="left"))
    return first, np.clip(edges[first : end + 1], span.start, span.stop) - span.start


def cell_means(total: Array, row_sizes: Any, col_sizes: Any) -> Array:
    """Return the mean of the weights of each cell from their sums, ``... P Q``."""
    return total / (row_sizes[:, None] * col_sizes[None, :])


def reduce_cells(x: np.ndarray, starts: np.ndarray, axis: int, join: np.ufunc) -> np.ndarray:
    """Return `x` reduced from each start to the next, along a negative axis; cells of one size faster."""
    length = x.shape[axis]
    size = length // len(starts)
    if size * len(starts) == length and np.array_equal(starts, np.arange(0, length, size)):
        axis += x.ndim
        blocks = x.reshape(*x.shape[:axis], len(starts), size, *x.shape[axis + 1 :])
        return np.asarray(join.reduce(blocks, axis=axis + 1))
    return np.asarray(join.reduceat(x, starts, axis=axis))


def join_parts(
    shape: tuple[int, ...], at: Sequence[tuple[int, int]], parts: Sequence[np.ndarray], join: np.ufunc
) -> np.ndarray:
    """Return an overview of parts that begin at these rows and columns, and may overlap; 0 where there is none."""
    overview = np.zeros(shape)
    for (row, col), part in zip(at, parts, strict=True):
        region = overview[..., row : row + part.shape[-2], col : col + part.shape[-1]]
        join(region, part, out=region)
    return overview


def pool_block(p: AttentionInputs, stats: SoftmaxStats, row_edges: np.ndarray, col_edges: np.ndarray) -> PooledPair:
    """Return the largest weight and the sum of the weights between edges of a block, ``... H P Q`` each in float64.

    `stats` are those of the rows over all keys. Weights are computed in strips of rows and the keys that they need.
    """
    shape = (*p.layout.shape[:-2], len(row_edges) - 1, len(col_edges) - 1)
    ranges = None if p.mask is None else p.mask.key_ranges(p.layout)
    weights_of_row = math.prod(p.layout.shape) // max(1, p.layout.queries)
    at: list[tuple[int, int]] = []
    parts: list[list[np.ndarray]] = []
    for rows, (row_starts, first_row) in _strips(row_edges, max(1, _STRIP_WEIGHTS // max(1, weights_of_row))):
        first, end = _touched(col_edges, ranges, rows)
        if end <= first:
            continue
        cols = slice(int(col_edges[first]), int(col_edges[end]))
        weights = np.asarray(attention_tile(p, rows, cols, "weights", stats), np.float64)
        starts = col_edges[first:end] - cols.start
        at.append((first_row, first))
        parts.append([reduce_cells(reduce_cells(weights, starts, -1, join), row_starts, -2, join) for join in JOINS])
    largest, total = (join_parts(shape, at, [part[i] for part in parts], join) for i, join in enumerate(JOINS))
    return largest, total


def _strips(edges: np.ndarray, height: int) -> Iterator[tuple[slice, tuple[np.ndarray, int]]]:
    """Yield strips of at most `height` rows: where its cells begin, counted from the strip, and the first of them."""
    start = int(edges[0])
    while start < edges[-1]:
        stop = min(start + height, int(edges[-1]))
        last = int(edges[np.searchsorted(edges, stop, side="right") - 1])
        stop = last if last > start else stop  # whole cells where one fits
        first, inside = cells_inside(edges, slice(start, stop))
        yield slice(start, stop), (inside[:-1], first)
        start = stop


def _touched(col_edges: np.ndarray, ranges: Any, rows: slice) -> tuple[int, int]:
    """Return the first cell of columns and the end of those that some rows attend to."""
    if ranges is None:
        return 0, len(col_edges) - 1
    begin, end = (x[..., rows] if x.shape[-1] != 1 else x for x in ranges)
    begin, end = np.broadcast_arrays(begin, end)
    some = end > begin
    if not some.any():
        return 0, 0
    least, most = max(0, int(begin[some].min())), min(int(end[some].max()), int(col_edges[-1]))
    if most <= least:
        return 0, 0
    return int(np.searchsorted(col_edges, least, side="right")) - 1, int(np.searchsorted(col_edges, most, side="left"))
