"""Attention remembered as queries, keys and rules: any weight, row or overview of a map that is never held whole.

A map of 32,768 tokens has a thousand million weights for each head. Its queries and keys have four million numbers, and
any weight is a dot product away. Knows arrays and the equations; does not know models, text or pictures.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard._utils.validation import finite_number, whole_number
from regard.functional import native
from regard.functional.blocks import block_sizes, nonempty_blocks, spans
from regard.functional.blockwise import softmax_stats
from regard.functional.grouped_heads import count_heads
from regard.functional.head_slice import is_head_slice, slice_heads
from regard.functional.inputs import AttentionInputs, Options, prepare_inputs
from regard.functional.native.map import (
    column_sums,
    native_map_inputs,
    native_softmax_stats,
    pooled_map,
    row_statistics,
    upcast_for_kernel,
)
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.score_layout import Index, ScoreLayout, broadcasts
from regard.functional.scores import BlockScores, Stage, block_scores
from regard.functional.tile import attention_tile
from regard.trace.mask_io import restored, stored, to_numpy

__all__ = ["AttentionMap", "Products", "Top"]

LONGEST_TOP = 256  # of the kernel, which puts the largest weights in their places one by one
_CELLS_AT_ONCE = 128  # rows of an overview, between two looks at whether it is still wanted


class Top(NamedTuple):
    """The largest weights of each row, largest first.

    Parameters
    ----------
    weights : array, ``... H T k``
    keys : integer array, ``... H T k``
        Which keys; −1, with weight 0, where a query sees fewer than k.
    """

    weights: Array
    keys: Array


@dataclass(frozen=True, eq=False)
class Products:
    """The products that sum to one score, dimension by dimension.

    Parameters
    ----------
    products : array, one number for each group of dimensions
        What each gives to the score, scale included.
    dims : sequence of tuple of int
        The dimensions of each group: one, or the two that a rotation by position turns together.
    score : float
        Their sum, q · k × scale.
    kv_head : int
        The key/value head, which several query heads may share.
    """

    products: Array
    dims: Sequence[tuple[int, ...]]
    score: float
    kv_head: int


class AttentionMap:
    """The weights ``... H T S`` of a call of attention, computed when they are looked at.

    It is indexed as the array of weights would be, ``look[head, rows, cols]``; arrays of rows and of columns together
    mean every pair of the two. The compiled kernel computes scores in the precision of `attention`, as exact as they
    enter it, and sums in float64; without it everything is computed in float64 where there is one and rounded once.
    Either way weights, rows and overviews agree with each other: a row sums to 1.

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
    >>> look = AttentionMap(np.zeros((1, 3, 2)), np.zeros((1, 3, 2)), causal=True)
    >>> look.shape
    (1, 3, 3)
    >>> look[0, 1]
    array([0.5, 0.5, 0. ])
    >>> look.received().round(3)
    array([[1.833, 0.833, 0.333]])
    """

    def __init__(self, q: Array, k: Array, **options: Unpack[Options]) -> None:
        self._problem = _looked_at(prepare_inputs(q, k, **options))

    @classmethod
    def of(cls, p: AttentionInputs, sums: SoftmaxStats | None = None) -> AttentionMap:
        """Return the map of a call of attention whose arguments have been checked, for its queries and keys.

        `sums` are what the kernel has found of its rows.
        """
        look = cls.__new__(cls)
        look._problem = _looked_at(p)
        if sums is not None:
            look.__dict__["_sums"] = sums
        return look

    def kept(self) -> AttentionMap:
        """Return the map with copies of its own, as NumPy arrays; what nobody else holds becomes its own."""
        sums = self.__dict__.get("_sums")
        if self._xp is np:
            p, layout = self._problem, self._problem.layout
            if layout.query_offset is not None:
                layout = replace(layout, query_offset=copy.deepcopy(layout.query_offset))
            given = {name: getattr(p, name) for name in ("mask", "bias", "sinks")}
            rules = {name: copy.deepcopy(rule) for name, rule in given.items() if rule is not None}
            q, k = (p.q, p.k) if p.may_alias else (native.pooled_copy(p.q), native.pooled_copy(p.k))
            return AttentionMap.of(p.replace(layout=layout, q=q, k=k, may_alias=False, **rules), sums)
        try:
            kept = _rebuilt(*self._rules())
        except RegardError:  # a rule of one's own, which only its library's arrays go with
            kept = self._problem
        return AttentionMap.of(kept, None if sums is None else SoftmaxStats(*map(to_numpy, sums)))

    def to_arrays(self, prefix: str = "") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return everything as NumPy arrays, their names beginning with `prefix`, and as JSON: what a file keeps."""
        arrays, fields = self._rules(prefix)
        sums = {f"{prefix}{name}": to_numpy(x) for name, x in self._normaliser._asdict().items()}
        return arrays | sums, fields

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], fields: Mapping[str, Any], prefix: str = "") -> AttentionMap:
        """Return the map that `to_arrays` took apart.

        Raises
        ------
        RegardError, KeyError, TypeError, ValueError
            The parts do not fit together.
        """
        look = cls.of(_rebuilt(arrays, fields, prefix))
        row_max, row_sum = arrays[f"{prefix}row_max"], arrays[f"{prefix}row_sum"]
        if not row_max.shape == row_sum.shape == (*look.shape[:-1], 1):
            raise RegardError(
                f"the sums of rows {row_max.shape} and {row_sum.shape} are not those of a map of {look.shape}"
            )
        look.__dict__["_normaliser"] = SoftmaxStats(row_max, row_sum)
        return look

    def _rules(self, prefix: str = "") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return queries, keys and all that says how scores become weights, as arrays and JSON."""
        if is_head_slice(self._problem):
            raise RegardError("a part of a map is not kept in a file; keep the whole map")
        p, arrays = self._problem, {f"{prefix}q": to_numpy(self.q), f"{prefix}k": to_numpy(self.k)}
        rules = {"query_offset": p.layout.query_offset, "scale": p.scale, "softcap": p.softcap}
        rules |= {"sinks": p.sinks, "mask": p.mask, "bias": p.bias}
        fields = {name: stored(value, arrays, f"{prefix}{name}") for name, value in rules.items()}
        return arrays, {**fields, "shape": list(self.shape), "dtype": _name_of(p.dtype)}

    # What it is of

    @property
    def q(self) -> Array:
        """The queries, ``... H T D``."""
        return self._problem.q

    @property
    def k(self) -> Array:
        """The keys, ``... G S D``."""
        return self._problem.k

    @property
    def scale(self) -> float:
        """What the products of queries and keys are multiplied by."""
        return float(self._problem.scale)

    @property
    def softcap(self) -> float | None:
        """What scores are capped by, if they are."""
        return self._problem.softcap

    @property
    def sinks(self) -> Array | None:
        """The logit of each head that takes a share of the weight and gives no value, if there is one."""
        return self._problem.sinks

    @property
    def shape(self) -> tuple[int, ...]:
        """``... H T S``."""
        return self._problem.layout.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the queries and keys, and of two numbers for each row."""
        numbers = math.prod(self.q.shape) + math.prod(self.k.shape)
        return int(numbers * self._problem.itemsize + 16 * math.prod(self.shape[:-1]))

    @property
    def lse(self) -> Array:
        """The natural log of Σ exp(score) of each row, ``... H T``; −inf where a query sees nothing."""
        return self._normaliser.lse(self._xp, self._problem.layout.device)

    def __repr__(self) -> str:
        return f"<AttentionMap {' × '.join(map(str, self.shape))} in {self.nbytes / 1e6:.1f} MB>"

    # Weights

    def __getitem__(self, index: Any) -> Array:
        """Return the weights at `index`: integers, slices, ``...``, and for rows and columns integer arrays too."""
        *lead, rows, cols = _filled(index, self.ndim)
        return self.entry(*lead).tile(rows, cols)

    def tile(
        self, rows: int | Index | None = None, cols: int | Index | None = None, *, stage: Stage = "weights"
    ) -> Array:
        """Return a stage of some rows and columns for every head, as `attention_weights` does.

        The sums of these rows are worked out alone, or those of all rows once an overview has been asked for.
        """
        name = "_normaliser" if self._compiled is None else "_sums"
        of_all = rows is None and (
            cols is not None or self._compiled is None
        )  # a whole map needs one pass of the kernel
        known = getattr(self, name) if stage == "weights" and (of_all or name in self.__dict__) else None
        return attention_tile(self._problem, rows, cols, stage, known)

    def weights(self) -> Array:
        """Return the whole map, ``... H T S``, in memory of n² weights."""
        return self.tile()

    def entry(self, *index: int | slice) -> AttentionMap:
        """Return the map of some batch entries and heads: ``entry(0, 3)`` is head 3 of the first text.

        Takes integers, whose axis goes, and slices over the axes before ``T S``; axes that are not given stay.
        """
        p, lead = self._problem, self.shape[:-2]
        if len(index) > len(lead):
            raise RegardError(f"{len(index)} indices for the {len(lead)} axes before queries and keys of {self.shape}")
        chosen = tuple(_checked(i, size) for i, size in zip(index, lead, strict=False))
        chosen += (slice(None),) * (len(lead) - len(chosen))
        if all(i == slice(None) for i in chosen):
            return self
        entries, part = slice_heads(p, chosen)
        look = AttentionMap.of(entries)
        for name in ("_normaliser", "_sums"):  # those that have been worked out
            if name in self.__dict__:
                look.__dict__[name] = SoftmaxStats(*(part.of(x) for x in self.__dict__[name]))
        return look

    def products(self, *cell: int, dims: Sequence[tuple[int, ...]] | None = None) -> Products:
        """Return the products that sum to the score of one cell, ``products(head, row, col)``.

        Parameters
        ----------
        *cell : int
            One index for each axis of the map.
        dims : sequence of tuple of int, optional
            Which dimensions to take together. `rotary_pairs` gives those that a rotation turns together, whose single
            products depend on where the text begins while their sum depends on the distance alone. Each dimension
            by itself by default.
        """
        if len(cell) != self.ndim:
            raise RegardError(f"a cell of {self.shape} has {self.ndim} indices, got {len(cell)}")
        if any(isinstance(i, slice) for i in cell):
            raise RegardError(f"a cell is one integer for each axis of {self.shape}, got {cell}")
        *lead, row, col = (_checked(i, size) for i, size in zip(cell, self.shape, strict=True))
        xp, wide = self._xp, self.entry(*lead)._wide
        terms = wide.q[row, :] * wide.k[col, :] * wide.scale
        width = int(terms.shape[0])
        dims = [(d,) for d in range(width)] if dims is None else list(dims)
        if not all(dims) or sorted(d for group in dims for d in group) != list(range(width)):
            raise RegardError(f"dims must hold each of the {width} dimensions once, got {dims}")
        if not dims:
            return Products(terms, dims, 0.0, 0)
        products = xp.stack([sum(terms[d] for d in group[1:]) + terms[group[0]] for group in dims])
        head = lead[-1] if lead else 0
        return Products(products, dims, float(xp.sum(terms)), head * count_heads(self.k) // count_heads(self.q))

    # Overviews, each in one pass over the map (and one more, once, for the sums of the rows; `pooled` needs none)

    def pooled(
        self,
        size: tuple[int, int],
        how: Literal["max", "mean"] = "max",
        *,
        check: Callable[[], None] = lambda: None,
    ) -> Array:
        """Return an overview of ``... H P Q`` cells, each the largest or the mean weight of those it covers.

        Parameters
        ----------
        size : (P, Q)
            An axis of the map that is shorter keeps its own length.
        how : {"max", "mean"}
            The largest weight shows where anything is looked at; the mean keeps the sum.
        check : function
            Called now and then; what it raises ends the work.
        """
        if how not in ("max", "mean"):
            raise RegardError(f"how must be max or mean, got {how!r}")
        xp = self._xp
        if not isinstance(size, Sequence) or len(size) != 2:
            raise RegardError(f"the size of an overview is (rows, columns), got {size!r}")
        row_cells, col_cells = (
            _cells(length, whole_number("a side of an overview", count, 1))
            for length, count in zip(self.shape[-2:], size, strict=True)
        )
        if not row_cells or not col_cells:
            return xp.zeros((*self.shape[:-2], len(row_cells), len(col_cells)), dtype=self._problem.dtype)
        parts, row_sums = [], []
        for start in range(0, len(row_cells), _CELLS_AT_ONCE):
            check()
            some = row_cells[start : start + _CELLS_AT_ONCE]
            if self._compiled is not None:
                part, its_sums = pooled_map(self._compiled, some, col_cells, how)
                row_sums.append(its_sums)
            else:
                part = self._pooled(some, col_cells, how)
            parts.append(part)
        if row_sums:
            self.__dict__["_sums"] = SoftmaxStats(*(np.concatenate(x, axis=-2) for x in zip(*row_sums, strict=True)))
        overview = xp.concat(parts, axis=-2)
        if how == "mean":
            layout = self._problem.layout
            heights, widths = (
                xp.asarray([b - a for a, b in cells], dtype=overview.dtype, device=layout.device)
                for cells in (row_cells, col_cells)
            )
            overview = overview / (heights[:, None] * widths[None, :])
        return self._rounded(overview)

    def _pooled(self, row_cells: list[tuple[int, int]], col_cells: list[tuple[int, int]], how: str) -> Array:
        """Return the largest or the sum of the weights of each cell, ``... H P Q``."""
        xp = self._xp
        join, reduce = (xp.maximum, xp.max) if how == "max" else (xp.add, xp.sum)
        strips: dict[int, Array] = {}
        for rows, blocks in self._strips():
            inside = _inside(row_cells, rows)
            if not inside:
                continue
            columns: dict[int, Array] = {}
            for cols, _, weights in blocks:
                part = xp.stack([reduce(weights[..., a:b, :], axis=-2) for _, a, b in inside], axis=-2)
                for cell, a, b in _inside(col_cells, cols):
                    column = reduce(part[..., a:b], axis=-1)
                    columns[cell] = join(columns[cell], column) if cell in columns else column
            nothing = self._zeros(len(inside))
            strip = xp.stack([columns.get(cell, nothing) for cell in range(len(col_cells))], axis=-1)
            for i, (cell, _, _) in enumerate(inside):
                row = strip[..., i, :]
                strips[cell] = join(strips[cell], row) if cell in strips else row
        return xp.stack([strips[cell] for cell in range(len(row_cells))], axis=-2)

    def entropy(self) -> Array:
        """Return −Σ w log w of each row in nats, ``... H T``: 0 where one key has it all, log S where all share."""
        if self._compiled is not None:
            return self._rounded(row_statistics(self._compiled, self._sums, entropy=True).entropy)
        xp, parts = self._xp, []
        for rows, blocks in self._strips():
            total = self._zeros(rows.stop - rows.start)
            for _, _, weights in blocks:
                total = total - xp.sum(weights * xp.log(xp.where(weights > 0, weights, 1.0)), axis=-1)
            parts.append(total)
        return self._rounded(xp.concat(parts, axis=-1))

    def distance(self) -> Array:
        """Return how many positions away each query looks on average, ``... H T``; 0 where it sees nothing.

        Query i stands at position i + `query_offset` of the map; an offset that a rule has for itself does not count.
        """
        if self._compiled is not None:
            return self._rounded(row_statistics(self._compiled, self._sums, mean_distance=True).mean_distance)
        xp, layout, parts = self._xp, self._wide.layout, []
        for rows, blocks in self._strips():
            total = mass = self._zeros(rows.stop - rows.start)
            for cols, _, weights in blocks:
                away = xp.abs(layout.key_indices(cols) - (layout.query_indices(rows) + layout.resolve_offset()))
                total = total + xp.sum(weights * xp.astype(away, weights.dtype), axis=-1)
                mass = mass + xp.sum(weights, axis=-1)
            parts.append(total / xp.where(mass == 0, 1.0, mass))
        return self._rounded(xp.concat(parts, axis=-1))

    def received(self) -> Array:
        """Return how much each key is looked at by all queries together, ``... H S``."""
        if self._compiled is not None:
            return self._rounded(column_sums(self._compiled, self._sums))
        xp = self._xp
        sums: dict[int, Array] = {}
        for _, blocks in self._strips():
            for cols, _, weights in blocks:
                part = xp.sum(weights, axis=-2)
                sums[cols.start] = sums[cols.start] + part if cols.start in sums else part
        keys = spans(self.shape[-1], block_sizes(self._wide)[1])
        parts = [sums.get(span.start, self._zeros(span.stop - span.start)) for span in keys]
        return self._rounded(xp.concat(parts, axis=-1))

    def top(self, k: int) -> Top:
        """Return the k largest weights of each row and which keys they are of; of equal ones the first key."""
        k = whole_number("the number of keys of top", k, 1)
        xp, layout = self._xp, self._wide.layout
        indices = layout.key_indices(slice(0, 0)).dtype
        if self._compiled is not None and k <= LONGEST_TOP:
            found = row_statistics(self._compiled, self._sums, top=k)
            return Top(self._rounded(found.top_weights), xp.astype(found.top_keys, indices))
        parts = []
        for rows, blocks in self._strips():
            shape = (*self.shape[:-2], rows.stop - rows.start, k)
            best = xp.full(shape, -1.0, dtype=self._wide.q.dtype, device=layout.device)
            keys = xp.full(shape, -1, dtype=indices, device=layout.device)
            for cols, tile, weights in blocks:
                if tile.mask is not None:
                    weights = xp.where(tile.mask, weights, -1.0)
                best = xp.concat([best, xp.broadcast_to(weights, (*shape[:-1], weights.shape[-1]))], axis=-1)
                here = xp.broadcast_to(layout.key_indices(cols), (*shape[:-1], cols.stop - cols.start))
                keys = xp.concat([keys, here], axis=-1)
                order = xp.argsort(-best, axis=-1, stable=True)[..., :k]
                best, keys = (xp.take_along_axis(x, order, axis=-1) for x in (best, keys))
            parts.append((xp.where(best < 0, 0.0, best), xp.where(best < 0, -1, keys)))
        weights, keys = (xp.concat([part[i] for part in parts], axis=-2) for i in range(2))
        return Top(self._rounded(weights), keys)

    # How it is done

    @functools.cached_property
    def _wide(self) -> AttentionInputs:
        return self._problem.upcast()

    @functools.cached_property
    def _compiled(self) -> AttentionInputs | None:
        """The problem as the kernel looks at it; None where NumPy does, or another library."""
        return native_map_inputs(self._problem)

    @functools.cached_property
    def _sums(self) -> SoftmaxStats:
        """What normalises the scores of the kernel, in its precision; never kept in a file, which another may read."""
        assert self._compiled is not None
        return native_softmax_stats(self._compiled)

    @functools.cached_property
    def _normaliser(self) -> SoftmaxStats:
        """What normalises each row in the widest floats there are, whatever computes it."""
        if self._compiled is None:
            return softmax_stats(self._wide, slice(0, self.shape[-2]))
        found = native_softmax_stats(upcast_for_kernel(self._problem))
        return SoftmaxStats(*(self._xp.asarray(x, device=self._problem.layout.device) for x in found))

    @property
    def _xp(self) -> Any:
        return self._problem.layout.xp

    def _strips(self) -> Iterator[tuple[slice, Iterator[tuple[slice, BlockScores, Array]]]]:
        """Yield rows and, for each block of keys that they see something of, its columns, scores and weights."""
        rows, cols = (spans(n, size) for n, size in zip(self.shape[-2:], block_sizes(self._wide), strict=True))
        for span in rows:
            yield span, self._blocks(span, cols)

    def _blocks(self, rows: slice, cols: list[slice]) -> Iterator[tuple[slice, BlockScores, Array]]:
        row = self._normaliser.of(rows)
        for _, span, full in nonempty_blocks(self._wide, rows, cols):
            tile = block_scores(self._wide, rows, span, unmasked=full)
            yield span, tile, row.weights(tile.biased, self._xp)

    def _zeros(self, count: int) -> Array:
        """Return ``... H count`` zeros: what nothing has been added to yet."""
        wide = self._wide
        return self._xp.zeros((*self.shape[:-2], count), dtype=wide.q.dtype, device=wide.layout.device)

    def _rounded(self, x: Array) -> Array:
        return self._xp.astype(x, self._problem.dtype, copy=False)


def _rebuilt(arrays: Mapping[str, np.ndarray], fields: Mapping[str, Any], prefix: str = "") -> AttentionInputs:
    """Return the problem whose queries, keys and rules these are; complain unless they fit together."""
    q, k = arrays[f"{prefix}q"], arrays[f"{prefix}k"]
    rules = {
        name: restored(fields[name], arrays) for name in ("query_offset", "scale", "softcap", "mask", "bias", "sinks")
    }
    shape, dtype = tuple(fields["shape"]), np.dtype(fields["dtype"])
    layout = ScoreLayout(np, None, shape, rules.pop("query_offset"))
    fits = broadcasts(q.shape[:-1], shape[:-1]) and shape[-2:] == (q.shape[-2], k.shape[-2])
    if not fits or q.shape[-1] != k.shape[-1] or q.dtype != k.dtype or {q.dtype.kind, dtype.kind} != {"f"}:
        raise RegardError(f"a map of {shape} cannot be of q {q.shape} {q.dtype} and k {k.shape} {k.dtype}")
    finite_number("scale", rules["scale"])
    if rules["softcap"] is not None:
        finite_number("softcap", rules["softcap"], positive=True)
    for rule in (rules["mask"], rules["bias"]):
        if rule is not None:
            rule.check(layout)
    if rules["sinks"] is not None and not broadcasts(rules["sinks"].shape, (*shape[:-2], 1, 1)):
        raise RegardError(f"sinks {rules['sinks'].shape} are not those of a map of {shape}")
    return AttentionInputs(q=q, k=k, v=None, layout=layout, dtype=dtype, dropout=None, implementation="auto", **rules)


def _looked_at(p: AttentionInputs) -> AttentionInputs:
    """Return a problem without values and dropout; no gradient is taken of a look."""
    if p.layout.xp is not np:
        p = p.replace(
            q=p.q.detach() if hasattr(p.q, "detach") else p.q, k=p.k.detach() if hasattr(p.k, "detach") else p.k
        )
    return p if p.v is None and p.dropout is None else p.replace(v=None, dropout=None)


def _name_of(dtype: Any) -> str:
    """Return the name of a dtype as NumPy knows it; bfloat16, which it does not, is kept as float32."""
    name = str(dtype).split(".")[-1]
    return "float32" if name == "bfloat16" else name


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
        number = operator.index(None if isinstance(index, bool) else index)  # type: ignore[arg-type]
    except TypeError:
        raise RegardError(f"heads and batch entries are taken by integers and slices, got {index!r}") from None
    if not -size <= number < size:
        raise RegardError(f"index {number} is outside an axis of {size}")
    return number % size


def _cells(length: int, count: int) -> list[tuple[int, int]]:
    """Return `count` stretches, as equal as can be, that cover `length` positions."""
    count = min(count, length)
    return [(i * length // count, (i + 1) * length // count) for i in range(count)]


def _inside(cells: list[tuple[int, int]], span: slice) -> list[tuple[int, int, int]]:
    """Return the cells that share positions with `span`, and which of the span's positions those are."""
    return [
        (number, max(a, span.start) - span.start, min(b, span.stop) - span.start)
        for number, (a, b) in enumerate(cells)
        if a < span.stop and b > span.start
    ]
