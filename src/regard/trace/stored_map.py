"""An attention map in a Zarr group: queries, keys, rules and row statistics, with overviews at every scale.

Of the group, format 3, the attribute ``regard`` holds the format, the shape, the dtype, the rules, the sizes of the
cells of the overviews and how many chunks each array has; it is written last. Its arrays are

=====================================  ========================================  ==============================
``q``, ``k``                           ``... H T D``, ``... G S D``
``row_max``, ``row_sum``               ``... H T``                               of the softmax of each row
``overview/max/32``, ``…/mean/32``, …  ``... H P Q``                             of cells of 32 × 32 tokens, and so on
``entropy``, ``received``              ``... H T``, ``... H S``
``top_weights``, ``top_keys``          ``... H T k``
``rules/…``                                                                      arrays of masks and biases
=====================================  ========================================  ==============================
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.packages import needed
from regard._utils.validation import truncate, whole_number
from regard.functional.native.map import Pooling
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.part_inputs import nonempty_spans, slice_inputs
from regard.functional.scores.layout import Index
from regard.functional.scores.part import ScorePart
from regard.functional.scores.stages import Stage
from regard.functional.scores.tile import as_index, attention_tile, check_stage
from regard.trace.attention_map import AttentionMap, ScoreTerms
from regard.trace.map_statistics import STORED, MapStatistic, Parts, Top
from regard.trace.mask_io import inputs_from_arrays
from regard.trace.overviews import POOLINGS, bin_edges, check_pooling, overview_edges

FORMAT = "regard.map/2"
TILE_CELLS = 256
"""Cells along a side of a chunk of an overview: a tile of the explorer."""

FINEST_CELL = 32
"""Tokens along a side of a cell of the finest overview; finer cells are computed from queries and keys."""

MAX_CELLS = 2**26
"""For an overview that is written, over all heads; of a map without a mask the finest cells are larger."""

_BLOCK_SCORES = 2**24  # computed at a time
_MAX_CHUNK_BYTES = 2**28
_MAX_CHUNKS = 2**22  # of an array, which are counted when a map is opened
_CODECS = ("BytesCodec", "ZstdCodec")  # whose results have a size that is known before
_MAX_TOKENS = 2**29
_MAX_CHECKED_KEYS = 2**17  # of a map whose rows are checked when it is opened, which reads the keys of a head
_ROUNDING = 0.01


def overview_cells(queries: int, keys: int, heads: int, nonempty: float = 1.0) -> list[int]:
    """Return the sides of the cells of the overviews, in tokens: powers of two, until one tile shows all.

    `nonempty` is the share of the map that the mask leaves: cells of nothing are not written.
    """
    cell = FINEST_CELL
    while heads * nonempty * -(-queries // cell) * -(-keys // cell) > MAX_CELLS:
        cell *= 2
    cells = [cell]
    while max(queries, keys) > TILE_CELLS * cells[-1]:
        cells.append(2 * cells[-1])
    return cells


def open_map(path: str | os.PathLike[str]) -> StoredMap:
    """Return the attention map in a folder that `regard.dask.AttentionMap.to_zarr` wrote.

    Raises
    ------
    RegardError
        zarr is not installed; or the folder holds no map, part of one, or one that is damaged.
    """
    name = os.fspath(path)
    group = _open_group(name)
    try:
        return StoredMap(group, name)
    except RegardError as error:
        raise RegardError(f"{name}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError, RecursionError) as error:
        raise RegardError(f"{name} holds a damaged map: {truncate(str(error))}") from None


def is_map(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path names a Zarr group: a folder with its metadata, or any name that ends in .zarr."""
    try:
        return os.fspath(path).endswith(".zarr") or (Path(path) / "zarr.json").is_file()
    except OSError:  # a text, too long for the name of a folder
        return False


def import_zarr() -> Any:
    """Return the module zarr."""
    with needed("an attention map on disk", "'regard[dask]'"):
        import zarr
    return zarr


