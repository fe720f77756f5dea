"""An attention map of one text on many workers: statistics and overviews of a map whose keys fit no machine."""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Unpack

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import TaskRef

import dask
from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.dask.blocks import AttentionBlocks, QueryBlock, task, with_arrays
from regard.functional.inputs import AttentionInputs, Options
from regard.functional.native.map import Pooling
from regard.functional.online_softmax import SoftmaxStats
from regard.trace.map_sources import source_of
from regard.trace.map_statistics import STORED, MapStatistic, MapStatistics, Parts
from regard.trace.mask_io import rules_to_arrays
from regard.trace.overviews import (
    JOINS,
    POOLINGS,
    PooledPair,
    bin_edges,
    cell_means,
    cells_inside,
    join_parts,
    overview_edges,
    pool_block,
    reduce_cells,
)  # fmt: skip
from regard.trace.stored_map import FORMAT, TILE_CELLS, import_zarr, overview_cells


class AttentionMap(MapStatistics):
    """The weights ``... H T S`` of a call of attention on dask arrays, of which only statistics are computed.

    Names and meaning are those of `regard.AttentionMap`; each result is a lazy dask array. The softmax statistics of
    the rows are computed in one pass over the blocks that the rules leave, and each result in one more; results that
    are computed together share the first.

    Parameters
    ----------
    q : dask array, ``... H T D``
    k : dask array, ``... G S D``
    **options
        Those of `regard.dask.attention` that say how scores become weights: `mask`, `bias`, `causal`, `query_offset`,
        `window`, `scale`, `softcap`, `sinks` and `key_lengths`.

    Raises
    ------
    RegardError
        The arguments do not fit; see `regard.dask.attention`.

    Examples
    --------
    >>> import dask.array as da
    >>> attention_map = AttentionMap(da.zeros((1, 3, 2), chunks=2), da.zeros((1, 3, 2), chunks=2), causal=True)
    >>> attention_map
    <regard.dask.AttentionMap 1 × 3 × 3 in 3 of 4 blocks>
    >>> attention_map.received().compute().round(3)
    array([[1.833, 0.833, 0.333]])
    """

    def __init__(self, q: Any, k: Any, **options: Unpack[Options]) -> None:
        self._q, self._k, self._options = q, k, options
        self._blocks = AttentionBlocks(q, k, **options)

    @property
    def shape(self) -> tuple[int, ...]:
        """``... H T S``."""
        return self._blocks.inputs.layout.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        pairs = self._blocks.pairs
        computed, all_blocks = sum(map(len, pairs.values())), len(pairs) * self._blocks.num_key_blocks
        return f"<regard.dask.AttentionMap {' × '.join(map(str, self.shape))} in {computed} of {all_blocks} blocks>"

    @property
    def lse(self) -> Any:
        """The natural log of Σ exp(score) of each row, ``... H T`` in float64; −inf for an empty row."""
        return self._of_row_stats("map-lse", _lse, np.float64)

    def statistic(self, statistic: MapStatistic) -> tuple[Any, ...]:
        """Return the dask arrays of a statistic, from a task for each pair of blocks and one that merges them."""
        graph, blocks, name = self._row_stats(), self._blocks, f"map-{statistic.name}"
        is_of_queries = statistic.axis == "queries"
        parts: dict[tuple[int, ...], list[Any]] = {}  # by the block of the result
        for block, cols in blocks.pairs.items():
            for col in cols:
                key = blocks.keys(f"{name}-part", block, col)
                graph[key] = self._pair_task(key, _parts, block, col, statistic=statistic, first_key=blocks.cols[col])
                parts.setdefault((*block.lead, block.row if is_of_queries else col), []).append(TaskRef(key))
        edges = blocks.rows if is_of_queries else blocks.cols
        like = statistic.finish(np, statistic.of_nothing(np, (), 0, self._dtype))
        dtypes = [self._dtype if x.dtype.kind == "f" else x.dtype for x in like]
        for index in itertools.product(*(range(len(axis) - 1) for axis in (*blocks.lead, edges))):
            shape = blocks.lead_sizes(index[:-1]), edges[index[-1] + 1] - edges[index[-1]]
            merged = (f"{name}-{blocks.token}", *index)
            graph[merged] = task(merged, _merged, statistic, *shape, dtypes, *parts.get(index, []))
            for number, x in enumerate(like):
                key = (f"{name}-{number}-{blocks.token}", *index, *(0 for _ in x.shape[1:]))
                graph[key] = task(key, _item, TaskRef(merged), number)
        return tuple(
            blocks.collection(
                f"{name}-{number}",
                graph,
                blocks.chunks(np.diff(edges).tolist(), *((size,) for size in x.shape[1:]), rows=False),
                dtypes[number],
            )
            for number, x in enumerate(like)
        )

    def pooled(self, size: tuple[int, int], how: Pooling = "max") -> Any:
        """Return an overview of ``... H P Q`` cells, each the largest or the mean of the weights that it covers.

        Parameters
        ----------
        size : (P, Q)
            An axis of the map that is shorter keeps its own length.
        how : {"max", "mean"}
            The maximum shows single large weights; the mean keeps the sum.

        Returns
        -------
        dask array
            In one chunk for all cells of a head.
        """
        axes = overview_edges(self.shape, size, how)
        graph, blocks = self._row_stats(), self._blocks
        name = f"map-pooled-{how}-{len(axes[0]) - 1}-{len(axes[1]) - 1}"
        parts: dict[Any, list[Any]] = {}
        for block, cols in blocks.pairs.items():
            for col in cols:
                spans = (block.rows, blocks.col_span(col))
                inside = [cells_inside(edges, span) for edges, span in zip(axes, spans, strict=True)]
                key = blocks.keys(f"{name}-part", block, col)
                edges = tuple(cell_edges for _, cell_edges in inside)
                graph[key] = self._pair_task(key, _pooled, block, col, edges=edges, how=how)
                parts.setdefault(block.lead, []).append((inside[0][0], inside[1][0], key))
        cell_counts = tuple(len(edges) - 1 for edges in axes)
        for lead in itertools.product(*(range(len(edges) - 1) for edges in blocks.lead)):
            key = (f"{name}-{blocks.token}", *lead, 0, 0)
            lead_parts = parts.get(lead, [])
            at = [(row, col) for row, col, _ in lead_parts]
            shape = (*blocks.lead_sizes(lead), *cell_counts)
            sizes = [np.diff(edges) for edges in axes] if how == "mean" else None
            graph[key] = task(key, _joined, shape, at, sizes, self._dtype, *(TaskRef(part) for *_, part in lead_parts))
        chunks = blocks.chunks(*((count,) for count in cell_counts), rows=False)
        return blocks.collection(name, graph, chunks, self._dtype)

    def to_zarr(self, path: str | os.PathLike[str], *, top: int = 8) -> None:
        """Compute and write the map to a Zarr group, which ``regard explore PATH`` browses.

        Queries, keys, rules and row statistics, from which any part of the map is computed when it is read; overviews
        at every scale, of which cells without weight take no space; entropy, received and the largest weights.

        Parameters
        ----------
        path : path or URL
            That all workers reach. A folder that exists is not overwritten.
        top : int
            How many of the largest weights of each row are kept.

        Raises
        ------
        RegardError
            zarr is not installed; the path exists; the map is empty; or a mask or bias is a function, of a class of
            your own, or a dask array, which cannot be written: give a rule of regard or a NumPy array.
        """
        _MapWriter(self, os.fspath(path), whole_number("top", top, 1)).write()

    # Tasks

    @property
    def _dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self._blocks.inputs.dtype)
        return dtype

    def _row_stats(self) -> dict[Any, Any]:
        """Return the tasks of the softmax statistics of all rows, ``map-stats`` for each block of queries."""
        graph, blocks = {}, self._blocks
        for block, cols in blocks.pairs.items():
            parts = []
            for at, col in enumerate(cols):
                key = blocks.keys("map-stats-part", block, col)
                inputs = blocks.pair_inputs(block, col, sinks=at == 0)
                graph[key] = task(key, _stats, inputs, **blocks.array_refs(block, col))
                parts.append(TaskRef(key))
            key = blocks.keys("map-stats", block)
            shape = (*blocks.lead_sizes(block.lead), block.rows.stop - block.rows.start, 1)
            empty = blocks.query_inputs(block).sinks
            graph[key] = task(key, _merged_stats, *parts) if parts else task(key, _empty_stats, shape, empty)
        return graph

    def _pair_task(self, key: Any, function: Any, block: QueryBlock, col: int, **options: Any) -> Any:
        """Return a task of the inputs and the row statistics of a pair of blocks."""
        blocks = self._blocks
        inputs, stats = blocks.pair_inputs(block, col, sinks=False), TaskRef(blocks.keys("map-stats", block))
        return task(key, _call, function, inputs, stats, options, **blocks.array_refs(block, col))

    def _of_row_stats(self, name: str, function: Callable[[SoftmaxStats], np.ndarray], dtype: Any) -> Any:
        """Return the dask array ``... H T`` of a function of the softmax statistics of a block of queries."""
        graph, blocks = self._row_stats(), self._blocks
        for block in blocks.query_blocks:
            key = blocks.keys(name, block)
            graph[key] = task(key, function, TaskRef(blocks.keys("map-stats", block)))
        return blocks.collection(name, graph, blocks.chunks(), np.dtype(dtype))


