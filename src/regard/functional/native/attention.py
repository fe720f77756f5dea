"""Bridge to the compiled attention kernel: supported calls and argument conversion.

The kernel takes masks and biases as key ranges, as arrays, or as an element for each distance. Other rules are
evaluated for a strip of queries at a time, so that n² cells are never stored.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.typing import Array
from regard.functional import native
from regard.functional.arrays import compute_dtype
from regard.functional.biases import Bias, DenseBias
from regard.functional.inputs import AttentionInputs
from regard.functional.masks import DenseMask, KeyRanges, LogicalAnd, Mask
from regard.functional.nonfinite import saturate_cast
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.score_layout import ALL, Index, take_broadcast

_DTYPES = ("float16", "bfloat16", "float32", "float64")
_STRIP_CELLS = 2**22  # of a rule that is evaluated for a strip of queries
_MAX_POSITIONS = 2**30


def unsupported_reason(p: AttentionInputs) -> str | None:
    """Return why the kernel cannot compute a call, or None if it can."""
    if native.kernel() is None:
        return native.unavailable_reason()
    if _name(p.dtype) not in _DTYPES:
        return f"the kernel supports {', '.join(_DTYPES)}; got {_name(p.dtype)}"
    if max(p.layout.shape[-2:]) >= _MAX_POSITIONS:
        return f"the kernel supports fewer than {_MAX_POSITIONS:,} positions"
    return None if p.layout.xp is np else _reason_against_library(p)


def native_forward(p: AttentionInputs, dtype: Any) -> Array:
    """Return the context, ``... H T Dv``, in `dtype`: the dtype of the result or the compute dtype."""
    return _forward(p, dtype)


def native_forward_with_stats(p: AttentionInputs, dtype: Any) -> tuple[Array, SoftmaxStats]:
    """Return the context and the softmax statistics of each row."""
    sums = [np.empty(p.context_shape[:-1], dtype) for dtype in (_compute_type(p), np.float64)]
    return _forward(p, dtype, *sums), stats_from_kernel(p, *sums)


def _forward(
    p: AttentionInputs, dtype: Any, row_max: np.ndarray | None = None, row_sum: np.ndarray | None = None
) -> Array:
    """Return the context; write the softmax statistics to the given arrays."""
    output = _empty(p, p.context_shape, dtype)
    out = to_kernel(output)
    for span, call in kernel_calls(p):
        sums = (None if x is None else x[..., span] for x in (row_max, row_sum))
        native.kernel().forward(call, out[..., span, :], *sums)
    return output


def computes_in_blocks(p: AttentionInputs) -> bool:
    """Tell whether the kernel computes blocks of queries, whose scores have the same bits in every pass."""
    kernel = native.kernel()
    return bool(p.layout.queries > kernel.SPLITKV_MAX_ROWS or p.layout.keys <= kernel.BLOCK_QUERIES)


def stats_from_kernel(p: AttentionInputs, row_max: np.ndarray, row_sum: np.ndarray) -> SoftmaxStats:
    """Return the softmax statistics written by the kernel as arrays of the input's library."""
    lead = p.layout.shape[:-2]
    if p.layout.xp is np and row_max.shape[:-1] == lead:
        return SoftmaxStats(row_max[..., None], row_sum[..., None])
    found = []
    for x in (row_max, row_sum):
        x = x[(0,) * (x.ndim - 1 - len(lead))]  # v may have leading axes that the scores do not have
        x = x[tuple(slice(0, 1) if size == 1 else slice(None) for size in lead)]
        found.append(p.layout.xp.asarray(x[..., None], device=p.layout.device))
    return SoftmaxStats(*found)


def kernel_calls(p: AttentionInputs) -> Iterator[tuple[slice, Any]]:
    """Yield calls of the kernel with the queries of each."""
    every = slice(0, p.layout.queries)
    rules = None if p.mask is None and p.bias is None else kernel_mask_args(p)
    for span in [every] if rules is None else rules.spans(every):
        yield span, kernel_call(p, rules, span)


