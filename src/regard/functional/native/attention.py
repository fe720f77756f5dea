"""Bridge to the compiled attention kernel: supported calls and argument conversion."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from regard.functional import native
from regard.functional.arrays import Array, device, namespace
from regard.functional.biases.base import Bias
from regard.functional.biases.score_mod import is_score_function
from regard.functional.frameworks import Framework, framework, framework_of
from regard.functional.inputs import AttentionInputs, may_overflow
from regard.functional.native.convert import compute_type, dtype_name, to_kernel
from regard.functional.native.mask_args import KernelMaskArgs, kernel_mask_args
from regard.functional.nonfinite import saturate_cast
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.scores.layout import Index

_DTYPES = ("float16", "bfloat16", "float32", "float64")
_MAX_POSITIONS = 2**30
_BITS = {size: np.dtype(f"i{size}") for size in (2, 4, 8)}  # integers of the size of a float


def unsupported_reason(p: AttentionInputs, *, with_gradient: bool = False) -> str | None:
    """Return why the kernel cannot compute a call, or None if it can; `with_gradient` as in `choose_implementation`."""
    if native.kernel() is not None and max(p.layout.shape[-2:]) >= _MAX_POSITIONS:
        return f"the kernel supports fewer than {_MAX_POSITIONS:,} positions"
    if native.kernel() is not None and p.bias is not None and is_score_function(p.bias):
        return "score_mod is a Python function of the scores (a ScoreMod with derivative=1 only adds to them)"
    is_numpy = p.layout.xp is np
    if is_numpy and native.kernel() is not None and _has_numpy_dtype(p.dtype):
        return None  # the usual case
    reason = unsupported_arrays_reason(p.layout.xp, p.layout.device, p.dtype, () if is_numpy else p.parameters.values())
    return _reason_against_gradient(p, with_gradient) if reason is None else reason


def unsupported_arrays_reason(xp: Any, where: Any, dtype: Any, arrays: Iterable[Array]) -> str | None:
    """Return why the kernel cannot compute with these arrays of a library on a device, or None if it can."""
    if native.kernel() is None:
        return native.unavailable_reason()
    if dtype_name(dtype) not in _DTYPES:
        return f"the kernel supports {', '.join(_DTYPES)}; got {dtype_name(dtype)}"
    return None if xp is np else _framework(xp).unsupported_reason(where, arrays)


@functools.lru_cache
def _has_numpy_dtype(dtype: np.dtype[Any]) -> bool:
    return dtype_name(dtype) in _DTYPES


def native_forward(
    p: AttentionInputs, dtype: Any, row_max: np.ndarray | None = None, row_sum: np.ndarray | None = None
) -> tuple[Array, bool]:
    """Return the context, ``... H T Dv``, and whether it is valid: no sum overflowed.

    `dtype` is that of the result or the compute dtype. The kernel writes the softmax statistics to `row_max` and
    `row_sum`, ``... H T``, if they are given; it then computes bfloat16 in float32.
    """
    output = empty_array(p.q, p.context_shape, dtype)
    out, finite, kernel = to_kernel(output), True, native.kernel()
    for span, call in kernel_calls(p, tiles=row_max is None):
        no_stats = row_max is None or row_sum is None
        stats = (None, None) if no_stats else (row_max[..., span], row_sum[..., span])  # type: ignore[index]
        finite &= kernel.forward(call, out[..., span, :], *stats)
    return output, finite or not may_overflow(p.to_compute_dtype())


def native_forward_with_weights(p: AttentionInputs) -> tuple[Array, Array] | None:
    """Return the context and the weights, ``... H T S``, in the compute dtype, of NumPy arrays.

    None where the kernel cannot write the weights of a row while it holds them: with few queries, with dropout, with
    very many keys, with values of further axes or with products of bfloat16; or where a score or a result is not
    finite.
    """
    if (
        p.layout.xp is not np
        or p.dropout is not None
        or _may_use_tiles(p)
        or p.context_shape[:-1] != p.layout.shape[:-1]
    ):
        return None
    kernel, output = native.kernel(), empty_array(p.q, p.context_shape, p.compute_dtype)
    weights = native.empty(p.layout.shape, output.dtype)
    for span, call in kernel_calls(p):
        if not kernel.keeps_weights(call):
            return None
        if not kernel.forward(call, output[..., span, :], None, None, weights[..., span, :]):
            return None
    return output, weights


def native_forward_with_stats(p: AttentionInputs, dtype: Any) -> tuple[Array, SoftmaxStats, bool]:
    """Return the context, the softmax statistics of each row, and whether they are valid."""
    row_max, row_sum = (np.empty(p.context_shape[:-1], each) for each in (compute_type(p.dtype), np.float64))
    output, is_valid = native_forward(p, dtype, row_max, row_sum)
    return output, stats_from_kernel(p, row_max, row_sum), is_valid


def computes_in_blocks(p: AttentionInputs) -> bool:
    """Tell whether the kernel computes blocks of queries, whose scores have the same bits in every pass."""
    kernel = native.kernel()
    few_keys = p.layout.keys <= kernel.BLOCK_QUERIES and p.layout.queries > 1
    return not _may_use_tiles(p) and bool(p.layout.queries > kernel.SPLITKV_MAX_QUERIES or few_keys)


def _may_use_tiles(p: AttentionInputs) -> bool:
    """Tell whether the context may be computed in products of bfloat16, which give no weights and no statistics."""
    return dtype_name(p.dtype) == "bfloat16" and native.kernel().tiles() != "float32"


def stats_from_kernel(p: AttentionInputs, row_max: np.ndarray, row_sum: np.ndarray) -> SoftmaxStats:
    """Return the softmax statistics written by the kernel as arrays of the input's library."""
    lead = p.layout.shape[:-2]
    if p.layout.xp is np and row_max.shape[:-1] == lead:
        return SoftmaxStats(row_max[..., None], row_sum[..., None])
    stats = []
    for x in (row_max, row_sum):
        x = x[(0,) * (x.ndim - 1 - len(lead))]  # v may have leading axes that the scores do not have
        x = x[tuple(slice(0, 1) if size == 1 else slice(None) for size in lead)]
        stats.append(to_library(p, x[..., None]))
    return SoftmaxStats(*stats)


