"""Parts and overviews of a head's weights.

Knows arrays; does not know text, models or pages.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Literal, TypeAlias

import numpy as np

from regard.metrics.layer_maps import WEIGHTS_PER_BLOCK, CancelCheck, LayerMap
from regard.trace.attention_map import AttentionMap

Pool: TypeAlias = Literal["max", "mean"]


def overview(layer: LayerMap, head: int, shape: tuple[int, int], how: Pool, check: CancelCheck) -> np.ndarray:
    """Return an overview of a whole head, ``P Q``."""
    look = layer.heads[head]
    if isinstance(look, AttentionMap) and not layer.is_padded:
        return np.asarray(look.pooled(shape, how, check=check))
    rows, cols = (edges(0, layer.length, count) for count in shape)
    return region(layer, head, rows, cols, how, check)


def region(
    layer: LayerMap, head: int, row_edges: np.ndarray, col_edges: np.ndarray, how: Pool, check: CancelCheck
) -> np.ndarray:
    """Return a part of a head, each cell the largest or the mean weight between two edges of each axis."""
    cols = slice(int(col_edges[0]), int(col_edges[-1]))
    width = max(1, cols.stop - cols.start)
    found, first, count = [], 0, len(row_edges) - 1
    while first < count:
        check()
        last = first + 1
        while last < count and (row_edges[last + 1] - row_edges[first]) * width <= WEIGHTS_PER_BLOCK:
            last += 1
        rows = slice(int(row_edges[first]), int(row_edges[last]))
        strip = layer.tile(head, rows, cols)
        found.append(pooled(strip, row_edges[first : last + 1] - rows.start, col_edges - cols.start, how))
        first = last
    return np.concatenate(found)


def edges(start: int, stop: int, count: int) -> np.ndarray:
    """Return where `count` stretches, as equal as can be, begin and the last one ends."""
    return start + np.arange(count + 1) * (stop - start) // count


def edges_by(start: int, stop: int, by: int) -> np.ndarray:
    """Return where stretches of so many begin, the last of what is left, and where that ends."""
    return np.append(np.arange(start, stop, by), stop)


def pooled(weights: np.ndarray, row_edges: np.ndarray, col_edges: np.ndarray, how: Pool) -> np.ndarray:
    """Return the largest or the mean of what lies between edges, of all of ``T S``."""
    heights, widths = np.diff(row_edges), np.diff(col_edges)
    join: Any = np.maximum if how == "max" else np.add
    if len(heights) == len(weights) and len(widths) == weights.shape[1]:
        return weights
    dtype = weights.dtype if how == "max" else np.float64
    if len(set(heights)) == len(set(widths)) == 1:  # faster than between edges; and a short last axis, number by number
        blocks = weights.reshape(len(heights), heights[0], len(widths), widths[0])
        found = reduce(join, np.moveaxis(join.reduce(blocks, axis=1, dtype=dtype), -1, 0))
    else:
        found = join.reduceat(join.reduceat(weights, row_edges[:-1], axis=0, dtype=dtype), col_edges[:-1], axis=1)
    if how == "mean":
        found = found / (heights[:, None] * widths)
    return np.asarray(found, dtype=weights.dtype)


def from_overview(
    overview: np.ndarray, length: int, row_edges: np.ndarray, col_edges: np.ndarray, how: Pool
) -> np.ndarray:
    """Return cells between edges, made of those of an overview of a whole map that they touch.

    The mean is that of the overview's cells, which are equal but for one token.
    """
    row_cells = _cells_of(row_edges, length, overview.shape[0])
    col_cells = _cells_of(col_edges, length, overview.shape[1])
    strips = np.stack([_joined(overview[a:b], how, 0) for a, b in row_cells])
    return np.stack([_joined(strips[:, a:b], how, 1) for a, b in col_cells], axis=1)


def _cells_of(asked: np.ndarray, length: int, count: int) -> np.ndarray:
    """Return the cells, of `count` over `length`, that each stretch between two edges touches: first, and behind."""
    known = edges(0, length, count)
    first = np.searchsorted(known, asked[:-1], side="right") - 1
    last = np.searchsorted(known, asked[1:], side="left")
    return np.stack([first, last], axis=1)


def _joined(part: np.ndarray, how: Pool, axis: int) -> np.ndarray:
    return np.asarray(part.max(axis=axis) if how == "max" else part.mean(axis=axis, dtype=np.float64))
