"""Tiles, rows and columns of attention maps, in every display mode, and thumbnails."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers, pooling
from regard.explorer.cache import Cache
from regard.explorer.cell import mean_terms, projected_output, rollout_terms
from regard.explorer.display_modes import has_value_norms, heads_of, rollouts, value_norms_of, weights_times_norms
from regard.explorer.run import Run
from regard.explorer.run_store import RunStore
from regard.explorer.validation import check_index, check_range
from regard.functional.native.map import Pooling
from regard.metrics.layer_maps import CancelCheck, LayerMap
from regard.trace.overviews import bin_edges, equal_edges
from regard.trace.stored_map import StoredMap

Head: TypeAlias = int | Literal["mean"]

_THUMBNAIL_SIZE = 32
_OVERVIEW_SIZE = 2048
# Regions up to this many weights are pooled from the weights; larger ones from the overview. For a map with more
# weights than that, so are regions above the second bound, if the cells of the overview are fine enough.
_MAX_POOLED = 1 << 25
_MAX_POOLED_OF_LARGE_MAP = 1 << 22


class MapReader:
    """Read the maps of some runs; overviews and whole maps stay in a cache."""

    def __init__(self, runs: RunStore, cache: Cache) -> None:
        self._runs = runs
        self._cache = cache

    def layer(self, run: int, layer: int, head: Head) -> tuple[Run, LayerMap]:
        """Return a run and one of its layers, which has this head."""
        recorded = self._runs[run]
        check_index("layer", layer, len(recorded.layers))
        layer_map = recorded.layers[layer]
        if head != "mean":
            check_index("head", head, len(layer_map.heads))
        return recorded, layer_map

    def tile(
        self,
        run: int,
        layer: int,
        head: Head,
        mode: str,
        rows: tuple[int, int],
        cols: tuple[int, int],
        bin_size: int,
        pool: Pooling,
        check: CancelCheck,
    ) -> np.ndarray:
        """Return a region of a map; see `Exploration.tile`."""
        _, layer_map = self.layer(run, layer, head)
        check_range("rows", *rows, bin_size, layer_map.length)
        check_range("columns", *cols, bin_size, layer_map.length)
        pooling.check_pool(pool)
        row_edges, col_edges = bin_edges(*rows, bin_size), bin_edges(*cols, bin_size)
        whole = self._whole_map(run, layer, head, mode, check)
        if whole is not None:
            region = whole[slice(*rows), slice(*cols)]
            return _float32(pooling.pool_between(region, row_edges - rows[0], col_edges - cols[0], pool))
        total = np.zeros((len(row_edges) - 1, len(col_edges) - 1))
        heads = heads_of(layer_map, head)
        for each in heads:
            check()
            total += self._pool_head(run, layer, each, row_edges, col_edges, pool, check)
        return _float32(total / len(heads))

    def line(
        self, run: int, layer: int, head: Head, token: int, axis: int, mode: str, check: CancelCheck
    ) -> np.ndarray:
        """Return the row of a token, or with axis 1 its column."""
        _, layer_map = self.layer(run, layer, head)
        check_index("token", token, layer_map.length)
        whole = self._whole_map(run, layer, head, mode, check)
        if whole is not None:
            return _float32(whole.take(token, axis))
        at = ([token], None) if axis == 0 else (None, [token])
        lines = [layer_map.tile(each, *at).take(0, axis) for each in heads_of(layer_map, head)]
        return _float32(np.mean(lines, axis=0))

    def value_norms(self, run: int, layer: int) -> np.ndarray:
        """Return the value norms of each token in each head; see `Exploration.value_norms`."""
        recorded, layer_map = self.layer(run, layer, "mean")
        if "norms" not in recorded.modes:
            raise RegardError("value norms need the model of the run")
        norms = value_norms_of(recorded.model, recorded.trace, layer_map, recorded.batch)
        norms[[head for at, head in recorded.ablated if at == layer]] = 0
        return _float32(norms)

    def projected_output(self, run: int, layer: int, head: int, i: int) -> answers.Projected | None:
        """Return what a head writes at a token; None without a model or values. See `cell.projected_output`."""
        recorded, layer_map = self.layer(run, layer, head)
        if recorded.model is None or not has_value_norms(recorded.model, recorded.trace, [layer_map]):
            return None
        return projected_output(recorded, layer, head, i)

    def mean_terms(self, run: int, layer: int, i: int, j: int, mode: str) -> answers.MeanTerms:
        """Return what each head has at a cell of the mean of heads; of rollout, what it averages."""
        values = self._weights_of_heads(run, layer, [i])[:, 0, j]
        return mean_terms(values * self.value_norms(run, layer)[:, j] if mode == "norms" else values)

    def rollout_terms(self, run: int, layer: int, i: int, j: int) -> tuple[answers.MeanTerms, answers.RolloutTerms]:
        """Return what each head has at a cell, and the terms of rollout; see `cell.rollout_terms`."""
        recorded, layer_map = self.layer(run, layer, "mean")
        maps = self._cache.get(("rollout", run), lambda: rollouts(recorded.layers, lambda: None, recorded.ablated))
        before = maps[layer - 1] if layer else np.eye(layer_map.length)
        weights = self._weights_of_heads(run, layer, [i])[:, 0]
        weights[[head for at, head in recorded.ablated if at == layer]] = 0
        mixed = rollout_terms(weights.mean(axis=0), before, i, j)
        return mean_terms(weights[:, j]), mixed

    def thumbnail_size(self, run: int) -> int:
        """Return the number of cells along a side of a run's thumbnails."""
        return min(_THUMBNAIL_SIZE, self._runs[run].length)

    def thumbnails(self, run: int, check: CancelCheck) -> np.ndarray:
        """Return bytes, ``L H t t``; see `Exploration.thumbnails`."""
        return self._cache.get(("thumbnails", run), lambda: self._thumbnails(run, check))

    def differences(self, run: int, other: int, check: CancelCheck) -> np.ndarray:
        """Return the weights of one run minus those of another of the same shape, pooled, ``L H t t``.

        A cell is the difference farthest from 0 in it, for a long text in some of its rows.
        """
        return self._cache.get(("differences", run, other), lambda: self._differences(run, other, check))

    def _whole_map(self, run: int, layer: int, head: Head, mode: str, check: CancelCheck) -> np.ndarray | None:
        """Return the map of a mode that needs all of it; None for raw weights."""
        recorded = self._runs[run]
        if mode not in recorded.modes:
            raise RegardError(f"this run has no display mode {mode!r}: choose from {', '.join(recorded.modes)}")
        if mode == "rollout":
            maps = self._cache.get(("rollout", run), lambda: rollouts(recorded.layers, check, recorded.ablated))
            whole: np.ndarray = maps[layer]
            return whole
        if mode == "norms":

            def compute() -> np.ndarray:
                return weights_times_norms(recorded.layers[layer], head, self.value_norms(run, layer), check)

            return self._cache.get(("norms", run, layer, head), compute)
        return None

    def _weights_of_heads(self, run: int, layer: int, rows: list[int]) -> np.ndarray:
        """Return rows of all heads, ``H R S`` in float64."""
        layer_map = self._runs[run].layers[layer]
        return np.stack([layer_map.tile(head, rows, None) for head in range(len(layer_map.heads))]).astype(np.float64)

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
        layer_map = self._runs[run].layers[layer]
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

        base = self._cache.get(("overview", run, layer, head, pool), compute)
        return pooling.pool_overview(base, n, row_edges, col_edges, pool)

    def _differences(self, number: int, other: int, check: CancelCheck) -> np.ndarray:
        one, two = self._runs[number], self._runs[other]
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
        run, side = self._runs[number], self.thumbnail_size(number)
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


def _float32(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, dtype=np.float32)