def to_library(p: AttentionInputs, x: Array) -> Array:
    """Return an array of the kernel as one of the library of the inputs, which it may be already."""
    if p.layout.xp is np or not isinstance(x, np.ndarray):
        return x
    library = _framework(p.layout.xp)
    return library.from_numpy(x) if library.shares_memory else p.layout.xp.asarray(x, device=p.layout.device)


def kernel_calls(p: AttentionInputs, *, tiles: bool = False) -> Iterable[tuple[slice, Any]]:
    """Return calls of the kernel with the queries of each, made one after the other."""
    if p.mask is None and p.bias is None:
        every = slice(0, p.layout.shape[-2])
        return [(every, kernel_call(p, None, every, tiles=tiles))]
    args = kernel_mask_args(p)
    return ((span, kernel_call(p, args, span, tiles=tiles)) for span in args.strips())


def kernel_call(p: AttentionInputs, mask_args: KernelMaskArgs | None, rows: Index, *, tiles: bool = False) -> Any:
    """Return the kernel's call for some queries.

    `mask_args` are those of `p`, None if it has none. With dropout, `rows` must be a slice. With `tiles`, products are
    of bfloat16 where the processor has such instructions; the call is then for the context only.
    """
    kernel = native.kernel()
    lead = p.layout.shape[:-2] if p.v is None else p.context_shape[:-2]
    whole = isinstance(rows, slice) and rows == slice(0, p.layout.shape[-2])
    q = to_kernel(p.q if p.q.dtype == p.dtype else p.layout.xp.astype(p.q, p.dtype))
    k = p.k if p.k.dtype == p.dtype else _keys_or_values(p, p.k)
    v = p.v if p.v is None or p.v.dtype == p.dtype else _keys_or_values(p, p.v)
    return kernel.AttentionCall(
        lead,
        kernel_dtype(p.dtype),
        q if whole else q[..., rows, :],
        to_kernel(k),
        None if v is None else to_kernel(v),
        p.scale,
        softcap=p.softcap or 0.0,
        **({} if mask_args is None else mask_args.arguments(rows)),
        sinks=None if p.sinks is None else _sinks(p),
        dropout=None if p.dropout is None else _dropout(p, rows),
        k_dtype=kernel_dtype(k.dtype),
        v_dtype=None if v is None else kernel_dtype(v.dtype),
        tiles=tiles,
    )


@functools.lru_cache
def kernel_dtype(dtype: Any) -> Any:
    """Return the kernel's name of a dtype."""
    return getattr(native.kernel().DType, dtype_name(dtype))


def _dropout(p: AttentionInputs, rows: Index) -> Any:
    """Return the kernel's dropout; a weight is dropped by a hash of its index in the whole map."""
    drop = p.dropout
    assert drop is not None
    assert isinstance(rows, slice)
    threshold = int(np.uint64(drop.rate * 2**53))
    scale, queries, heads = 1 / (1 - drop.rate), p.layout.queries, p.layout.shape[:-2]
    return native.kernel().Dropout(threshold, drop.seed, scale, rows.start, queries, heads)


def _keys_or_values(p: AttentionInputs, x: Array) -> Array:
    """Return keys or values in the dtype of the call, or in half precision, which the kernel upcasts to float32."""
    if dtype_name(p.dtype) == "float32" and dtype_name(x.dtype) in ("float16", "bfloat16"):
        return x
    return p.layout.xp.astype(x, p.dtype)


def _sinks(p: AttentionInputs) -> np.ndarray:
    sinks = to_kernel(saturate_cast(p.sinks, p.compute_dtype))
    return sinks[..., 0, 0]


def empty_array(like: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an uninitialised array of the library of `like`, in its memory order if that is NumPy or PyTorch."""
    if isinstance(like, np.ndarray):
        return native.empty_like(like, shape, np.dtype(dtype).newbyteorder("="))
    library = framework_of(like)
    if not library.shares_memory:
        return namespace(like).empty(shape, dtype=dtype, device=device(like))
    return library.from_numpy(native.empty_like(to_kernel(like), shape, _BITS[dtype.itemsize]), dtype)


def is_differentiated(p: AttentionInputs) -> bool:
    """Tell whether the library of the arrays records the gradient of a call."""
    return p.layout.xp is not np and has_gradients(p.parameters.values())


def has_gradients(arrays: Iterable[Array]) -> bool:
    """Tell whether the library of these arrays records the gradient of a function of them."""
    operands = list(arrays)
    return framework_of(operands[0]).has_gradients(operands)


def _framework(xp: Any) -> Framework:
    first, _, rest = xp.__name__.partition(".")  # jax.numpy, array_api_compat.torch, array_api_strict
    return framework(rest.partition(".")[0] if first == "array_api_compat" else first)


def _reason_against_gradient(p: AttentionInputs, with_gradient: bool) -> str | None:
    """Return why the kernel cannot compute a call that PyTorch differentiates."""
    if not is_differentiated(p):
        return None
    if not with_gradient:
        return "PyTorch differentiates the call (attention_vjp returns the kernel's gradients)"
    if p.bias is not None and p.bias.differentiated and type(p.bias).gradient is Bias.gradient:
        return f"PyTorch differentiates the call, and {type(p.bias).__name__} has no method gradient"
    return None
