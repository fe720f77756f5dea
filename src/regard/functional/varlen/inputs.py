"""The arguments of `attention_varlen`: their validation, and each sequence as a call of `attention`."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number, whole_number
from regard.functional.arrays import (
    Array,
    as_array,
    compute_dtype,
    device,
    is_floating,
    is_half,
    namespace,
    result_dtype,
)
from regard.functional.biases.distance import ALiBi
from regard.functional.inputs import IMPLEMENTATIONS, Implementation, Options
from regard.functional.masks.structured import SegmentMask
from regard.functional.native.convert import dtype_name
from regard.functional.scores.layout import MAX_POSITION


class VarlenOptions(TypedDict, total=False):
    """The keywords of `attention_varlen`, where each is documented, and of its vjp."""

    max_seqlen_q: int | None
    max_seqlen_k: int | None
    dropout_p: float
    softmax_scale: float | None
    causal: bool
    window_size: tuple[int | None, int | None]
    softcap: float
    alibi_slopes: Array | None
    attention_chunk: int
    sinks: Array | None
    block_table: Array | None
    k_scale: Array | None
    v_scale: Array | None
    implementation: Implementation


class Sequence(NamedTuple):
    """A sequence as a call of `attention`, and which rows of `q` are its queries."""

    rows: slice
    q: Array  # H T D
    k: Array  # G S D
    v: Array  # G S Dv
    options: Options


@dataclass(frozen=True, eq=False)
class VarlenInputs:
    """Validated arguments of `attention_varlen`; lengths and block table are int32 of NumPy."""

    q: Array  # Tq H D
    k: Array  # Tk G D, or pages N P G D
    v: Array  # Tk G Dv, or pages N P G Dv
    cu_seqlens_q: np.ndarray  # B + 1
    cu_seqlens_k: np.ndarray  # B + 1
    block_table: np.ndarray | None  # B M
    k_scale: Array | None  # G, Tk G or N P G
    v_scale: Array | None
    dtype: Any  # of the result
    scale: float
    softcap: float | None
    window: tuple[int | None, int | None]
    slopes: np.ndarray | None  # H or B H
    chunk: int  # positions of a chunk; 0: there are none
    sinks: Array | None  # H
    implementation: Implementation

    @property
    def xp(self) -> Any:
        """The array API namespace."""
        return namespace(self.q)

    @property
    def compute_dtype(self) -> Any:
        """float32 for half precision, else the dtype of the result."""
        return compute_dtype(self.xp, self.dtype)

    @property
    def parameters(self) -> dict[str, Array]:
        """The arrays that have gradients, by name: q, k, v, and the sinks if given."""
        arrays = {"q": self.q, "k": self.k, "v": self.v, "sinks": self.sinks}
        return {name: x for name, x in arrays.items() if x is not None}

    @functools.cached_property
    def query_counts(self) -> np.ndarray:
        """The number of queries of each sequence."""
        return np.diff(self.cu_seqlens_q)

    @functools.cached_property
    def key_counts(self) -> np.ndarray:
        """The number of keys of each sequence."""
        return np.diff(self.cu_seqlens_k)

    @property
    def has_cache(self) -> bool:
        """Whether keys and values are in pages or int8, of which the kernel has no gradients."""
        return any(x is not None for x in (self.block_table, self.k_scale, self.v_scale))

    def rows(self, n: int) -> slice:
        """Return which rows of `q` are the queries of a sequence."""
        return slice(*self.cu_seqlens_q[n : n + 2].tolist())

    def key_rows(self, n: int) -> slice:
        """Return which rows of `k` are the keys of a sequence, without pages."""
        return slice(*self.cu_seqlens_k[n : n + 2].tolist())

    def sequences(self) -> Iterator[Sequence]:
        """Yield every sequence."""
        return map(self.sequence, range(len(self.query_counts)))

    def some(self, numbers: Iterable[int]) -> Iterator[tuple[int, Sequence]]:
        """Yield some sequences with their numbers."""
        return ((n, self.sequence(n)) for n in numbers)

    def sequence(self, n: int) -> Sequence:
        """Return a sequence as a call of `attention`."""
        rows = self.rows(n)
        slopes = self.slopes if self.slopes is None or self.slopes.ndim == 1 else self.slopes[n]
        options: Options = {
            "scale": self.scale,
            "softcap": self.softcap,
            "window": self.window,
            "mask": self._chunks(n) if self.chunk else None,
            "bias": None if slopes is None else ALiBi(self.xp.asarray(slopes, device=device(self.q))),
            "sinks": None if self.sinks is None else self.xp.astype(self.sinks, self.compute_dtype, copy=False),
            "implementation": self.implementation,
        }
        k, v = self._rows(n, self.k, self.k_scale), self._rows(n, self.v, self.v_scale)
        return Sequence(rows, by_head(self.q[rows, ...]), by_head(k), by_head(v), options)

    def _chunks(self, n: int) -> SegmentMask:
        """Return the chunk of each query and key of a sequence as its segment."""
        queries, keys = int(self.query_counts[n]), int(self.key_counts[n])
        chunks = (np.arange(start, keys) // self.chunk for start in (keys - queries, 0))
        return SegmentMask(*(self.xp.asarray(x, device=device(self.q)) for x in chunks))

    def _rows(self, n: int, x: Array, scale: Array | None) -> Array:
        """Return keys or values of a sequence, ``S G F``; those of int8 times their scales."""
        x = self._of_sequence(n, x)
        if scale is None:
            return x if x.dtype == self.dtype else self.xp.astype(x, self.dtype)
        scale = scale if scale.ndim == 1 else self._of_sequence(n, scale)
        return self.xp.astype(x, self.compute_dtype) * self.xp.astype(scale, self.compute_dtype)[..., None]

    def _of_sequence(self, n: int, x: Array) -> Array:
        start, end = (int(i) for i in self.cu_seqlens_k[n : n + 2])
        if self.block_table is None:
            return x[start:end, ...]
        page_size = int(x.shape[1])
        pages = self.block_table[n, : -(-(end - start) // page_size) if page_size else 0]
        rows = self.xp.take(x, self.xp.asarray(pages.astype(np.int64), device=device(x)), axis=0)
        return self.xp.reshape(rows, (len(pages) * page_size, *x.shape[2:]))[: end - start, ...]


def validate_varlen(
    q: Array, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, **options: Unpack[VarlenOptions]
) -> VarlenInputs:
    """Return the arguments of `attention_varlen`, checked."""
    if unknown := options.keys() - VarlenOptions.__annotations__:
        raise TypeError(f"attention_varlen has no argument {', '.join(sorted(unknown))}")
    q, k, v = as_array(q, "q"), as_array(k, "k"), as_array(v, "v")
    namespace(q, k, v)
    table, causal = options.get("block_table"), options.get("causal", False)
    _check_shapes(q, k, v, paged=table is not None)
    if options.get("dropout_p", 0) != 0:
        raise RegardError(f"attention_varlen has no dropout: dropout_p must be 0, got {options['dropout_p']!r}")
    if causal not in (True, False):
        raise RegardError(f"causal must be True or False, got {causal!r}")
    implementation = options.get("implementation", "auto")
    if implementation not in IMPLEMENTATIONS:
        raise RegardError(f"implementation must be one of {', '.join(IMPLEMENTATIONS)}, got {implementation!r}")
    starts_q = _starts("cu_seqlens_q", cu_seqlens_q, int(q.shape[0]), options.get("max_seqlen_q"))
    rows = None if table is not None else int(k.shape[0])
    starts_k = _starts("cu_seqlens_k", cu_seqlens_k, rows, options.get("max_seqlen_k"))
    if starts_q.shape != starts_k.shape:
        counts = f"{len(starts_q)} and {len(starts_k)}"
        raise RegardError(f"cu_seqlens_q and cu_seqlens_k must be of the same sequences, got {counts} numbers")
    k_scale, v_scale = (_scale(name, options.get(f"{name}_scale"), x) for name, x in (("k", k), ("v", v)))
    dtype = _result_dtype(q, [x for x, scale in ((k, k_scale), (v, v_scale)) if scale is None], paged=table is not None)
    scale, softcap, slopes = (options.get(name) for name in ("softmax_scale", "softcap", "alibi_slopes"))
    left, right = _window(options.get("window_size", (-1, -1)))
    return VarlenInputs(
        q=q,
        k=k,
        v=v,
        cu_seqlens_q=starts_q,
        cu_seqlens_k=starts_k,
        block_table=None if table is None else _block_table(table, np.diff(starts_k), k),
        k_scale=k_scale,
        v_scale=v_scale,
        dtype=dtype,
        scale=1 / math.sqrt(q.shape[-1] or 1) if scale is None else finite_number("softmax_scale", scale),
        softcap=finite_number("softcap", softcap, positive=True) if softcap else None,
        window=(left, 0 if causal else right),
        slopes=None if slopes is None else _slopes(slopes, len(starts_q) - 1, int(q.shape[1])),
        chunk=min(whole_number("attention_chunk", options.get("attention_chunk", 0), 0), MAX_POSITION),
        sinks=None if (sinks := options.get("sinks")) is None else _sinks(sinks, q),
        implementation=implementation,
    )


def _check_shapes(q: Array, k: Array, v: Array, *, paged: bool) -> None:
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}"
    axes = 4 if paged else 3
    if q.ndim != 3 or k.ndim != axes or v.ndim != axes:
        expected = "q Tq H D, and k and v as pages, N P G D" if paged else "q Tq H D, k Tk G D and v Tk G Dv"
        hint = "" if paged else " (pages need a block_table)"
        raise RegardError(f"attention_varlen takes {expected}{hint}, got {shapes}")
    if q.shape[-1] != k.shape[-1] or k.shape[:-1] != v.shape[:-1]:
        raise RegardError(f"k and v need the same positions and heads, and q and k the same features, got {shapes}")
    heads, groups = int(q.shape[1]), int(k.shape[-2])
    if heads and (groups == 0 or heads % groups):
        raise RegardError(f"{heads} query heads cannot share {groups} heads of k: the second must divide the first")


def _starts(name: str, value: Array, rows: int | None, longest: int | None) -> np.ndarray:
    """Return where sequences begin, as int32, checked; `rows` is where the last one must end, if that is known."""
    starts = _integers(name, value)
    if starts.ndim != 1 or not starts.size:
        raise RegardError(f"{name} {starts.shape} must have one axis, B + 1 numbers")
    if starts[0] != 0 or (starts[1:] < starts[:-1]).any():
        raise RegardError(f"{name} must begin with 0 and not decrease, got {starts.tolist()}")
    if rows is not None and starts[-1] != rows:
        raise RegardError(f"{name} must end with the {rows} rows of {name[-1]}, got {starts[-1]}")
    if starts[-1] > MAX_POSITION:
        raise RegardError(f"{name} is out of range: positions are at most {MAX_POSITION}")
    if longest is not None:
        most = int((starts[1:] - starts[:-1]).max(initial=0))
        if whole_number(f"max_seqlen_{name[-1]}", longest, 0) < most:
            raise RegardError(f"max_seqlen_{name[-1]} is {longest}, but a sequence has {most}")
    return np.ascontiguousarray(starts, np.int32)


def _integers(name: str, value: Array) -> np.ndarray:
    if getattr(getattr(value, "device", None), "type", "cpu") != "cpu":
        raise RegardError(f"{name} is on {value.device}, but is read on the CPU; move it with .cpu()")
    array = np.asarray(as_array(value, name))
    if array.dtype.kind not in "iu":
        raise RegardError(f"{name} must be integers, got {array.dtype}")
    return array


def _block_table(value: Array, counts: np.ndarray, k: Array) -> np.ndarray:
    """Return the table as int32; every page that a key lies in is there."""
    table, (pages, page_size) = _integers("block_table", value), (int(n) for n in k.shape[:2])
    if table.ndim != 2 or table.shape[0] != counts.size:
        raise RegardError(f"block_table {table.shape} must have a row for each of {counts.size} sequences")
    needed = -(-counts // max(page_size, 1))
    if needed.max(initial=0) > table.shape[1] or (not page_size and counts.any()):
        raise RegardError(
            f"block_table {table.shape} has room for {table.shape[1] * page_size} keys a sequence, "
            f"but one has {counts.max()}"
        )
    if table.size and table.min() >= 0 and table.max() < pages:  # the usual case
        return table.astype(np.int32)
    read = np.arange(table.shape[1]) < needed[:, None]
    wrong = read & ((table < 0) | (table >= pages))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise RegardError(f"block_table{list(at)} is {table[at]}; there are pages 0 to {pages - 1}")
    return np.where(read, table, 0).astype(np.int32)


def _scale(name: str, value: Array | None, x: Array) -> Array | None:
    """Return the scales of int8 in float32, None for other dtypes."""
    xp = namespace(x)
    if (value is None) == (x.dtype == xp.int8):
        raise RegardError(
            f"{name} is int8 and needs {name}_scale, one for each head, or for each position and head"
            if value is None
            else f"{name}_scale is for {name} of int8, got {x.dtype}"
        )
    if value is None:
        return None
    scale = as_array(value, f"{name}_scale")
    if not is_floating(scale) or tuple(scale.shape) not in ((x.shape[-2],), tuple(x.shape[:-1])):
        expected = f"({x.shape[-2]},) or {tuple(x.shape[:-1])}"
        raise RegardError(f"{name}_scale must be floating, {expected}, got {scale.dtype} {tuple(scale.shape)}")
    scale = xp.asarray(scale, device=device(x)) if isinstance(scale, np.ndarray) else scale
    return xp.astype(scale, xp.float32, copy=False)


def _result_dtype(q: Array, others: list[Array], *, paged: bool) -> Any:
    """Return the common dtype of q and of keys and values that are not int8."""
    if len(others) < 2 and not is_floating(q):
        raise RegardError(f"q must be floating where k or v is int8, got {q.dtype}")
    dtype = result_dtype(q, *others)
    widened = compute_dtype(namespace(q), dtype) == namespace(q).float32
    for x in others if paged else []:
        if dtype_name(x.dtype) != dtype_name(dtype) and not (widened and is_half(x.dtype)):
            raise RegardError(
                f"pages are read as they are: they must be of {dtype}, half precision or int8, got {x.dtype}"
            )
    return dtype


def _window(value: Any) -> tuple[int | None, int | None]:
    try:
        left, right = (None if side is None or operator.index(side) == -1 else operator.index(side) for side in value)
    except (TypeError, ValueError):
        raise RegardError(f"window_size must be (left, right), counts of keys or −1 for all, got {value!r}") from None
    if min(left or 0, right or 0) < 0:
        raise RegardError(f"window_size must be counts of keys or −1 for all, got {value!r}")
    return left, right


def _slopes(value: Array, sequences: int, heads: int) -> np.ndarray:
    slopes = as_array(value, "alibi_slopes")
    slopes = np.asarray(slopes.detach() if hasattr(slopes, "detach") else slopes)
    if slopes.dtype.kind != "f" or slopes.shape not in ((heads,), (sequences, heads)):
        raise RegardError(
            f"alibi_slopes must be floating, ({heads},) or ({sequences}, {heads}), got {slopes.dtype} of {slopes.shape}"
        )
    return slopes


def _sinks(value: Array, q: Array) -> Array:
    sinks, heads = as_array(value, "sinks"), int(q.shape[1])
    if not is_floating(sinks) or tuple(sinks.shape) != (heads,):
        raise RegardError(f"sinks must be floating, ({heads},), got {sinks.dtype} of {tuple(sinks.shape)}")
    sinks = namespace(q).asarray(sinks, device=device(q)) if isinstance(sinks, np.ndarray) else sinks
    namespace(q, sinks)
    return sinks


def by_head(x: Array) -> Array:
    """Return ``T H D`` as ``H T D``, or the other way round."""
    return x.swapaxes(0, 1) if type(x) is np.ndarray else namespace(x).permute_dims(x, (1, 0, 2))
