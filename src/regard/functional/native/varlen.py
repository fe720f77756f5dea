"""Bridge to the compiled kernel's attention of sequences of different lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.functional import native
from regard.functional.arrays import Array, device, narrowed
from regard.functional.native.attention import empty_array, unsupported_arrays_reason
from regard.functional.native.convert import compute_type, dtype_name, to_kernel
from regard.functional.nonfinite import clamp_posinf, nonzero, saturate_cast, zero_neginf
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.scores.layout import MAX_POSITION
from regard.functional.varlen.inputs import VarlenInputs


def varlen_unsupported_reason(p: VarlenInputs) -> str | None:
    """Return why the kernel cannot compute a call, or None if it can."""
    arrays = [*p.parameters.values(), *(x for x in (p.k_scale, p.v_scale) if x is not None)]
    return unsupported_arrays_reason(p.xp, device(p.q), p.dtype, arrays)


def native_varlen(p: VarlenInputs) -> tuple[Array, list[int]]:
    """Return the output, ``Tq H Dv``, and the sequences in which a sum may have overflowed."""
    if p.sinks is not None:
        output, _, overflowed = native_varlen_with_stats(p)
        return narrowed(output, p.dtype), overflowed
    output = empty_array(p.q, _output_shape(p), p.dtype)
    return output, varlen_call(p).forward(to_kernel(output))


def native_varlen_with_stats(p: VarlenInputs) -> tuple[Array, SoftmaxStats, list[int]]:
    """Return the output in the compute dtype, the softmax statistics ``H Tq`` of NumPy, and as `native_varlen`."""
    output = empty_array(p.q, _output_shape(p), p.compute_dtype)
    stats = SoftmaxStats(*(np.empty(_output_shape(p)[1::-1], dtype) for dtype in (compute_type(p.dtype), np.float64)))
    out = to_kernel(output)
    overflowed = varlen_call(p).forward(out, *stats)
    return output, stats if p.sinks is None else _add_sinks(p, out, stats), overflowed


def varlen_lse(p: VarlenInputs, stats: SoftmaxStats) -> Array:
    """Return the log-sum-exp, ``Tq H``, of softmax statistics."""
    stats = SoftmaxStats(*(p.xp.asarray(x.T[..., None], device=device(p.q)) for x in stats))
    return stats.lse(p.xp, device(p.q))


def _add_sinks(p: VarlenInputs, output: np.ndarray, stats: SoftmaxStats) -> SoftmaxStats:
    """Scale the output of the keys, and return the softmax statistics of keys and sinks."""
    sinks = _sinks(p)
    row_max = np.maximum(stats.row_max, sinks)
    with np.errstate(over="ignore", invalid="ignore"):  # to −inf, of which the exponential is 0
        of_keys = stats.sum_from(row_max, np)
        row_sum = of_keys + np.exp(sinks - zero_neginf(row_max, np))
        output *= (of_keys / nonzero(row_sum, np)).T[..., None].astype(output.dtype)
    return SoftmaxStats(row_max, row_sum)


def _sinks(p: VarlenInputs) -> np.ndarray:
    """Return the sinks in the compute dtype, ``H 1``."""
    sinks: np.ndarray = clamp_posinf(to_kernel(saturate_cast(p.sinks, p.compute_dtype)), np)[:, None]
    return sinks


def native_varlen_backward(
    p: VarlenInputs, output: Array, stats: SoftmaxStats, d_output: Array
) -> tuple[dict[str, Array], list[int]]:
    """Return the gradients of q, k, v and sinks in the compute dtype, and the sequences of which they are invalid.

    That of the sinks is one for each query, ``H Tq``. `output` and `stats` are those of `native_varlen_with_stats`.
    """
    d_out = to_kernel(d_output if d_output.dtype == p.dtype else p.xp.astype(d_output, p.compute_dtype))
    out, (queries, heads, _) = to_kernel(output), _output_shape(p)
    delta = np.empty((heads, queries), out.dtype)
    keys, groups = (int(n) for n in p.k.shape[:2])
    shapes = [(queries, heads, p.q.shape[-1]), *((keys, heads, x.shape[-1]) for x in (p.k, p.v))]
    d_q, d_k, d_v = (native.empty(tuple(map(int, shape)), out.dtype) for shape in shapes)
    invalid = varlen_call(p).backward(d_out, out, *stats, delta, d_q, d_k, d_v)
    if groups not in (0, heads):
        d_k, d_v = (x.reshape(keys, groups, heads // groups, x.shape[-1]).sum(2) for x in (d_k, d_v))
    gradients = {"q": d_q, "k": d_k, "v": d_v}
    if p.sinks is not None:
        gradients["sinks"] = -delta * stats.weights(_sinks(p), np)
    return {name: p.xp.asarray(x, device=device(p.q)) for name, x in gradients.items()}, invalid


def _output_shape(p: VarlenInputs) -> tuple[int, int, int]:
    """``Tq H Dv``."""
    return int(p.q.shape[0]), int(p.q.shape[1]), int(p.v.shape[-1])


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
    if left is None and right is None and not p.chunk:
        return None, None
    first = p.key_counts - p.query_counts - p.cu_seqlens_q[:-1]  # the position of query 0 of all
    position = np.arange(p.q.shape[0], dtype=np.int32) + np.repeat(first, p.query_counts)
    begin = None if left is None else position - min(left, MAX_POSITION)
    end = None if right is None else position + (min(right, MAX_POSITION) + 1)
    if p.chunk:
        first = position - position % p.chunk
        begin = first if begin is None else np.maximum(begin, first)
        end = first + p.chunk if end is None else np.minimum(end, first + p.chunk)
    return begin if begin is None else begin.astype(np.int32), end if end is None else end.astype(np.int32)


def _distance_bias(p: VarlenInputs) -> np.ndarray:
    """Return the bias of each distance, ``H N`` or ``B H N``, from as many as the longest sequence has queries on."""
    longest, keys = (int(counts.max(initial=0)) for counts in (p.query_counts, p.key_counts))
    distance = np.abs(np.arange(longest + keys + native.kernel().BLOCK_QUERIES) - (longest - 1))
    assert p.slopes is not None
    bias: np.ndarray = (-p.slopes[..., None] * distance).astype(compute_type(p.dtype))
    return bias