class StoredMap(AttentionMap):
    """An `AttentionMap` whose queries and keys stay on disk: what is read is computed from the chunks that it needs.

    `open_map` makes it. Overviews, entropy, received and the largest weights were computed when it was written.
    """

    def __init__(self, group: Any, name: str) -> None:
        self.name = name
        self._group = group
        fields = _fields_of(group)
        shape = tuple(fields["shape"])
        _check_array(group["q"], "q")
        _check_array(group["k"], "k")
        ghosts = {key: np.broadcast_to(np.zeros((), group[key].dtype), group[key].shape) for key in ("q", "k")}
        if len(shape) < 2 or max(shape, default=0) > _MAX_TOKENS or min(shape, default=0) < 1:
            raise RegardError(f"a map cannot have the shape {truncate(fields['shape'])}")
        self._inputs = inputs_from_arrays(_Arrays(group, ghosts, fields["chunks"]), fields)
        self._kernel_stats = None
        self._entries = tuple(slice(0, size) for size in shape[:-2])
        self._dropped: tuple[int, ...] = ()  # axes of the whole map that an integer removed
        self.cells = [operator.index(cell) for cell in fields["cells"]]
        self._check(shape, fields["chunks"])

    def _check(self, shape: tuple[int, ...], chunks: Mapping[str, int]) -> None:
        """Raise RegardError unless the arrays fit the shape, with as many chunks as were written of each."""
        *lead, queries, keys = shape
        shapes = {"row_max": (*lead, queries), "row_sum": (*lead, queries)}
        if not self.cells or self.cells != sorted({c for c in self.cells if c > 0 and c & (c - 1) == 0}):
            raise RegardError(f"cells of overviews have sides that are powers of two, got {truncate(self.cells)}")
        for how in POOLINGS:
            for cell in self.cells:
                shapes[f"overview/{how}/{cell}"] = (*lead, -(-queries // cell), -(-keys // cell))
        shapes |= {each.name: (*lead, {"queries": queries, "keys": keys}[each.axis]) for each in STORED}
        for name, size in shapes.items():
            _check_array(self._group[name], name)
            if tuple(self._group[name].shape) != size:
                raise RegardError(f"{name} has the shape {tuple(self._group[name].shape)}, where the map has {size}")
        tops = [self._group[name] for name in ("top_weights", "top_keys")]
        if not tops[0].shape == tops[1].shape or tuple(tops[0].shape[:-1]) != (*lead, queries):
            raise RegardError(f"the largest weights {tops[0].shape} and their keys {tops[1].shape} do not fit the map")
        for name, x in zip(("top_weights", "top_keys"), tops, strict=True):
            _check_array(x, name, "f" if name == "top_weights" else "i")
        sparse = ("top_weights", "top_keys", *(name for name in shapes if name.startswith("overview/")))
        for name in ("q", "k", *shapes, "top_weights", "top_keys"):
            array = self._group[name]
            _check_chunks(array, name, operator.index(chunks[name]) if name in sparse else array.nchunks)
        self._check_rows()

    def _check_rows(self) -> None:
        """Raise RegardError unless the weights of some rows of the first head sum to 1, or at most that with sinks."""
        first = self.select(*[0] * (len(self.shape) - 2))
        if self.shape[-1] > _MAX_CHECKED_KEYS:
            return
        for row in sorted({0, self.shape[-2] // 2, self.shape[-2] - 1}):
            total = float(np.sum(first.tile(row), dtype=np.float64))
            has_keys = float(first._stats(slice(row, row + 1)).row_sum.reshape(-1)[0]) > 0
            least = 0.0 if self.sinks is not None or not has_keys else 1 - _ROUNDING
            if not least <= total <= 1 + _ROUNDING:
                raise RegardError(
                    f"the weights of row {row} sum to {total:.4g}: its queries or keys are not those that were written"
                )

    # What is on disk

    @property
    def shape(self) -> tuple[int, ...]:
        """``... H T S``."""
        lead = (part.stop - part.start for axis, part in enumerate(self._entries) if axis not in self._dropped)
        return (*lead, *self._inputs.layout.shape[-2:])

    @property
    def q(self) -> np.ndarray:
        """The queries, ``... H T D``, read from disk."""
        return self._vectors("q", slice(0, self.shape[-2]))

    @property
    def k(self) -> np.ndarray:
        """The keys, ``... G S D``, read from disk; of some heads, the key head of each."""
        return self._vectors("k", slice(0, self.shape[-1]))

    @property
    def num_kv_heads(self) -> int:
        """``G``."""
        shape = self._group["k"].shape
        return int(shape[-3]) if len(shape) > 2 else 1

    @property
    def sinks(self) -> np.ndarray | None:
        """The sink logit of each head, if there is one."""
        sinks = self._inputs.sinks
        return (
            None if sinks is None else ScorePart(self._inputs.layout, self._entries, *_NOTHING).take(sinks, "... H R C")
        )

    @property
    def nbytes(self) -> int:
        """Bytes in memory: none but those of the rules."""
        return 0

    @property
    def lse(self) -> np.ndarray:
        """The natural log of Σ exp(score) of each row, ``... H T``; −inf for an empty row."""
        return self._squeezed(self._stats(slice(0, self.shape[-2])).lse(np, None), 1)

    def query(self, row: int) -> np.ndarray:
        """Return the query vector of one position, ``... H D``."""
        return np.asarray(self._vectors("q", slice(row, row + 1))[..., 0, :])

    def key(self, col: int) -> np.ndarray:
        """Return the key vector of one position, ``... G D``."""
        return np.asarray(self._vectors("k", slice(col, col + 1))[..., 0, :])

    def select(self, *index: int | slice) -> StoredMap:
        """Return the map of some batch entries and heads; see `AttentionMap.select`."""
        axes = [axis for axis in range(len(self._entries)) if axis not in self._dropped]
        if len(index) > len(axes):
            raise RegardError(f"{len(index)} indices for the {len(axes)} axes before queries and keys of {self.shape}")
        entries, dropped = list(self._entries), set(self._dropped)
        for axis, i in zip(axes, index, strict=False):
            part = range(entries[axis].start, entries[axis].stop)
            if isinstance(i, slice):
                numbers = part[i]
                if numbers.step != 1 and len(numbers) > 1:
                    raise RegardError("heads of a stored map are taken in steps of 1")
                entries[axis] = slice(numbers.start, numbers.start + len(numbers))
            elif -len(part) <= operator.index(i) < len(part):
                entries[axis] = slice(part[i], part[i] + 1)
                dropped.add(axis)
            else:
                raise RegardError(f"index {i} is outside an axis of {len(part)}")
        selected = object.__new__(StoredMap)
        selected.__dict__.update(self.__dict__, _entries=tuple(entries), _dropped=tuple(sorted(dropped)))
        return selected

    def tile(
        self, rows: int | Index | None = None, cols: int | Index | None = None, *, stage: Stage = "weights"
    ) -> np.ndarray:
        """Return a stage of some rows and columns for every head, as `AttentionMap.tile` does."""
        check_stage(stage)
        layout = self._inputs.layout
        row, keep_rows = as_index("rows", layout, rows, layout.queries)
        col, keep_cols = as_index("cols", layout, cols, layout.keys)
        first, end = _hull(col)
        fill = -np.inf if stage == "biased" else 0.0
        lead = tuple(part.stop - part.start for part in self._entries)
        runs = list(_runs(row, max(1, _BLOCK_SCORES // max(1, end - first) // max(1, math.prod(lead)))))
        tile = np.full((*lead, sum(b - a for a, b in runs), end - first), fill, self._inputs.compute_dtype)
        at = 0
        for a, b in runs:
            self._fill(tile[..., at : at + b - a, :], slice(a, b), first, end, stage)
            at += b - a
        tile = tile if isinstance(col, slice) else tile[..., np.asarray(col) - first]
        tile = self._squeezed(tile.astype(self._inputs.dtype, copy=False), 2)
        tile = tile if keep_rows else tile[..., 0, :]
        return tile if keep_cols else tile[..., 0]

    def pooled(
        self,
        size: tuple[int, int],
        how: Pooling = "max",
        *,
        check: Callable[[], None] = lambda: None,
    ) -> np.ndarray:
        """Return an overview of ``... H P Q`` cells from those that are stored.

        A cell covers all stored cells that it touches; the mean is that of their means.
        """
        check()
        return np.asarray(self._rounded(self.pooled_between(*overview_edges(self.shape, size, how), how)))

    def pooled_between(self, row_edges: np.ndarray, col_edges: np.ndarray, how: Pooling) -> np.ndarray:
        """Return the largest or the mean weight between two edges of each axis, ``... H P Q``, from stored cells.

        It is exact where all edges are multiples of a stored cell; else a part covers all cells that it touches.
        """
        check_pooling(how)
        lengths = self.shape[-2:]
        cell = self._cell_for(row_edges, col_edges)
        spans = [
            (edges[:-1] // cell, np.where(edges[1:] == length, -(-length // cell), -(-edges[1:] // cell)))
            for edges, length in zip((row_edges, col_edges), lengths, strict=True)
        ]
        region = tuple(slice(int(first[0]), int(end[-1])) for first, end in spans)
        stored = self._array(f"overview/{how}/{cell}", (*self._entries, *region))
        if how == "max":
            for axis, (first, end) in zip((-2, -1), spans, strict=True):
                stored = _joined(np.maximum, stored, first - first[0], end - first[0], axis)
            return self._squeezed(stored, 2)
        sizes = [np.diff(bin_edges(0, length, cell))[part] for length, part in zip(lengths, region, strict=True)]
        total, area = stored * (sizes[0][:, None] * sizes[1]).astype(np.float64), np.outer(*sizes).astype(np.float64)
        for axis, (first, end) in zip((-2, -1), spans, strict=True):
            total, area = (_joined(np.add, x, first - first[0], end - first[0], axis) for x in (total, area))
        return self._squeezed(total / area, 2)

    def statistic(self, statistic: MapStatistic) -> Parts:
        """Return a statistic that is stored."""
        if statistic not in STORED:
            raise RegardError(f"{self.name} stores no {statistic.name}; compute it with regard.dask.AttentionMap")
        return (self._squeezed(self._array(statistic.name, self._entries), 1),)

    def top(self, k: int) -> Top:
        """Return the k largest weights of each row and their keys, ``... H T k``, of as many as are stored."""
        stored = self._group["top_weights"].shape[-1]
        if whole_number("the number of keys of top", k, 1) > stored:
            raise RegardError(f"{self.name} stores the {stored} largest weights of each row, not {k}")
        weights, keys = (self._array(f"top_{x}", self._entries)[..., :k] for x in ("weights", "keys"))
        return Top(self._squeezed(weights, 2), self._squeezed(keys, 2))

    def score_terms(self, *cell: int, dims: Any = None) -> ScoreTerms:
        """Return the terms that sum to the score of one cell; see `AttentionMap.score_terms`."""
        if len(cell) != self.ndim or any(isinstance(i, slice) for i in cell):
            raise RegardError(f"a cell is one integer for each axis of {self.shape}, got {cell}")
        *lead, row, col = (range(size)[i] for i, size in zip(cell, self.shape, strict=True))
        one = self.select(*lead)
        vectors = (np.atleast_2d(x)[-1:] for x in (one.query(row), one.key(col)))
        small = AttentionMap(*vectors, scale=self.scale)
        return replace(small.score_terms(0, 0, dims=dims), kv_head=one._kv_entries[-1].start if lead else 0)

    def mask(self) -> NoReturn:
        """Refuse: it would have a boolean for each cell."""
        raise RegardError("the mask of a stored map has a boolean for each cell: read tile(rows, cols, stage='biased')")

    def copy(self) -> StoredMap:
        """Return the map itself: nobody writes to it."""
        return self

    def to_arrays(self, prefix: str = "") -> NoReturn:  # noqa: ARG002
        """Refuse: the arrays are on disk."""
        raise RegardError(f"the map is stored in {self.name} already; copy that folder")

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes; the group opens the folder again."""
        return self.__dict__

    def __repr__(self) -> str:
        return f"<StoredMap {' × '.join(map(str, self.shape))} in {self.name}>"

    # Reading

    @property
    def _kv_entries(self) -> tuple[slice, ...]:
        """The batch entries and heads of the keys that the selected heads need."""
        heads = self._inputs.layout.heads
        repeats = heads // self.num_kv_heads
        *batch, part = self._entries or (slice(0, 1),)
        return (*batch, slice(part.start // repeats, -(-part.stop // repeats)))

    def _vectors(self, name: str, positions: slice) -> np.ndarray:
        """Return queries or keys of some positions and the selected entries, ``... T D``."""
        return self._squeezed(self._read(name, positions, self._entries), 2)

    def _read(self, name: str, positions: slice, entries: tuple[slice, ...]) -> np.ndarray:
        x = self._group[name]
        if name == "k" and len(x.shape) > 2:
            entries = self._kv_entries
        lead = entries[len(entries) - (len(x.shape) - 2) :] if len(x.shape) > 2 else ()
        at = [slice(None) if size == 1 else part for size, part in zip(x.shape, lead, strict=False)]
        array = self._array(name, (*at, positions))
        heads = entries and self._entries[-1]
        if name != "k" or array.ndim < 3 or not heads:
            return array
        # part of a group, or groups of which not all heads are selected: a key head for each
        count, repeats = heads.stop - heads.start, self._inputs.layout.heads // self.num_kv_heads
        if array.shape[-3] in (1, count) or count == array.shape[-3] * repeats:
            return array
        shared = [head // repeats - heads.start // repeats for head in range(heads.start, heads.stop)]
        return np.take(array, shared, axis=-3)

    def _array(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        try:
            return np.asarray(self._group[name][index])
        except (OSError, RuntimeError, ValueError, TypeError, KeyError) as error:
            raise RegardError(f"{self.name}: {name} cannot be read: {truncate(str(error))}") from None

    def _stats(self, rows: slice) -> SoftmaxStats:
        return SoftmaxStats(*(self._array(name, (*self._entries, rows))[..., None] for name in ("row_max", "row_sum")))

    def _fill(self, tile: np.ndarray, rows: slice, first: int, end: int, stage: Stage) -> None:
        """Compute a stage of consecutive rows between two columns, block of keys by block of keys."""
        size = self._group["k"].chunks[-2]
        edges = sorted({first, *range(-(-first // size) * size, end, size), end})
        spans = range(len(edges) - 1)
        if stage in ("biased", "weights"):
            spans = list(nonempty_spans(self._inputs, self._entries, rows, edges))  # type: ignore[assignment]
        stats = self._stats(rows) if stage == "weights" else None
        q = self._read("q", rows, self._entries)
        for number in spans:
            cols = slice(edges[number], edges[number + 1])
            p = slice_inputs(self._inputs, ScorePart(self._inputs.layout, self._entries, rows, cols))
            p = p.replace(q=q, k=self._read("k", cols, self._entries)).to_compute_dtype()
            p = p.replace(dtype=p.compute_dtype)
            tile[..., cols.start - first : cols.stop - first] = attention_tile(p, None, None, stage, stats)

    def _cell_for(self, row_edges: np.ndarray, col_edges: np.ndarray) -> int:
        """Return the side of the stored cells to pool: the largest that divides all edges, else a quarter of a part."""
        lengths = self.shape[-2:]
        inner = np.concatenate([e[e < n] for e, n in zip((row_edges, col_edges), lengths, strict=True)])
        widest = int(max(np.diff(row_edges).max(), np.diff(col_edges).max()))
        exact = [cell for cell in self.cells if not np.any(inner % cell) and cell <= widest]
        return max(exact or [cell for cell in self.cells if 4 * cell <= widest] or self.cells[:1])

    def _squeezed(self, x: np.ndarray, after: int) -> np.ndarray:
        """Return an array, with `after` axes behind those of the entries, without those that an integer removed."""
        lead = range(len(self._entries) - (x.ndim - after), len(self._entries))
        return x[tuple(0 if axis in self._dropped else slice(None) for axis in lead)]


_NOTHING = (slice(0, 0), slice(0, 0))


class _Arrays(Mapping[str, np.ndarray]):
    """The arrays of the rules of a map, read when they are asked for, and the shapes of its queries and keys."""

    def __init__(self, group: Any, ghosts: dict[str, np.ndarray], chunks: Mapping[str, int]) -> None:
        self._group, self._ghosts, self._chunks = group, ghosts, chunks

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self._ghosts:
            return self._ghosts[name]
        array = self._group[f"rules/{name}"]
        _check_array(array, name, "fiub")
        _check_chunks(array, f"rules/{name}", operator.index(self._chunks[f"rules/{name}"]))
        return np.asarray(array[...])

    def __iter__(self) -> Iterator[str]:
        return iter((*self._ghosts, *self._group["rules"]))

    def __len__(self) -> int:
        return len(list(iter(self)))


def _open_group(name: str) -> Any:
    zarr = import_zarr()
    from regard.trace.bounded_store import open_store

    if "://" not in name and not Path(name).is_dir():
        raise RegardError(f"there is no folder {name}: regard.dask.AttentionMap(...).to_zarr({name!r}) writes one")
    try:
        return zarr.open_group(open_store(name, _MAX_CHUNK_BYTES), mode="r", zarr_format=3)
    except RegardError as error:
        raise RegardError(f"{name}: {error}") from None
    except Exception as error:  # of zarr, of its stores and of JSON
        raise RegardError(f"{name} is not a Zarr group, format 3: {truncate(str(error))}") from None


def _fields_of(group: Any) -> dict[str, Any]:
    fields = group.attrs.get("regard")
    if fields is None:
        raise RegardError("this is not an attention map, or one whose writing was interrupted: write it again")
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        written_format = fields.get("format") if isinstance(fields, dict) else fields
        raise RegardError(f"its format is {truncate(written_format)}, and this version of regard reads {FORMAT}")
    return fields


def _check_array(array: Any, name: str, kinds: str = "f") -> None:
    if not hasattr(array, "chunks") or array.dtype.kind not in kinds:
        raise RegardError(f"{name} is not an array of the dtype that a map has")
    if min(array.chunks, default=1) < 1:
        raise RegardError(f"{name} has chunks of {array.chunks}, which hold nothing")
    count = math.prod(-(-size // chunk) for size, chunk in zip(array.shape, array.chunks, strict=True))
    if count > _MAX_CHUNKS:
        raise RegardError(f"{name} has {count} chunks, more than the limit of {_MAX_CHUNKS}")
    if other := [codec for codec in array.metadata.codecs if type(codec).__name__ not in _CODECS]:
        raise RegardError(f"{name} is stored with {truncate(type(other[0]).__name__)}, which regard does not write")
    if math.prod(array.chunks) * array.dtype.itemsize > _MAX_CHUNK_BYTES:
        raise RegardError(f"{name} has chunks of {array.chunks}, more than {_MAX_CHUNK_BYTES >> 20} MB each")


def _check_chunks(array: Any, name: str, written: int) -> None:
    """Raise RegardError if an array has fewer chunks than were written."""
    if (absent := written - array.nchunks_initialized) > 0:
        raise RegardError(f"{name} lacks {absent} of its {written} chunks: copy the folder again, whole")


def _hull(index: Index) -> tuple[int, int]:
    """Return the first column and the end of those of an index."""
    if isinstance(index, slice):
        return index.start, index.stop
    return (int(index.min()), int(index.max()) + 1) if len(index) else (0, 0)


def _runs(index: Index, longest: int) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of consecutive rows, of at most `longest`."""
    if isinstance(index, slice):
        for start in range(index.start, index.stop, longest):
            yield start, min(start + longest, index.stop)
        return
    rows = np.asarray(index)
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    for run in np.split(rows, breaks) if len(rows) else ():
        for start in range(int(run[0]), int(run[-1]) + 1, longest):
            yield start, min(start + longest, int(run[-1]) + 1)


def _joined(join: np.ufunc, x: np.ndarray, first: np.ndarray, end: np.ndarray, axis: int) -> np.ndarray:
    """Return `x` reduced between first and end of each part, along an axis."""
    parts = [join.reduce(np.take(x, np.arange(a, b), axis=axis), axis=axis) for a, b in zip(first, end, strict=True)]
    return np.stack(parts, axis=axis)
