"""Bridge to the compiled kernel's attention of sequences of different lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from regard.functional import native
from regard.functional.arrays import Array, device
from regard.functional.native.attention import empty_array, has_gradients, unsupported_arrays_reason
from regard.functional.native.convert import compute_type, dtype_name, to_kernel
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.score_layout import MAX_POSITION

if TYPE_CHECKING:
    from regard.functional.varlen import VarlenInputs


def varlen_unsupported_reason(p: VarlenInputs) -> str | None:
    """Return why the kernel cannot compute a call, or None if it can."""
    arrays = [x for x in (p.q, p.k, p.v, p.k_scale, p.v_scale) if x is not None]
    reason = unsupported_arrays_reason(p.xp, device(p.q), p.dtype, arrays)
    return "PyTorch differentiates the call" if reason is None and has_gradients(arrays) else reason


def native_varlen(p: VarlenInputs, *, with_lse: bool) -> tuple[Array, Array | None, list[int]]:
    """Return the output, ``Tq H Dv``, the log-sum-exp, ``Tq H``, if wanted, and the sequences of which sums overflowed.

    With the log-sum-exp the output is in the compute dtype.
    """
    rows, heads = (int(n) for n in p.q.shape[:2])
    output = empty_array(p.q, (rows, heads, int(p.v.shape[-1])), p.compute_dtype if with_lse else p.dtype)
    if not with_lse:
        return output, None, varlen_call(p).forward(to_kernel(output))
    row_max, row_sum = (np.empty((heads, rows), dtype) for dtype in (compute_type(p.dtype), np.float64))
    overflowed = varlen_call(p).forward(to_kernel(output), row_max, row_sum)
    stats = SoftmaxStats(*(p.xp.asarray(x[..., None], device=device(p.q)) for x in (row_max, row_sum)))
    return output, p.xp.permute_dims(stats.lse(p.xp, device(p.q)), (1, 0)), overflowed


def varlen_call(p: VarlenInputs) -> Any:
    """Return the kernel's call."""
    kernel = native.kernel()
    k, v = _cache(p, p.k), _cache(p, p.v)
    key_begin, key_end = _key_ranges(p)
    return kernel.VarlenCall(
        getattr(kernel.DType, dtype_name(p.dtype)),
        to_kernel(p.q if p.q.dtype == p.dtype else p.xp.astype(p.q, p.dtype)),
        to_kernel(k),
        to_kernel(v),
        p.cu_seqlens_q,
        p.cu_seqlens_k,
        p.scale,
        softcap=p.softcap or 0.0,
        key_begin=key_begin,
        key_end=key_end,
        distance_bias=None if p.slopes is None else _distance_bias(p),
        block_table=p.block_table,
        k_dtype=getattr(kernel.DType, dtype_name(k.dtype)),
        v_dtype=getattr(kernel.DType, dtype_name(v.dtype)),
        k_scale=None if p.k_scale is None else to_kernel(p.k_scale),
        v_scale=None if p.v_scale is None else to_kernel(p.v_scale),
    )


def _cache(p: VarlenInputs, x: Array) -> Array:
    """Return keys or values in the dtype of the call, or in one that the kernel widens."""
    name = dtype_name(x.dtype)
    widened = name == "int8" or (dtype_name(p.dtype) == "float32" and name in ("float16", "bfloat16"))
    return x if x.dtype == p.dtype or widened else p.xp.astype(x, p.dtype)


def _key_ranges(p: VarlenInputs) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the first key of each query in its sequence and the end of its keys, int32; None if there is no bound."""
    left, right = p.window
    if right is not None and p.query_counts.max(initial=0) <= 1:
        right = None  # the last query attends to the last key
    if left is None and right is None:
        return None, None
    first = p.key_counts - p.query_counts - p.cu_seqlens_q[:-1]  # the position of query 0 of all
    position = np.arange(p.q.shape[0], dtype=np.int32) + np.repeat(first, p.query_counts)
    begin = None if left is None else (position - min(left, MAX_POSITION)).astype(np.int32)
    return begin, None if right is None else (position + (min(right, MAX_POSITION) + 1)).astype(np.int32)


def _distance_bias(p: VarlenInputs) -> np.ndarray:
    """Return the bias of each distance, ``H N`` or ``B H N``, from as many as the longest sequence has queries on."""
    longest, keys = (int(counts.max(initial=0)) for counts in (p.query_counts, p.key_counts))
    distance = np.abs(np.arange(longest + keys + native.kernel().BLOCK_QUERIES) - (longest - 1))
    assert p.slopes is not None
    bias: np.ndarray = (-p.slopes[..., None] * distance).astype(compute_type(p.dtype))
    return bias
