"""A call of attention on dask arrays, cut into blocks: which queries meet which keys, and with which rules."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Unpack

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import Task, TaskRef

from regard._utils.errors import RegardError
from regard.functional.biases.base import DenseBias
from regard.functional.heads import count_heads
from regard.functional.inputs import AttentionInputs, Options, validate_inputs
from regard.functional.masks.base import DenseMask, LogicalAnd
from regard.functional.part_inputs import nonempty_spans, slice_inputs
from regard.functional.scores.layout import broadcasts
from regard.functional.scores.part import ScorePart

Edges = tuple[int, ...]
"""Where the chunks of an axis begin, and the end of the last."""


@dataclass(frozen=True, eq=False)
class QueryBlock:
    """One block of queries, of some batch entries and heads."""

    lead: tuple[int, ...]  # number of the block on each axis of the result before T
    row: int  # number of the block of queries
    entries: tuple[slice, ...]  # batch entries and heads of the scores
    rows: slice


class AttentionBlocks:
    """The blocks of a call, with chunks that fit each other.

    Parameters
    ----------
    q, k, v : dask array
        As those of `attention`; v may be None.
    **options
        Those of `attention`. A mask or bias may be a dask array.

    Raises
    ------
    RegardError
        The arguments do not fit, or one has no meaning for blocks: `dropout`, or arrays of unknown chunks.
    """

    def __init__(self, q: Any, k: Any, v: Any = None, **options: Unpack[Options]) -> None:
        _check_dropped(options)
        qkv = {"q": q, "k": k} if v is None else {"q": q, "k": k, "v": v}
        for name, x in qkv.items():
            _check_array(name, x)
        self._arrays: dict[str, Any] = {name: options[name] for name in ("mask", "bias") if _is_dask(options.get(name))}
        self.token = tokenize(qkv, sorted(options.items(), key=lambda item: item[0]))
        rules: Options = {**options, **dict.fromkeys(self._arrays)}  # type: ignore[typeddict-item]
        self.inputs: AttentionInputs = validate_inputs(**{name: _shape_only(x) for name, x in qkv.items()}, **rules)
        for name, x in self._arrays.items():
            _check_scores_array(name, x, self.inputs.layout.shape)
        self._align(qkv)

    @property
    def lead_shape(self) -> tuple[int, ...]:
        """The axes of the result before ``T``; those of v included."""
        p = self.inputs
        return p.layout.shape[:-2] if p.v is None else p.context_shape[:-2]

    @property
    def num_key_blocks(self) -> int:
        """The number of blocks of keys."""
        return len(self.cols) - 1

    @cached_property
    def query_blocks(self) -> list[QueryBlock]:
        """All blocks of queries, those of the same batch entries and heads together."""
        counts = [range(len(edges) - 1) for edges in (*self.lead, self.rows)]
        return [self._query_block(index[:-1], index[-1]) for index in itertools.product(*counts)]

    @cached_property
    def pairs(self) -> dict[QueryBlock, list[int]]:
        """For each block of queries the blocks of keys of which the rules leave something, in order."""
        return {
            block: list(nonempty_spans(self.inputs, block.entries, block.rows, self.cols))
            for block in self.query_blocks
        }

    def pair_inputs(self, block: QueryBlock, col: int, *, sinks: bool) -> AttentionInputs:
        """Return the inputs of a pair of blocks without their arrays; sinks count once for each query."""
        p = slice_inputs(self.inputs, ScorePart(self.inputs.layout, block.entries, block.rows, self.col_span(col)))
        return p if sinks else p.replace(sinks=None)

    def query_inputs(self, block: QueryBlock) -> AttentionInputs:
        """Return the inputs of a block of queries without any keys."""
        return slice_inputs(
            self.inputs.replace(mask=None, bias=None),
            ScorePart(self.inputs.layout, block.entries, block.rows, slice(0, 0)),
        )

    def lead_sizes(self, lead: tuple[int, ...]) -> tuple[int, ...]:
        """Return how many batch entries and heads a block has."""
        return tuple(edges[i + 1] - edges[i] for edges, i in zip(self.lead, lead, strict=True))

    def col_span(self, col: int) -> slice:
        """Return the keys of a block."""
        return slice(self.cols[col], self.cols[col + 1])

    def array_refs(self, block: QueryBlock, col: int) -> dict[str, TaskRef]:
        """Return the keys of the chunks that a pair of blocks needs: q, k, v, and a mask or bias that is an array."""
        at = {"q": (block.row, 0), "k": (col, 0), "v": (col, 0), "mask": (block.row, col), "bias": (block.row, col)}
        return {
            name: TaskRef((x.name, *self._chunk_index(name, block.lead), *self._cell(x, at[name])))
            for name, x in self.chunked.items()
        }

    def keys(self, name: str, block: QueryBlock, *more: int) -> tuple[Any, ...]:
        """Return the key of a task for a block of queries."""
        return (f"{name}-{self.token}", *block.lead, block.row, *more)

    def chunks(self, *last: Sequence[int], rows: bool = True) -> tuple[tuple[int, ...], ...]:
        """Return the chunks of a result with the blocks' batch entries and heads, queries if asked, and more axes."""
        edges = (*self.lead, self.rows) if rows else self.lead
        return (*(tuple(np.diff(axis).tolist()) for axis in edges), *map(tuple, last))

    def collection(self, name: str, tasks: dict[Any, Any], chunks: Any, dtype: Any, *needed: Any) -> Any:
        """Return the dask array of the tasks ``name-token``, beside which `needed` arrays are in the graph."""
        name = f"{name}-{self.token}"
        graph = HighLevelGraph.from_collections(name, tasks, dependencies=[*self.chunked.values(), *needed])
        return da.Array(graph, name, chunks, dtype=dtype)

    def _align(self, qkv: dict[str, Any]) -> None:
        """Rechunk the arrays so that blocks of queries and keys are chunks."""
        shape, arrays = self.inputs.layout.shape, {**qkv, **self._arrays}
        # heads of each array, counted in those of the queries: a chunk is whole groups, or part of one
        heads = {name: count_heads(x) for name, x in qkv.items()}
        total = max(heads["q"], self.lead_shape[-1] if self.lead_shape else 1)
        cuts = {0, total}
        for name, x in qkv.items():
            if x.ndim > 2:
                cuts |= {edge * total // max(1, heads[name]) for edge in _edges(x.chunks[-3])}
        repeats = [total // count for count in heads.values() if 1 < count < total]
        cuts |= {edge for cut in list(cuts) for n in repeats for edge in (cut // n * n, -(-cut // n) * n)}
        self.rows, self.cols = _edges(qkv["q"].chunks[-2]), _edges(qkv["k"].chunks[-2])
        batch = [self._batch_edges(arrays, axis) for axis in range(len(self.lead_shape) - 1, 0, -1)]
        self.lead: list[Edges] = [*batch, tuple(sorted(cuts))] if self.lead_shape else []
        self._total_heads = total
        self.chunked = {
            name: x.rechunk({**self._lead_chunks(name, x), **self._last_chunks(name, x)}) for name, x in arrays.items()
        }
        assert len(shape) == 2 or self.lead

    def _batch_edges(self, arrays: dict[str, Any], axis: int) -> Edges:
        """Return the edges on a batch axis, counted from the heads, of all arrays that have it."""
        size = self.lead_shape[-1 - axis]
        cuts = {0, size}
        for x in arrays.values():
            if x.ndim > 2 + axis and x.shape[-3 - axis] == size:
                cuts |= set(_edges(x.chunks[-3 - axis]))
        return tuple(sorted(cuts))

    def _lead_chunks(self, name: str, x: Any) -> dict[int, tuple[int, ...]]:
        chunks = {}
        for axis in range(x.ndim - 2):
            edges, size = self.lead[axis - x.ndim + 2], x.shape[axis]
            if axis == x.ndim - 3 and name in "qkv":
                repeats = self._total_heads // max(1, size)
                edges = tuple(sorted({cut for edge in edges for cut in (edge // repeats, -(-edge // repeats))}))
            chunks[axis] = (size,) if size <= 1 else tuple(np.diff(edges).tolist())
        return chunks

    def _last_chunks(self, name: str, x: Any) -> dict[int, tuple[int, ...]]:
        rows, cols = (tuple(np.diff(edges).tolist()) for edges in (self.rows, self.cols))
        if name in "qkv":
            return {x.ndim - 2: rows if name == "q" else cols, x.ndim - 1: (x.shape[-1],)}
        pairs = zip((-2, -1), (rows, cols), strict=True)
        return {x.ndim + axis: (1,) if x.shape[axis] == 1 else sizes for axis, sizes in pairs if x.ndim >= -axis}

    def _chunk_index(self, name: str, lead: tuple[int, ...]) -> list[int]:
        """Return the numbers of an array's chunk on the axes before the last two."""
        x, index = self.chunked[name], []
        for axis in range(x.ndim - 2):
            at = axis - x.ndim + 2
            first = self.lead[at][lead[at]]
            if x.shape[axis] == 1:
                index.append(0)
                continue
            if axis == x.ndim - 3 and name in "qkv":
                first = first * x.shape[axis] // self._total_heads
            index.append(_edges(x.chunks[axis]).index(first))
        return index

    @staticmethod
    def _cell(x: Any, at: tuple[int, int]) -> list[int]:
        pairs = list(zip(x.shape[-2:], at[2 - min(2, x.ndim) :], strict=True))
        return [0 if size == 1 else number for size, number in pairs]

    def _query_block(self, lead: tuple[int, ...], row: int) -> QueryBlock:
        spans = [slice(edges[i], edges[i + 1]) for edges, i in zip(self.lead, lead, strict=True)]
        sizes = self.inputs.layout.shape[:-2]
        spans = spans[len(spans) - len(sizes) :]  # v may have more axes than the scores
        entries = tuple(slice(0, 1) if size == 1 else span for size, span in zip(sizes, spans, strict=True))
        return QueryBlock(lead, row, entries, slice(self.rows[row], self.rows[row + 1]))


def with_arrays(p: AttentionInputs, arrays: dict[str, np.ndarray]) -> AttentionInputs:
    """Return the inputs of a pair of blocks with its chunks."""
    chunks = dict(arrays)
    if "mask" in chunks:
        dense = DenseMask(np.asarray(chunks.pop("mask")))
        p = p.replace(mask=dense if p.mask is None else LogicalAnd(dense, p.mask))
    if "bias" in chunks:
        p = p.replace(bias=DenseBias(np.asarray(chunks.pop("bias"))))
    return p.replace(**{name: np.asarray(x) for name, x in chunks.items()})


def task(key: Any, function: Any, *args: Any, **kwargs: Any) -> Task:
    """Return a task; arguments that are references to other tasks are given their results."""
    return Task(key, function, *args, **kwargs)


def _check_dropped(options: Options) -> None:
    if options.get("dropout", 0.0) or options.get("rng") is not None:
        raise RegardError(
            "regard.dask has no dropout: the chunks would decide which weights are dropped; leave out dropout and rng"
        )


def _check_array(name: str, x: Any) -> None:
    if not _is_dask(x):
        raise RegardError(
            f"{name} must be a dask array, got {type(x).__name__}: dask.array.from_array({name}, chunks=...)"
        )
    if any(np.isnan(size) for size in x.shape):
        raise RegardError(f"{name} has chunks of unknown size: call {name}.compute_chunk_sizes() first")


def _is_dask(x: Any) -> bool:
    return isinstance(x, da.Array)


def _shape_only(x: Any) -> np.ndarray:
    """Return an array of the shape and dtype of a dask array, in the memory of one number."""
    return np.broadcast_to(np.zeros((), x.dtype), x.shape)


def _check_scores_array(name: str, x: Any, shape: tuple[int, ...]) -> None:
    kind = "boolean" if name == "mask" else "floating"
    if x.dtype.kind != kind[0]:
        raise RegardError(f"{name} must be {kind}, got {x.dtype}")
    if any(np.isnan(size) for size in x.shape):
        raise RegardError(f"{name} has chunks of unknown size: call {name}.compute_chunk_sizes() first")
    if not broadcasts(x.shape, shape):
        raise RegardError(f"{name} {x.shape} does not broadcast to the scores {shape} (... heads, queries, keys)")


def _edges(sizes: Sequence[int]) -> Edges:
    return (0, *np.cumsum(sizes).tolist())