def kernel_call(p: AttentionInputs, rules: KernelMaskArgs | None, rows: Index) -> Any:
    """Return the kernel's call for some queries.

    `rules` are those of `p`, None if it has none. With dropout, `rows` must be a slice.
    """
    kernel = native.kernel()
    lead = p.layout.shape[:-2] if p.v is None else p.context_shape[:-2]
    whole = isinstance(rows, slice) and rows == slice(0, p.layout.queries)
    q, k = to_kernel(_of_dtype(p, p.q)), to_kernel(_of_dtype(p, p.k))
    v = None if p.v is None else to_kernel(_of_dtype(p, p.v))
    return kernel.AttentionCall(
        lead,
        getattr(kernel.DType, _name(p.dtype)),
        q if whole else q[..., rows, :],
        k,
        v,
        p.scale,
        softcap=p.softcap or 0.0,
        **({} if rules is None else rules.of(rows)),
        sinks=None if p.sinks is None else _sinks(p),
        dropout=None if p.dropout is None else _dropout(p, rows),
    )


def _dropout(p: AttentionInputs, rows: Index) -> Any:
    """Return the kernel's dropout; a cell is dropped by a hash of its index among all queries."""
    drop = p.dropout
    assert drop is not None
    assert isinstance(rows, slice)
    threshold = int(np.uint64(drop.rate * 2**53))
    scale, queries, heads = 1 / (1 - drop.rate), p.layout.queries, p.layout.shape[:-2]
    return native.kernel().Dropout(threshold, drop.seed, scale, rows.start, queries, heads)


