"""The weights of one layer for one text, whether a trace holds them as a map or as an array: parts and overviews.

Knows arrays; does not know text, models or pages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from regard._errors import RegardError
from regard.attention_map import AttentionMap
from regard.functional._attention import Stage
from regard.trace import Trace

Pool: TypeAlias = Literal["max", "mean"]
Check: TypeAlias = Callable[[], None]
"""Called now and then during long work; raises when nobody waits for the answer any more."""

_AT_ONCE = 1 << 22  # weights that are held together


@dataclass(frozen=True, eq=False)
class LayerMap:
    """The attention of one layer for one text, ``H T S``.

    Parameters
    ----------
    name : str
        ``blocks.3.attn``; "" for a bare layer.
    heads : tuple of AttentionMap or array, ``T S`` each
    kv_heads : int or None
        ``G``; None where neither keys nor values were recorded.
    rows, cols : int
        ``T`` and ``S``.
    """

    name: str
    heads: tuple[AttentionMap | np.ndarray, ...]
    kv_heads: int | None
    rows: int
    cols: int

    def step(self, name: str) -> str:
        """Return the full name of a step of this attention."""
        return f"{self.name}.{name}" if self.name else name

    def kv_head(self, head: int) -> int | None:
        """Return the key/value head that a query head looks with; None where that is not known."""
        return None if self.kv_heads is None else head * self.kv_heads // len(self.heads)

    @property
    def is_map(self) -> bool:
        """Whether weights are computed when they are looked at, and the steps to them too."""
        return isinstance(self.heads[0], AttentionMap)

    def tile(self, head: int, rows: Any, cols: Any, stage: Stage = "weights") -> np.ndarray:
        """Return some rows and columns of a head; slices, or arrays of numbers, or None for all but padding.

        Other stages than weights are those of a map.
        """
        look = self.heads[head]
        if look.shape[-2:] != (self.rows, self.cols):
            rows = slice(0, self.rows) if rows is None else rows
            cols = slice(0, self.cols) if cols is None else cols
        if isinstance(look, AttentionMap):
            return np.asarray(look.tile(rows, cols, stage=stage))
        assert stage == "weights"
        rows, cols = (slice(None) if index is None else index for index in (rows, cols))
        return np.asarray(look[rows][:, cols])

    def pooled(self, head: int, shape: tuple[int, int], how: Pool) -> np.ndarray:
        """Return an overview of a whole head, ``P Q``."""
        look = self.heads[head]
        if isinstance(look, AttentionMap) and look.shape[-2:] == (self.rows, self.cols):
            return np.asarray(look.pooled(shape, how))
        return self.region(head, edges(0, self.rows, shape[0]), edges(0, self.cols, shape[1]), how, lambda: None)

    def region(self, head: int, row_edges: np.ndarray, col_edges: np.ndarray, how: Pool, check: Check) -> np.ndarray:
        """Return a part of a head, each cell the largest or the mean weight between two edges of each axis."""
        cols = slice(int(col_edges[0]), int(col_edges[-1]))
        width = max(1, cols.stop - cols.start)
        found, first, count = [], 0, len(row_edges) - 1
        while first < count:
            check()
            last = first + 1
            while last < count and (row_edges[last + 1] - row_edges[first]) * width <= _AT_ONCE:
                last += 1
            rows = slice(int(row_edges[first]), int(row_edges[last]))
            strip = self.tile(head, rows, cols)
            found.append(pooled(strip, row_edges[first : last + 1] - rows.start, col_edges - cols.start, how))
            first = last
        return np.concatenate(found)


def layers_of(trace: Trace, batch: int) -> list[LayerMap]:
    """Return every self-attention of one text of a trace, from the first layer to the last.

    Raises
    ------
    RegardError
        There is none, or no such text.
    """
    if trace.encodings and not 0 <= batch < len(trace.encodings):
        raise RegardError(f"there is no text {batch} in a trace of {len(trace.encodings)}")
    named = [name for name in trace.names() if name.rpartition(".")[2] == "weights"]
    found = [layer for name in named if (layer := _layer(trace, name, batch)) is not None]
    encoders = [layer for layer in found if layer.name.startswith("encoder.")]
    lengths = {layer.rows for layer in encoders or found}
    if not found or len(lengths) > 1:
        raise RegardError(
            "the trace holds no attention of a text to itself: record a run with Trace(maps=True), or "
            "Trace(maps=True, only=['*attn.weights', '*attn.v'])"
        )
    return encoders or found


def edges(start: int, stop: int, count: int) -> np.ndarray:
    """Return where `count` stretches, as equal as can be, begin and the last one ends."""
    return start + np.arange(count + 1) * (stop - start) // count


def pooled(weights: np.ndarray, row_edges: np.ndarray, col_edges: np.ndarray, how: Pool) -> np.ndarray:
    """Return the largest or the mean of what lies between edges, of all of ``T S``."""
    heights, widths = np.diff(row_edges), np.diff(col_edges)
    join: Any = np.maximum if how == "max" else np.add
    if len(heights) == len(weights) and len(widths) == weights.shape[1]:
        return weights
    dtype = weights.dtype if how == "max" else np.float64
    if len(set(heights)) == len(set(widths)) == 1:  # a sum over axes is faster than one between edges
        blocks = weights.reshape(len(heights), heights[0], len(widths), widths[0])
        found = join.reduce(join.reduce(blocks, axis=1, dtype=dtype), axis=-1)
    else:
        found = join.reduceat(join.reduceat(weights, row_edges[:-1], axis=0, dtype=dtype), col_edges[:-1], axis=1)
    if how == "mean":
        found = found / (heights[:, None] * widths)
    return np.asarray(found, dtype=weights.dtype)


def from_overview(
    overview: np.ndarray, extent: tuple[int, int], row_edges: np.ndarray, col_edges: np.ndarray, how: Pool
) -> np.ndarray:
    """Return cells between edges, made of those of an overview of a whole map, ``T S``, that they touch.

    The mean is that of the overview's cells, which are equal but for one token.
    """
    row_cells = _cells_of(row_edges, extent[0], overview.shape[0])
    col_cells = _cells_of(col_edges, extent[1], overview.shape[1])
    strips = np.stack([_joined(overview[a:b], how, 0) for a, b in row_cells])
    return np.stack([_joined(strips[:, a:b], how, 1) for a, b in col_cells], axis=1)


def _layer(trace: Trace, weights: str, batch: int) -> LayerMap | None:
    """Return one attention; None where queries and keys are not of one text."""
    name, axes = weights.rpartition(".")[0], trace.axes(weights)
    if axes not in ("T S", "H T S", "B H T S"):
        return None
    source: AttentionMap | np.ndarray = trace.map(name) if trace.has_map(name) else trace[weights]
    kv_heads = _kv_heads(trace, name, source)
    if axes == "B H T S":
        if not 0 <= batch < source.shape[0]:
            raise RegardError(f"there is no text {batch} in a batch of {source.shape[0]}")
        source = source.entry(batch) if isinstance(source, AttentionMap) else source[batch]
    *_, rows, cols = source.shape
    length = len(trace.encodings[batch]) if trace.encodings else rows
    if rows != cols or not 0 < length <= rows:
        return None
    if not isinstance(source, AttentionMap):
        source = source[..., :length, :length]
    if len(source.shape) == 2:
        heads: tuple[Any, ...] = (source,)
    elif isinstance(source, AttentionMap):
        heads = tuple(source.entry(head) for head in range(source.shape[0]))
    else:
        heads = tuple(source)
    return LayerMap(name, heads, kv_heads, length, length)


def _kv_heads(trace: Trace, name: str, source: AttentionMap | np.ndarray) -> int | None:
    """Return how many key/value heads there are, from what has as many; None where nothing has."""
    if isinstance(source, AttentionMap):
        shared = [source.k]
    else:
        steps = (f"{name}.{step}" if name else step for step in ("k", "v"))
        shared = [trace[step] for step in steps if step in trace]
    return (shared[0].shape[-3] if shared[0].ndim > 2 else 1) if shared else None


def _cells_of(asked: np.ndarray, length: int, count: int) -> np.ndarray:
    """Return the cells, of `count` over `length`, that each stretch between two edges touches: first, and behind."""
    known = edges(0, length, count)
    first = np.searchsorted(known, asked[:-1], side="right") - 1
    last = np.searchsorted(known, asked[1:], side="left")
    return np.stack([first, last], axis=1)


def _joined(part: np.ndarray, how: Pool, axis: int) -> np.ndarray:
    return np.asarray(part.max(axis=axis) if how == "max" else part.mean(axis=axis, dtype=np.float64))
