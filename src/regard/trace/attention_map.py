"""An attention map stored as queries, keys, mask and bias: any weight, row or statistic of a map that is never whole.

A map of 32,768 tokens has 10⁹ weights for each head. Its queries and keys have 4 million numbers, and any weight is one
dot product away.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.memory import available_memory
from regard.functional import native
from regard.functional.arrays import Array
from regard.functional.biases.base import Bias, PartOfBias
from regard.functional.heads import count_heads
from regard.functional.inputs import AttentionInputs, Options, validate_inputs
from regard.functional.native.map import Pooling
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.part_inputs import slice_heads
from regard.functional.scores.layout import Index
from regard.functional.scores.stages import Stage, mask_and_bias
from regard.functional.scores.tile import attention_tile
from regard.trace.map_sources import MapSource, source_of
from regard.trace.map_statistics import MapStatistic, MapStatistics, Parts, Top
from regard.trace.mask_io import inputs_from_arrays, inputs_to_arrays, to_numpy
from regard.trace.notebook_html import MAX_SIDE, MAX_TILES, page, picture
from regard.trace.overviews import cell_means, overview_edges

__all__ = ["AttentionMap", "ScoreTerms", "Top"]


@dataclass(frozen=True, eq=False)
class ScoreTerms:
    """The terms of the dot product that is one score.

    Parameters
    ----------
    terms : array, one number for each group of dimensions
        Σ q · k × scale over the group.
    dims : sequence of tuple of int
        The dimensions of each group: one, or the two that rotary embeddings rotate together.
    score : float
        Their sum, q · k × scale.
    kv_head : int
        The key/value head, which several query heads may share.
    """

    terms: Array
    dims: Sequence[tuple[int, ...]]
    score: float
    kv_head: int


class AttentionMap(MapStatistics):
    """The weights ``... H T S`` of a call of attention, computed when they are read.

    It is indexed as the array of weights would be, ``attention_map[head, rows, cols]``; an array of rows with an array
    of columns means every pair of the two. The compiled kernel computes scores in the precision of `attention` and sums
    in float64; without it everything is computed in float64, where the library has it, and rounded once. Weights, rows
    and statistics agree with each other: a row sums to 1.

    Parameters
    ----------
    q : array, ``... H T D``
    k : array, ``... G S D``
    **options
        Those of `attention` that say how scores become weights: `mask`, `bias`, `causal`, `query_offset`, `window`,
        `scale`, `softcap`, `sinks` and `key_lengths`. Weights are shown before any dropout.

    Examples
    --------
    >>> import numpy as np
    >>> attention_map = AttentionMap(np.zeros((1, 3, 2)), np.zeros((1, 3, 2)), causal=True)
    >>> attention_map.shape
    (1, 3, 3)
    >>> attention_map[0, 1]
    array([0.5, 0.5, 0. ])
    >>> attention_map.received().round(3)
    array([[1.833, 0.833, 0.333]])
    """

    def __init__(self, q: Array, k: Array, **options: Unpack[Options]) -> None:
        self._inputs = _without_values(validate_inputs(q, k, **options).to_compute_dtype())
        self._kernel_stats: SoftmaxStats | None = None

    @classmethod
    def from_inputs(cls, p: AttentionInputs, stats: SoftmaxStats | None = None) -> AttentionMap:
        """Return the map of validated inputs; `stats` are those of its rows, where the kernel has computed them."""
        attention_map = cls.__new__(cls)
        attention_map._inputs, attention_map._kernel_stats = _without_values(p), stats
        return attention_map

    def copy(self) -> AttentionMap:
        """Return the map with copies of all arrays, as NumPy arrays; q and k that may be aliased are not copied."""
        p, stats = self._inputs, self._computed_stats()
        if self._xp is np:
            owned = {name: value for name in ("mask", "bias", "sinks") if (value := getattr(p, name)) is not None}
            layout, offset = p.layout, copy.deepcopy(p.layout.query_offset)
            layout = layout if offset is None else replace(layout, query_offset=offset)
            q, k = (p.q, p.k) if p.may_alias else (native.pooled_copy(p.q), native.pooled_copy(p.k))
            return AttentionMap.from_inputs(
                p.replace(layout=layout, q=q, k=k, may_alias=False, **copy.deepcopy(owned)), stats
            )
        with contextlib.suppress(RegardError):  # a user's mask or bias may take arrays of its own library only
            p = inputs_from_arrays(*inputs_to_arrays(p))
        return AttentionMap.from_inputs(p, None if stats is None else SoftmaxStats(*map(to_numpy, stats)))

    def to_arrays(self, prefix: str = "") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the map as NumPy arrays, whose names begin with `prefix`, and JSON, to be written to a file."""
        arrays, fields = inputs_to_arrays(self._inputs, prefix)
        stats = {f"{prefix}{name}": to_numpy(x) for name, x in self._source.exact_stats._asdict().items()}
        return arrays | stats, fields

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], fields: Mapping[str, Any], prefix: str = "") -> AttentionMap:
        """Return the map from the arrays and JSON of `to_arrays`.

        Raises
        ------
        RegardError, KeyError, TypeError, ValueError
            They do not fit together.
        """
        attention_map = cls.from_inputs(inputs_from_arrays(arrays, fields, prefix))
        row_max, row_sum = arrays[f"{prefix}row_max"], arrays[f"{prefix}row_sum"]
        kinds = {row_max.dtype.kind, row_sum.dtype.kind}
        if not row_max.shape == row_sum.shape == (*attention_map.shape[:-1], 1) or kinds != {"f"}:
            raise RegardError(
                f"row_max {row_max.shape} {row_max.dtype} and row_sum {row_sum.shape} {row_sum.dtype} do not fit a map "
                f"of {attention_map.shape}"
            )
        attention_map._source.exact_stats = SoftmaxStats(row_max, row_sum)
        return attention_map

    # Inputs

    @property
    def q(self) -> Array:
        """The queries, ``... H T D``."""
        return self._inputs.q

    @property
    def k(self) -> Array:
        """The keys, ``... G S D``."""
        return self._inputs.k

    @property
    def scale(self) -> float:
        """The factor of the dot products of queries and keys."""
        return float(self._inputs.scale)

    @property
    def softcap(self) -> float | None:
        """The softcap of the scores, if there is one."""
        return self._inputs.softcap

    @property
    def bias(self) -> Bias | None:
        """The rule of the bias of the scores, that of all heads, if there is one."""
        bias = self._inputs.bias
        while isinstance(bias, PartOfBias):
            bias = bias.bias
        return bias

    @property
    def sinks(self) -> Array | None:
        """The sink logit of each head, ``H``, if there is one."""
        return self._inputs.sinks

    @property
    def shape(self) -> tuple[int, ...]:
        """``... H T S``."""
        return self._inputs.layout.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the queries and keys, and of two numbers for each row."""
        size = math.prod(self.q.shape) + math.prod(self.k.shape)
        return int(size * self._inputs.itemsize + 16 * math.prod(self.shape[:-1]))

    @property
    def lse(self) -> Array:
        """The natural log of Σ exp(score) of each row, ``... H T``; −inf for an empty row."""
        return self._source.exact_stats.lse(self._xp, self._inputs.layout.device)

    def __getstate__(self) -> dict[str, Any]:
        """Return the inputs, and the statistics of the rows that the kernel has computed."""
        return {"_inputs": self._inputs, "_kernel_stats": self._computed_stats()}

    def __repr__(self) -> str:
        return f"<AttentionMap {' × '.join(map(str, self.shape))} in {self.nbytes / 1e6:.1f} MB>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the first heads as small maps."""
        if 0 in self.shape:
            return page(repr(self)[1:-1])
        return page(
            repr(self)[1:-1],
            picture(self.small_tiles(), self._caption()),
            try_next=("attention_map[head, rows, cols]", "attention_map.top(3)", "attention_map.entropy()"),
        )

    def small_tiles(self) -> list[np.ndarray]:
        """Return the largest weights in each cell of the first heads, as small maps."""
        first = self.select(*(0,) * (self.ndim - 3), *([slice(MAX_TILES)] if self.ndim > 2 else []))
        tiles = to_numpy(first.pooled((MAX_SIDE, MAX_SIDE))).astype(np.float64)
        return list(tiles.reshape(-1, *tiles.shape[-2:]))

    def _caption(self) -> str:
        heads = self.shape[-3] if self.ndim > 2 else 1
        shown = f"heads 0 to {min(heads, MAX_TILES) - 1} of {heads}" if heads > 1 else "one head"
        return f"{shown}, queries down, keys across"

    def query(self, row: int) -> Array:
        """Return the query vector of one position, ``... H D``."""
        return self.q[..., row, :]

    def key(self, col: int) -> Array:
        """Return the key vector of one position, ``... G D``."""
        return self.k[..., col, :]

    # Weights

    __iter__: None = None  # else Python calls __getitem__ until an IndexError, which it does not raise

    def __getitem__(self, index: Any) -> Array:
        """Return the weights at `index`: integers, slices, ``...``, and for rows and columns integer arrays too."""
        *lead, rows, cols = _filled(index, self.ndim)
        return self.select(*lead).tile(rows, cols)

    def tile(
        self, rows: int | Index | None = None, cols: int | Index | None = None, *, stage: Stage = "weights"
    ) -> Array:
        """Return a stage of some rows and columns for every head, as `attention_weights` does.

        Sums over keys are computed for these rows alone, unless those of all rows are stored.
        """
        source = self._source
        # the kernel computes a whole map with its softmax statistics in one pass
        needs_all = rows is None and (cols is not None or not source.by_kernel)
        stats = None
        if stage == "weights":
            stats = source.stats if needs_all else source.computed_stats
        return attention_tile(self._inputs, rows, cols, stage, stats)

    def weights(self) -> Array:
        """Return the whole map, ``... H T S``, in memory of n² weights.

        Raises
        ------
        RegardError
            They do not fit in memory.
        """
        self._check_size()
        return self.tile()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the whole map as a NumPy array, as ``np.asarray(attention_map)`` asks for it; see `weights`."""
        if copy is False:
            raise ValueError("weights are computed, so they cannot be had without a copy: np.asarray(attention_map)")
        weights = self.weights()
        return np.asarray(weights if self._xp is np else to_numpy(weights), dtype=dtype)

    def _check_size(self) -> None:
        size = math.prod(self.shape) * int(self._xp.finfo(self._inputs.dtype).bits) // 8
        free = available_memory() if self._inputs.layout.device is None or "cpu" in str(self.q.device).lower() else None
        if free is not None and size > free:
            raise RegardError(
                f"{' × '.join(map(str, self.shape))} weights take {size / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are "
                f"free: read a part, attention_map.tile(rows, cols), or an overview, attention_map.pooled((512, 512))"
            )

    def mask(self) -> Array | None:
        """Return where queries attend to keys, a boolean array that broadcasts to ``... H T S``; None: everywhere."""
        return mask_and_bias(self._inputs)[0]

    def select(self, *index: int | slice) -> AttentionMap:
        """Return the map of some batch entries and heads: ``select(0, 3)`` is head 3 of the first sequence.

        Takes an integer, which removes its axis, or a slice for each axis before ``T S``; missing ones select all.
        """
        p, lead = self._inputs, self.shape[:-2]
        if len(index) > len(lead):
            raise RegardError(f"{len(index)} indices for the {len(lead)} axes before queries and keys of {self.shape}")
        indices = tuple(_checked(i, size) for i, size in zip(index, lead, strict=False))
        indices += (slice(None),) * (len(lead) - len(indices))
        if all(i == slice(None) for i in indices):
            return self
        selected, part = slice_heads(p, indices)
        attention_map = AttentionMap.from_inputs(selected)
        if attention_map._source.by_kernel == self._source.by_kernel:
            attention_map._source.take_stats(self._source, part.take)
        return attention_map

    def score_terms(self, *cell: int, dims: Sequence[tuple[int, ...]] | None = None) -> ScoreTerms:
        """Return the terms that sum to the score of one cell, ``score_terms(head, row, col)``.

        Parameters
        ----------
        *cell : int
            One index for each axis of the map.
        dims : sequence of tuple of int, optional
            Which dimensions to add up; each dimension alone by default. `rotary_pairs` gives those that rotary
            embeddings rotate together: their sum depends on the distance of the two tokens only, while single terms
            depend on the position of both.
        """
        if len(cell) != self.ndim:
            raise RegardError(f"a cell of {self.shape} has {self.ndim} indices, got {len(cell)}")
        if any(isinstance(i, slice) for i in cell):
            raise RegardError(f"a cell is one integer for each axis of {self.shape}, got {cell}")
        *lead, row, col = (_checked(i, size) for i, size in zip(cell, self.shape, strict=True))
        xp, wide = self._xp, self.select(*lead)._inputs.upcast()
        terms = wide.q[row, :] * wide.k[col, :] * wide.scale
        width = int(terms.shape[0])
        dims = [(d,) for d in range(width)] if dims is None else list(dims)
        if not all(dims) or sorted(d for group in dims for d in group) != list(range(width)):
            raise RegardError(f"dims must hold each of the {width} dimensions once, got {dims}")
        if not dims:
            return ScoreTerms(terms, dims, 0.0, 0)
        grouped = xp.stack([sum(terms[d] for d in group[1:]) + terms[group[0]] for group in dims])
        head = lead[-1] if lead else 0
        return ScoreTerms(grouped, dims, float(xp.sum(terms)), head * count_heads(self.k) // count_heads(self.q))

    # Each in one pass over the map (and one more, once, for the softmax statistics of the rows; `pooled` needs none)

    def pooled(
        self,
        size: tuple[int, int],
        how: Pooling = "max",
        *,
        check: Callable[[], None] = lambda: None,
    ) -> Array:
        """Return an overview of ``... H P Q`` cells, each the largest or the mean of the weights that it covers.

        Parameters
        ----------
        size : (P, Q)
            An axis of the map that is shorter keeps its own length.
        how : {"max", "mean"}
            The maximum shows single large weights; the mean keeps the sum.
        check : function
            Called between blocks of rows; an exception that it raises stops the work.
        """
        edges = overview_edges(self.shape, size, how)
        xp, cells = self._xp, tuple(len(axis) - 1 for axis in edges)
        if 0 in cells:
            return xp.zeros((*self.shape[:-2], *cells), dtype=self._inputs.dtype)
        overview = self._source.pooled(*edges, how, check)
        if how == "mean":
            as_float = functools.partial(xp.asarray, dtype=overview.dtype, device=self._inputs.layout.device)
            overview = cell_means(overview, *(as_float(np.diff(axis)) for axis in edges))
        return self._rounded(overview)

    def statistic(self, statistic: MapStatistic) -> Parts:
        """Return the arrays of a statistic; floats in the dtype of the map."""
        xp, values = self._xp, statistic.finish(self._xp, self._source.parts(statistic))
        return tuple(self._rounded(x) if xp.isdtype(x.dtype, "real floating") else x for x in values)

    @functools.cached_property
    def _source(self) -> MapSource:
        return source_of(self._inputs, self._kernel_stats)

    def _computed_stats(self) -> SoftmaxStats | None:
        if "_source" in vars(self) and self._source.by_kernel:
            return self._source.computed_stats
        return self._kernel_stats

    @property
    def _xp(self) -> Any:
        return self._inputs.layout.xp

    def _rounded(self, x: Array) -> Array:
        return self._xp.astype(x, self._inputs.dtype, copy=False)


def _without_values(p: AttentionInputs) -> AttentionInputs:
    """Return the inputs without values and dropout, and detached: no gradient is taken through a map."""
    if p.layout.xp is not np:
        q, k = (x.detach() if hasattr(x, "detach") else x for x in (p.q, p.k))
        p = p.replace(q=q, k=k)
    return p if p.v is None and p.dropout is None else p.replace(v=None, dropout=None)


def _filled(index: Any, ndim: int) -> list[Any]:
    """Return `index` with one entry for each axis."""
    entries = list(index) if isinstance(index, tuple) else [index]
    dots = [i for i, entry in enumerate(entries) if entry is Ellipsis]
    if len(dots) > 1 or len(entries) - len(dots) > ndim:
        raise RegardError(f"too many indices for a map of {ndim} axes")
    at = dots[0] if dots else len(entries)
    return entries[:at] + [slice(None)] * (ndim - len(entries) + len(dots)) + entries[at + 1 :]


def _checked(index: int | slice, size: int) -> Any:
    if isinstance(index, slice):
        return index
    try:
        position = operator.index(None if isinstance(index, bool) else index)  # type: ignore[arg-type]
    except TypeError:
        raise RegardError(f"heads and batch entries are taken by integers and slices, got {index!r}") from None
    if not -size <= position < size:
        raise RegardError(f"index {position} is outside an axis of {size}")
    return position % size