class _MapWriter:
    """Writes a map: its arrays, and overviews as a tree of tiles, of which each task writes one."""

    def __init__(self, attention_map: AttentionMap, path: str, top: int) -> None:
        import_zarr()
        blocks = attention_map._blocks
        if 0 in attention_map.shape:
            raise RegardError(f"a map of {attention_map.shape} has nothing to write")
        if dropped := [name for name in ("mask", "bias") if name in blocks.chunked]:
            raise RegardError(f"{dropped[0]} is a dask array, which is not written: give a rule or a NumPy array")
        if "://" not in path and Path(path).exists():
            raise RegardError(f"{path} exists: give another name, or remove it")
        self.path, self.top = path, top
        self.rules, self.fields = rules_to_arrays(blocks.inputs)
        self.dtype = _stored_dtype(blocks.inputs.dtype)
        self.fields["dtype"] = self.dtype.name
        *lead, queries, keys = attention_map.shape
        share = sum(map(len, blocks.pairs.values())) / max(1, len(blocks.pairs) * blocks.num_key_blocks)
        self.cells = overview_cells(queries, keys, math.prod(lead), share)
        side = TILE_CELLS * self.cells[0]
        q, k = (x.rechunk({x.ndim - 2: side}) for x in (attention_map._q, attention_map._k))
        self.map = AttentionMap(q, k, **attention_map._options)
        self.blocks = self.map._blocks

    def write(self) -> None:
        """Write everything; the attribute that makes it a map comes last."""
        zarr = import_zarr()
        try:
            group = zarr.open_group(self.path, mode="w-", zarr_format=3)
        except OSError as error:
            raise RegardError(f"{self.path} cannot be written: {error.strerror or error}") from None
        targets, sources = self._create(group)
        stored = da.store(sources, targets, lock=False, compute=False, return_stored=False)
        dask.compute(stored, self._overviews())
        arrays = (each for each in group.members(max_depth=None) if isinstance(each[1], zarr.Array))
        written = {name: array.nchunks_initialized for name, array in arrays}  # chunks of zeros alone are not
        group.attrs["regard"] = {"format": FORMAT, **self.fields, "cells": self.cells, "chunks": written}

    def _create(self, group: Any) -> tuple[list[Any], list[Any]]:
        """Create all arrays, write those of the rules, and return those to be filled with what goes there."""
        side, attention_map = TILE_CELLS * self.cells[0], self.map
        dtype = self.dtype
        row_max_dtype = self.blocks.inputs.compute_dtype
        row_stats = [
            attention_map._of_row_stats(
                f"map-{name}", functools.partial(_stats_field, name=name, dtype=row_max_dtype), stored
            )
            for name, stored in zip(_STATS, (row_max_dtype, np.float64), strict=True)
        ]
        top = attention_map.top(self.top)
        arrays = {
            "q": attention_map._q.astype(dtype), "k": attention_map._k.astype(dtype),
            **dict(zip(_STATS, row_stats, strict=True)),
            **{each.name: attention_map.statistic(each)[0] for each in STORED},
            "top_weights": top.weights, "top_keys": top.keys,
        }  # fmt: skip
        after = {"q": 2, "k": 2, "top_weights": 2, "top_keys": 2}
        targets = []
        for name, x in arrays.items():
            last = (min(side, x.shape[-after.get(name, 1)]), *x.shape[x.ndim - after.get(name, 1) + 1 :])
            chunks = (*(1 for _ in range(x.ndim - len(last))), *last)
            missing = np.nan if x.dtype.kind == "f" else -1  # no chunk of a map is this, so that none is left out
            targets.append(group.create_array(name, shape=x.shape, chunks=chunks, dtype=x.dtype, fill_value=missing))
        *lead, queries, keys = attention_map.shape
        for how, cell in itertools.product(POOLINGS, self.cells):
            shape = (*lead, -(-queries // cell), -(-keys // cell))
            chunks = (*(1 for _ in lead), TILE_CELLS, TILE_CELLS)
            group.create_array(f"overview/{how}/{cell}", shape=shape, chunks=chunks, dtype=np.float32)
        for name, rule in self.rules.items():
            group.create_array(f"rules/{name}", data=rule)
        return targets, list(arrays.values())

    def _overviews(self) -> Any:
        """Return the delayed count of tiles, whose tasks write them."""
        blocks, graph = self.blocks, self.map._row_stats()
        roots: list[Any] = []
        for lead in itertools.product(*(range(len(edges) - 1) for edges in blocks.lead)):
            tiles = self._finest_tiles(graph, lead)
            for cell in self.cells[1:]:
                tiles = self._coarser_tiles(graph, lead, tiles, cell)
            roots += tiles.values()
        name = f"map-overviews-{tokenize(blocks.token, self.path)}"
        graph[name] = task(name, _count, *map(TaskRef, roots))
        return Delayed(name, HighLevelGraph.from_collections(name, graph, list(blocks.chunked.values())))

    def _finest_tiles(self, graph: dict[Any, Any], lead: tuple[int, ...]) -> dict[tuple[int, int], Any]:
        blocks, cell, tiles = self.blocks, self.cells[0], {}
        name = f"map-tile-{cell}-{tokenize(self.path)}"
        for block, cols in blocks.pairs.items():
            for col in cols if block.lead == lead else ():
                key = blocks.keys(name, block, col)
                write = functools.partial(_write, self.path, cell, self._region(block.lead, block.row, col))
                lengths = (block.rows.stop - block.rows.start, blocks.cols[col + 1] - blocks.cols[col])
                edges = tuple(bin_edges(0, length, cell) for length in lengths)
                graph[key] = self.map._pair_task(key, _tile, block, col, edges=edges, write=write)
                tiles[block.row, col] = key
        return tiles

    def _coarser_tiles(
        self, graph: dict[Any, Any], lead: tuple[int, ...], tiles: dict[tuple[int, int], Any], cell: int
    ) -> dict[tuple[int, int], Any]:
        """Add the tiles of cells of twice the side, of up to four tiles each; return their keys by place."""
        children: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for row, col in tiles:
            children.setdefault((row // 2, col // 2), []).append((row, col))
        parents = {}
        side = TILE_CELLS * cell
        for (row, col), places in children.items():
            key = (f"map-tile-{cell}-{tokenize(self.path)}-{self.blocks.token}", *lead, row, col)
            write = functools.partial(_write, self.path, cell, self._region(lead, row, col))
            sizes = [
                np.diff(bin_edges(0, length, cell))
                for length in (
                    min(side, size - side * at) for size, at in zip(self.map.shape[-2:], (row, col), strict=True)
                )
            ]
            at = [(TILE_CELLS // 2 * (r % 2), TILE_CELLS // 2 * (c % 2)) for r, c in places]
            graph[key] = task(key, _parent_tile, sizes, at, write, *(TaskRef(tiles[place]) for place in places))
            parents[row, col] = key
        return parents

    def _region(self, lead: tuple[int, ...], row: int, col: int) -> tuple[slice, ...]:
        spans = (slice(edges[i], edges[i + 1]) for edges, i in zip(self.blocks.lead, lead, strict=True))
        return (*spans, *(slice(TILE_CELLS * at, TILE_CELLS * (at + 1)) for at in (row, col)))


_STATS = SoftmaxStats._fields


def _stored_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype in which vectors are stored; an error if Zarr has none like it."""
    stored: np.dtype[Any] = np.dtype(dtype)
    if stored.kind != "f":
        raise RegardError(f"a map is written from float16, float32 or float64, not from {stored}: convert q and k")
    return stored


# What tasks do


def _call(function: Any, p: AttentionInputs, stats: SoftmaxStats, options: dict[str, Any], **arrays: Any) -> Any:
    return function(_ready(p, arrays), stats, **options)


def _ready(p: AttentionInputs, arrays: dict[str, np.ndarray]) -> AttentionInputs:
    return with_arrays(p, arrays).to_compute_dtype()


def _parts(p: AttentionInputs, whole: SoftmaxStats, *, statistic: MapStatistic, first_key: int) -> Parts:
    return tuple(map(np.asarray, source_of(p, whole=whole, first_key=first_key).parts(statistic)))


def _merged(
    statistic: MapStatistic, lead: tuple[int, ...], count: int, dtypes: Sequence[Any], *parts: Parts
) -> list[np.ndarray]:
    """Return the arrays of a statistic of a block of queries or keys."""
    merge = functools.partial(statistic.merge, np)
    whole = functools.reduce(merge, parts) if parts else statistic.of_nothing(np, lead, count, np.float64)
    finished = zip(statistic.finish(np, whole), dtypes, strict=True)
    return [np.asarray(x).astype(dtype, copy=False) for x, dtype in finished]


def _stats(p: AttentionInputs, **arrays: np.ndarray) -> SoftmaxStats:
    return source_of(_ready(p, arrays)).stats


def _merged_stats(*parts: SoftmaxStats) -> SoftmaxStats:
    return functools.reduce(lambda one, other: one.merged(other, np), parts)


def _empty_stats(shape: tuple[int, ...], sinks: np.ndarray | None) -> SoftmaxStats:
    row_max = np.full(shape, -np.inf) if sinks is None else np.array(np.broadcast_to(sinks, shape))
    return SoftmaxStats(row_max, (row_max > -np.inf).astype(np.float64))


def _stats_field(stats: SoftmaxStats, name: str, dtype: Any) -> np.ndarray:
    """Return the maximum of each row, rounded to a dtype, or the sum that goes with the rounded maximum."""
    row_max = stats.row_max.astype(dtype)
    return np.asarray({"row_max": row_max, "row_sum": stats.sum_from(row_max, np)}[name][..., 0])


def _lse(stats: SoftmaxStats) -> np.ndarray:
    return np.asarray(stats.lse(np, None))


def _item(arrays: Sequence[np.ndarray], number: int) -> np.ndarray:
    return arrays[number]


def _pooled(
    p: AttentionInputs, stats: SoftmaxStats, *, edges: tuple[np.ndarray, np.ndarray], how: Pooling
) -> np.ndarray:
    return pool_block(p, stats, *edges)[POOLINGS.index(how)]


def _joined(
    shape: tuple[int, ...], at: list[tuple[int, int]], sizes: list[np.ndarray] | None, dtype: Any, *parts: np.ndarray
) -> np.ndarray:
    """Return an overview of parts of it, whose cells may overlap by one: maxima, or means of cells of these sizes."""
    overview = join_parts(shape, at, parts, np.maximum if sizes is None else np.add)
    return np.asarray(overview if sizes is None else cell_means(overview, *sizes)).astype(dtype)


Write = Callable[[PooledPair, Sequence[np.ndarray]], None]


def _tile(
    p: AttentionInputs, stats: SoftmaxStats, *, edges: tuple[np.ndarray, np.ndarray], write: Write
) -> list[np.ndarray]:
    return _written(pool_block(p, stats, *edges), [np.diff(axis) for axis in edges], write)


def _parent_tile(
    sizes: list[np.ndarray], at: list[tuple[int, int]], write: Write, *children: list[np.ndarray]
) -> list[np.ndarray]:
    shape = (*children[0][0].shape[:-2], *map(len, sizes))
    largest, total = (
        join_parts(shape, at, x, join) for x, join in zip(zip(*children, strict=True), JOINS, strict=True)
    )
    return _written((largest, total), sizes, write)


def _written(tile: PooledPair, sizes: Sequence[np.ndarray], write: Write) -> list[np.ndarray]:
    """Write a tile of cells of these sizes, and return those of twice the side; the last of what is left."""
    write(tile, sizes)
    halved = list(tile)
    for (i, join), axis in itertools.product(enumerate(JOINS), (-2, -1)):
        halved[i] = reduce_cells(halved[i], np.arange(0, halved[i].shape[axis], 2), axis, join)
    return halved


def _write(path: str, cell: int, region: tuple[slice, ...], tile: PooledPair, sizes: Sequence[np.ndarray]) -> None:
    group = import_zarr().open_group(path, mode="r+", zarr_format=3)
    for how, values in zip(POOLINGS, (tile[0], cell_means(tile[1], *sizes)), strict=True):
        target = group[f"overview/{how}/{cell}"]
        ends = zip(region[-2:], target.shape[-2:], strict=True)
        target[(*region[:-2], *(slice(span.start, min(span.stop, end)) for span, end in ends))] = values


def _count(*tiles: Any) -> int:
    return len(tiles)