@dataclass(frozen=True)
class KernelMaskArgs:
    """Masks and biases in the kernel's form.

    Parameters
    ----------
    p : AttentionInputs
    key_ranges : KeyRanges or None
        The keys that each query attends to, if the other rules allow it.
    masks : list of boolean arrays, broadcasting to ``... H T S``
    bias : floating array, broadcasting to ``... H T S``, or None
    distance_bias : floating array ``... H N``, or None
        An element for each distance, row − column, from −(S − 1) on.
    others : list of Mask
        Rules that must be evaluated cell by cell.
    other_bias : Bias or None
        The same.
    """

    p: AttentionInputs
    key_ranges: KeyRanges | None
    masks: list[np.ndarray]
    others: list[Mask]
    bias: np.ndarray | None
    distance_bias: np.ndarray | None
    other_bias: Bias | None

    def spans(self, rows: slice) -> list[slice]:
        """Split the queries, so that rules are evaluated for a bounded number of cells at a time."""
        size = self.rows_at_once(rows)
        return [slice(a, min(a + size, rows.stop)) for a in range(rows.start, max(rows.stop, rows.start + 1), size)]

    def rows_at_once(self, rows: Index) -> int:
        """Return the number of queries for which rules are evaluated at a time."""
        count = rows.stop - rows.start if isinstance(rows, slice) else int(rows.shape[0])
        by_distance = self.distance_bias is not None and not isinstance(rows, slice)
        if self._in_strips or by_distance:
            cells_of_row = math.prod(self.p.layout.shape) // max(1, self.p.layout.queries)
            return max(1, _STRIP_CELLS // max(1, cells_of_row) // 64 * 64 or 64)
        return max(1, count)

    @property
    def _in_strips(self) -> bool:
        """Whether rules are evaluated for a strip of queries at a time."""
        return bool(self.others) or self.other_bias is not None or len(self.masks) > 1

    def blocks(self, rows: int, cols: int) -> dict[str, int]:
        """Return the number of full, partial and empty blocks of `rows` queries and `cols` keys."""
        queries, keys = self.p.layout.shape[-2:]
        every = -(-queries // rows) * -(-keys // cols)
        cellwise = bool(self.masks or self.others or (self.p.bias is not None and self.p.bias.can_mask))
        if self.key_ranges is None:
            return {"full": 0 if cellwise else every, "partial": every if cellwise else 0, "empty": 0}
        first, last = (np.broadcast_to(x, np.broadcast_shapes(x.shape, (queries,))) for x in self.key_ranges)
        first, last = np.broadcast_arrays(first, last)
        starts = np.arange(0, queries, rows)
        begin, from_all = (how.reduceat(first, starts, axis=-1) for how in (np.minimum, np.maximum))
        end, to_all = (how.reduceat(last, starts, axis=-1) for how in (np.maximum, np.minimum))
        read = -(-np.maximum(end - begin, 0) // cols)
        whole = np.maximum(to_all - begin, 0) // cols - -(-np.maximum(from_all - begin, 0) // cols)
        heads = math.prod(first.shape[:-1])
        mean_read, mean_whole = round(read.sum() / heads), round(np.clip(whole, 0, read).sum() / heads)
        full = 0 if cellwise else mean_whole
        return {"full": full, "partial": mean_read - full, "empty": max(0, every - mean_read)}

    @property
    def memory(self) -> int:
        """Bytes of the arrays made for the kernel."""
        strip = _STRIP_CELLS if self._in_strips else 0
        cell = 1 if self.other_bias is None else 1 + np.dtype(_compute_type(self.p)).itemsize
        made = [*(self.key_ranges or ()), *([] if self.distance_bias is None else [self.distance_bias])]
        return sum(int(x.nbytes) for x in made) + strip * cell

    def of(self, rows: Index) -> dict[str, np.ndarray | None]:
        """Return the kernel's keyword arguments for some queries."""
        found: dict[str, np.ndarray | None] = {}
        if self.key_ranges is not None:
            found["key_begin"], found["key_end"] = (_of_rows(x, rows, self.p.layout.queries) for x in self.key_ranges)
        mask = _all_of([take_broadcast(mask, rows, ALL) for mask in self.masks])
        layout = self.p.layout
        at = rows if isinstance(rows, slice) else layout.xp.asarray(rows, device=layout.device)
        for other in self.others:
            mask = _all_of([*([] if mask is None else [mask]), np.asarray(other.allows(layout, at, ALL))])
        if mask is not None:
            found["mask"] = _aligned(np.atleast_2d(mask)).view(np.uint8)
        bias = None if self.bias is None else take_broadcast(self.bias, rows, ALL)
        cellwise = self.other_bias if self.distance_bias is None or isinstance(rows, slice) else self.p.bias
        if cellwise is not None:
            bias = _compute_bias(self.p, cellwise.values(layout, at, ALL))
        if bias is not None:
            found["bias"] = bias
        if self.distance_bias is not None and isinstance(rows, slice):
            found["distance_bias"] = self.distance_bias[
                ..., rows.start : rows.stop + layout.keys - 1 + _block_queries()
            ]
        return found


def kernel_mask_args(p: AttentionInputs) -> KernelMaskArgs:
    """Return the mask and the bias of a call in the kernel's form."""
    key_ranges, masks, others = None, [], []
    for rule in _conjuncts(p.mask):
        ranges = rule.key_ranges(p.layout)
        if ranges is not None:
            key_ranges = ranges if key_ranges is None else key_ranges.intersect(ranges)
        elif isinstance(rule, DenseMask):
            masks.append(np.atleast_2d(np.asarray(rule.array)))
        else:
            others.append(rule)
    if key_ranges is not None:
        key_ranges = KeyRanges(*(np.clip(x, 0, p.layout.keys).astype(np.int32) for x in key_ranges))
    bias = distance_bias = other_bias = None
    if isinstance(p.bias, DenseBias):
        bias = _compute_bias(p, p.bias.parameter)
    elif p.bias is not None and p.bias.by_distance:
        distance_bias = _distance_bias(p, p.bias)
    else:
        other_bias = p.bias
    return KernelMaskArgs(p, key_ranges, masks, others, bias, distance_bias, other_bias)


def _of_dtype(p: AttentionInputs, x: Array) -> Array:
    return x if x.dtype == p.dtype else p.layout.xp.astype(x, p.dtype, copy=False)


def to_kernel(x: Array) -> np.ndarray:
    """Return an array that the kernel can read, copied only if necessary; half precision as 16-bit integers."""
    array = _aligned(x if isinstance(x, np.ndarray) else _tensor_to_numpy(x))
    return array.view(np.uint16) if array.dtype.itemsize == 2 else array


def _aligned(x: np.ndarray) -> np.ndarray:
    dtype = x.dtype
    if x.flags.aligned and dtype.isnative and dtype.alignment == dtype.itemsize:  # then its strides are aligned too
        return x
    return np.array(x, dtype=x.dtype.newbyteorder("="), order="C")


def _conjuncts(mask: Mask | None) -> Iterator[Mask]:
    if isinstance(mask, LogicalAnd):
        yield from _conjuncts(mask.one)
        yield from _conjuncts(mask.other)
    elif mask is not None:
        yield mask


def _all_of(masks: list[np.ndarray]) -> np.ndarray | None:
    found = None
    for mask in masks:
        found = mask if found is None else found & mask
    return found


def _of_rows(x: np.ndarray, rows: Index, count: int) -> np.ndarray:
    return x[..., rows] if x.shape[-1] == count and count > 1 else x


def _compute_bias(p: AttentionInputs, bias: Array) -> np.ndarray:
    """Return a bias in the compute dtype, saturated."""
    xp = p.layout.xp
    computed = xp.astype(bias, compute_dtype(xp, bias.dtype), copy=False)
    return np.atleast_2d(to_kernel(saturate_cast(computed, p.compute_dtype)))


def _distance_bias(p: AttentionInputs, bias: Bias) -> np.ndarray:
    """Return the bias of each distance, ``... H N``, from the last key and the first query on."""
    layout = p.layout
    if not layout.queries or not layout.keys:
        return np.zeros(max(0, layout.queries + layout.keys - 1 + _block_queries()), _compute_type(p))
    row, column = (_compute_bias(p, bias.values(layout, *at)) for at in ((slice(0, 1), ALL), (ALL, slice(0, 1))))
    row = np.broadcast_to(row, (*row.shape[:-2], 1, layout.keys))[..., 0, ::-1]
    column = np.broadcast_to(column, (*column.shape[:-2], layout.queries, 1))[..., 1:, 0]
    beyond = np.zeros((*row.shape[:-1], _block_queries()), row.dtype)
    return np.concatenate([row, column, beyond], axis=-1)


def _block_queries() -> int:
    return int(native.kernel().BLOCK_QUERIES)


def _sinks(p: AttentionInputs) -> np.ndarray:
    sinks = to_kernel(saturate_cast(p.sinks, p.compute_dtype))
    return sinks[..., 0, 0]


def _compute_type(p: AttentionInputs) -> Any:
    return np.float64 if _name(p.dtype) == "float64" else np.float32


def _name(dtype: Any) -> str:
    """Return the name of a dtype of any library and byte order."""
    return _numpy_name(dtype) if isinstance(dtype, np.dtype | type) else str(dtype).split(".")[-1]


@functools.lru_cache  # slow to compute
def _numpy_name(dtype: Any) -> str:
    return str(np.dtype(dtype).name)


def _empty(p: AttentionInputs, shape: tuple[int, ...], dtype: Any) -> Array:
    if p.layout.xp is np:
        return native.empty_like(p.q, shape, np.dtype(dtype).newbyteorder("="))
    return p.layout.xp.empty(shape, dtype=dtype, device=p.layout.device)


def _reason_against_library(p: AttentionInputs) -> str | None:
    """Return why the kernel does not support these arrays; None for plain PyTorch tensors on the CPU."""
    library = p.layout.xp.__name__.split(".")[-1]
    if library != "torch" or p.layout.device.type != "cpu":
        return f"the kernel supports arrays of NumPy and of PyTorch on the CPU; got {library} on {p.layout.device}"
    import torch

    tensors = [x for x in (p.q, p.k, p.v, p.sinks, getattr(p.bias, "parameter", None)) if x is not None]
    if torch.compiler.is_compiling() or any(type(x) not in (torch.Tensor, torch.nn.Parameter) for x in tensors):
        return "PyTorch traces the call"
    if torch.jit.is_tracing() or torch._C._len_torch_dispatch_stack():  # such as make_fx or an operation counter
        return "PyTorch intercepts the operations of the call"
    derived = torch.autograd.forward_ad._current_level >= 0
    if derived or (torch.is_grad_enabled() and any(x.requires_grad for x in tensors)):
        return "PyTorch differentiates the call (attention_vjp returns the kernel's gradients)"
    try:
        for x in tensors:
            _tensor_to_numpy(x)
    except RuntimeError:  # inside a transformation such as vmap tensors have no memory
        return "PyTorch transforms the call"
    return None


def _tensor_to_numpy(x: Any) -> np.ndarray:
    import torch

    x = x.detach()
    array: np.ndarray = (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy()
    return array
