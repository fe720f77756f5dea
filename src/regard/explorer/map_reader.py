"""Tiles, rows and columns of attention maps, in every display mode, and thumbnails."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers, pooling
from regard.explorer.cache import Cache
from regard.explorer.display_modes import rollouts
from regard.explorer.query import query
from regard.explorer.run import Head, Run
from regard.explorer.run_store import RunStore
from regard.explorer.validation import check_range
from regard.functional.native.map import Pooling
from regard.metrics.layer_maps import CancelCheck, LayerMap
from regard.metrics.value_norms import output_projection, value_lengths
from regard.trace.overviews import bin_edges, equal_edges
from regard.trace.stored_map import StoredMap

DIFFERENCE: answers.Explanation = {
    "key": "difference",
    "title": "largest change of a weight",
    "unit": "",
    "description": "A − B of every head: blue where A is larger, brown where B is, on one scale for all heads.",
    "caveat": "The number is the largest change of a weight.",
    "source": "",
}
"""What the grid of A − B shows."""

_THUMBNAIL_SIZE = 32
_OVERVIEW_SIZE = 2048
# Regions up to this many weights are pooled from the weights; larger ones from the overview. For a map with more
# weights than that, so are regions above the second bound, if the cells of the overview are fine enough.
_MAX_POOLED = 1 << 25
_MAX_POOLED_OF_LARGE_MAP = 1 << 22


class HeadDifferences(TypedDict):
    """How every head differs between two runs."""

    largest: list[list[float]]
    thumbnails: str
    explanation: answers.Explanation


class MapReader:
    """Some runs, and queries of their maps; overviews and whole maps stay in a cache."""

    def __init__(self, runs: RunStore) -> None:
        self.store, self.cache = runs, Cache()

    def run(self, number: int) -> Run:
        """Return a run by its number."""
        return self.store[number]

    @query()
    def tile(
        self,
        run: int,
        layer: int,
        head: Head,
        *,
        mode: str = "raw",
        row0: int,
        row1: int,
        col0: int,
        col1: int,
        bin_size: int,
        pool: Pooling = "max",
        check: CancelCheck = lambda: None,
    ) -> np.ndarray:
        """Return a region of a map as float32, in bins of `bin_size` × `bin_size` tokens; with 1, exact weights.

        The last row and column of bins cover what is left. Each is the largest or the mean weight in it; for the mean
        of all heads, the mean of those. A region of more than 32 million weights, and in a map that large one of more
        than 4 million where that loses nothing, is pooled from an overview of the whole map in at most 2048 × 2048
        cells: a bin covers all cells that it touches.

        An error if there is no such run, layer, head, mode or region.
        """
        layer_map = self.store[run].layer_map(layer, head)
        rows, cols = (row0, row1), (col0, col1)
        check_range("rows", *rows, bin_size, layer_map.length)
        check_range("columns", *cols, bin_size, layer_map.length)
        pooling.check_pool(pool)
        row_edges, col_edges = bin_edges(*rows, bin_size), bin_edges(*cols, bin_size)
        whole = self._whole_map(run, layer, head, mode, check)
        if whole is not None:
            region = whole[slice(*rows), slice(*cols)]
            return _float32(pooling.pool_between(region, row_edges - rows[0], col_edges - cols[0], pool))
        total = np.zeros((len(row_edges) - 1, len(col_edges) - 1))
        heads = _heads(layer_map, head)
        for each in heads:
            check()
            total += self._pool_head(run, layer, each, row_edges, col_edges, pool, check)
        return _float32(total / len(heads))

    def whole(
        self,
        run: int,
        layer: int,
        head: Head,
        mode: str = "raw",
        bin_size: int = 1,
        check: CancelCheck = lambda: None,
    ) -> np.ndarray:
        """Return a whole map, float32 ``T S``, of a text short enough for one tile."""
        n = self.store[run].layer_map(layer, head).length
        return self.tile(run, layer, head, mode=mode, row0=0, row1=n, col0=0, col1=n, bin_size=bin_size, check=check)

    @query()
    def row(
        self, run: int, layer: int, head: Head, i: int, *, mode: str = "raw", check: CancelCheck = lambda: None
    ) -> np.ndarray:
        """Return the attention of token i to every token, float32 ``S``."""
        return self._line(run, layer, head, i, 0, mode, check)

    @query()
    def column(
        self, run: int, layer: int, head: Head, j: int, *, mode: str = "raw", check: CancelCheck = lambda: None
    ) -> np.ndarray:
        """Return the attention of every token to token j, float32 ``T``."""
        return self._line(run, layer, head, j, 1, mode, check)

    def _line(
        self, run: int, layer: int, head: Head, token: int, axis: int, mode: str, check: CancelCheck
    ) -> np.ndarray:
        layer_map = self.store[run].layer_map(layer, head, token)
        whole = self._whole_map(run, layer, head, mode, check)
        if whole is not None:
            return _float32(whole.take(token, axis))
        at = ([token], None) if axis == 0 else (None, [token])
        lines = [layer_map.tile(each, *at).take(0, axis) for each in _heads(layer_map, head)]
        return _float32(np.mean(lines, axis=0))

    def value_norms(self, run: int, layer: int) -> np.ndarray:
        """Return ‖v W_O‖ of each token in each head, float32 ``H S``; 0 for ablated heads."""
        recorded = self.store[run]
        layer_map = recorded.layer_map(layer)
        if "norms" not in recorded.modes:
            raise RegardError("value norms need the model of the run")
        projection = output_projection(recorded.model, layer_map)
        assert projection is not None  # there would be no such mode
        norms = value_lengths(projection, recorded.trace, layer_map, recorded.batch)
        norms[[head for at, head in recorded.ablated if at == layer]] = 0
        return _float32(norms)

    def rollout(self, run: int, check: CancelCheck = lambda: None) -> np.ndarray:
        """Return the rollout maps of all layers, ``L T T``."""
        recorded = self.store[run]
        return self.cache.get(("rollout", run), lambda: rollouts(recorded.layers, check, recorded.ablated))

    def thumbnail_size(self, run: int) -> int:
        """Return the number of cells along a side of a run's thumbnails."""
        return min(_THUMBNAIL_SIZE, self.store[run].length)

    @query(slow=True)
    def thumbnails(self, run: int, *, check: CancelCheck = lambda: None) -> bytes:
        """Return a thumbnail of every head, a byte for each cell, ``L H t t``; a run's ``thumbnail_size`` is t.

        A cell is the largest weight in it, for a long text in some of its rows: 255 · √(weight / largest of the head).
        """
        return self.cache.get(("thumbnails", run), lambda: self._thumbnails(run, check)).tobytes()

    @query(slow=True)
    def differences(self, runs: Sequence[int], *, check: CancelCheck = lambda: None) -> HeadDifferences:
        """Return how the weights of every head differ between two runs, the first minus the second.

        ``largest`` is the largest change of a weight in each head, ``L H``; for a long text in some of its rows.
        ``thumbnails`` has a signed byte for each cell, ``L H t t`` in base64, of the difference farthest from 0 in it:
        its sign times 127 · √(difference / largest of all heads). ``explanation`` is of the grid, as those of metrics.

        An error unless these are two runs with the same numbers of tokens, layers and heads.
        """
        if len(runs) != 2:
            raise RegardError(f"a difference is of two runs, not {len(runs)}")
        blocked_by = difference_blocked_by([self.store[run] for run in runs])
        if blocked_by is not None:
            raise RegardError(blocked_by)
        differences = self.cache.get(("differences", *runs), lambda: self._differences(runs[0], runs[1], check))
        largest = float(np.abs(differences).max())
        scaled = np.sign(differences) * np.round(127 * np.sqrt(np.abs(differences) / (largest or 1.0)))
        return {
            "largest": [[round(float(x), 6) for x in row] for row in np.abs(differences).max(axis=(-2, -1))],
            "thumbnails": base64.b64encode(scaled.astype(np.int8).tobytes()).decode("ascii"),
            "explanation": DIFFERENCE,
        }

    def _whole_map(self, run: int, layer: int, head: Head, mode: str, check: CancelCheck) -> np.ndarray | None:
        """Return the map of a mode that needs all of it; None for raw weights."""
        recorded = self.store[run]
        if mode not in recorded.modes:
            raise RegardError(f"this run has no display mode {mode!r}: choose from {', '.join(recorded.modes)}")
        if mode == "rollout":
            return np.asarray(self.rollout(run, check)[layer])
        if mode == "norms":

            def compute() -> np.ndarray:
                """Return the weights of a head, each times the value norm of its column; of heads their mean."""
                layer_map, norms = recorded.layers[layer], self.value_norms(run, layer)
                heads, total = _heads(layer_map, head), np.zeros((layer_map.length, layer_map.length))
                for each in heads:
                    check()
                    total += layer_map.tile(each, None, None) * norms[each]
                return _float32(total / len(heads))

            return self.cache.get(("norms", run, layer, head), compute)
        return None

    def _pool_head(
        self,
        run: int,
        layer: int,
        head: int,
        row_edges: np.ndarray,
        col_edges: np.ndarray,
        pool: Pooling,
        check: CancelCheck,
    ) -> np.ndarray:
        """Return a region of one head, pooled from its weights or from the overview of all of it."""
        layer_map = self.store[run].layers[layer]
        heights, widths = np.diff(row_edges), np.diff(col_edges)
        source = layer_map.heads[head]
        if isinstance(source, StoredMap) and (
            max(heights.max(), widths.max()) >= source.cells[0] or heights.sum() * widths.sum() > _MAX_POOLED
        ):
            return source.pooled_between(row_edges, col_edges, pool)
        n = layer_map.length
        side = min(_OVERVIEW_SIZE, n)
        finer = max(heights.max(), widths.max()) * side < n
        limit = _MAX_POOLED if finer or n * n <= _MAX_POOLED else _MAX_POOLED_OF_LARGE_MAP
        if heights.sum() * widths.sum() <= limit:
            return pooling.pooled_region(layer_map, head, row_edges, col_edges, pool, check)

        def compute() -> np.ndarray:
            return _float32(pooling.overview(layer_map, head, (side, side), pool, check))

        base = self.cache.get(("overview", run, layer, head, pool), compute)
        return pooling.pool_overview(base, n, row_edges, col_edges, pool)

    def _differences(self, number: int, other: int, check: CancelCheck) -> np.ndarray:
        """Return the differences farthest from 0 in each cell, ``L H t t``."""
        one, two = self.store[number], self.store[other]
        side, rows = self.thumbnail_size(number), one.sampled_rows()
        differences = np.zeros((len(one.layers), max(len(layer.heads) for layer in one.layers), side, side), np.float32)
        for index, pair in enumerate(zip(one.layers, two.layers, strict=True)):
            for head in range(len(pair[0].heads)):
                check()
                weights, others = (layer.tile(head, rows, None) for layer in pair)
                difference = weights - others
                edges = [equal_edges(0, n, side) for n in difference.shape]
                above, below = (pooling.pool_between(x, edges[0], edges[1], "max") for x in (difference, -difference))
                differences[index, head] = np.where(above >= below, above, -below)
        return differences

    def _thumbnails(self, number: int, check: CancelCheck) -> np.ndarray:
        run, side = self.store[number], self.thumbnail_size(number)
        rows = run.sampled_rows()
        thumbnails = np.zeros((len(run.layers), max(len(layer.heads) for layer in run.layers), side, side), np.uint8)
        for index, layer in enumerate(run.layers):
            for head in range(len(layer.heads)):
                check()
                if (block := run.block(index)) is not None:
                    weights = pooling.resized(layer.tile(head, np.array(block[0]), np.array(block[1])), side)
                elif len(rows) == layer.length or isinstance(layer.source, StoredMap):
                    weights = pooling.overview(layer, head, (side, side), "max", check)
                else:
                    strip = layer.tile(head, rows, None)
                    row_edges, col_edges = (equal_edges(0, n, side) for n in strip.shape)
                    weights = pooling.pool_between(strip, row_edges, col_edges, "max")
                largest = float(weights.max())
                thumbnails[index, head] = np.round(255 * np.sqrt(weights / (largest or 1.0))).astype(np.uint8)
        return thumbnails


def difference_blocked_by(runs: Sequence[Run]) -> str | None:
    """Return why A and B cannot be compared cell by cell; None if they can."""
    if len(runs) < 2:
        return "there is one run: give two texts"
    if runs[0].length != runs[1].length:
        return f"A has {runs[0].length} tokens and B {runs[1].length}: A and B cannot be compared cell by cell"
    sizes = [[(run.label(n), len(layer.heads)) for n, layer in enumerate(run.layers)] for run in runs]
    if sizes[0] != sizes[1]:
        return "A and B have different layers and heads"
    blocks = [[run.block(n) for n in range(len(run.layers))] for run in runs]
    return (
        None
        if blocks[0] == blocks[1]
        else "the texts of A and B differ in their numbers of tokens, as their targets do"
    )


def _heads(layer: LayerMap, head: Head) -> Sequence[int]:
    """Return the heads that are shown: one, or all for their mean."""
    return range(len(layer.heads)) if head == "mean" else [head]


def _float32(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, dtype=np.float32)
