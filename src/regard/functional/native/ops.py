"""Bridge to the compiled kernel for the operations other than attention: norms, activations, rotary, linear maps.

Each function returns None for arrays that the kernel does not take; the caller then computes the formula. The kernel
reads each row once, where every step of a formula in NumPy is a pass over memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from regard.functional import native

if TYPE_CHECKING:
    from regard.functional.arrays import Array

MAX_AXES = 8  # of an array in the kernel
COMPUTE_DTYPES = {np.dtype(np.float32): np.float32, np.dtype(np.float64): np.float64}
_LARGE = 1 << 15  # numbers that two threads add faster than one
# Instruction sets with which the kernel's GEMM is at least as fast as BLAS.
_FAST_GEMM = frozenset({"AVX-512 VNNI", "AVX-512", "AVX2"})

Map: TypeAlias = tuple[np.ndarray, np.ndarray | None]
Norm: TypeAlias = tuple[np.ndarray, np.ndarray, float]
FusedBlockTail: TypeAlias = tuple[Any, np.dtype[Any]]  # of the kernel, and the dtype of its weights
EncoderBlocks: TypeAlias = tuple[Any, np.dtype[Any]]


def apply_op(
    op: str,
    x: Array,
    others: tuple[Array | None, ...] = (),
    features: tuple[Array | None, ...] = (),
    numbers: tuple[Any, ...] = (),
) -> np.ndarray | None:
    """Return an operation of the kernel on the rows of x, in the shape and dtype of x.

    Parameters
    ----------
    op : str
        Its name in the kernel.
    x : array, ``... E``
    others : tuple of arrays of the shape of x, or None
    features : tuple of arrays ``E``, or None
        Arrays in the order of the kernel.
    numbers : tuple
        Further arguments.

    Returns
    -------
    array or None
        None without a kernel, or where the arrays are not NumPy's, of these shapes and of one compute dtype, or have
        no axis or more than `MAX_AXES`.
    """
    if not isinstance(x, np.ndarray) or not (_fit(others, x.shape) and _fit(features, x.shape[-1:])):
        return None
    return _call(op, x, (*others, *features), numbers)


def norm_vjp(
    op: str, x: Array, d: Array, weight: Array | None, *, eps: float, has_bias: bool = False
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None] | None:
    """Return the gradients of x, weight and bias of a norm, for that of its result; None as in `apply_op`."""
    if not isinstance(x, np.ndarray) or not x.shape:
        return None
    work = COMPUTE_DTYPES.get(x.dtype, np.float32)
    sums = [np.empty(x.shape[-1:], work) if has_parameter else None for has_parameter in (weight is not None, has_bias)]
    d_x = apply_op(op, x, (d,), (weight,), (eps, *sums))
    if d_x is None:
        return None
    d_weight, d_bias = (None if total is None else total.astype(x.dtype, copy=False) for total in sums)
    return d_x, d_weight, d_bias


def column_sums(x: Array) -> np.ndarray | None:
    """Return the sum of all vectors, ``E``, of x, ``... E``; None as in `apply_op`."""
    work = _work(x)
    if work is None:
        return None
    sums = np.empty(x.shape[-1:], work)
    native.kernel().column_sums(sums, _kernel_view(x), *_half(x))
    return sums.astype(x.dtype, copy=False)


def log_sum_exp(x: Array) -> np.ndarray | None:
    """Return log Σ exp(x), ``... 1``, of each row of x, ``... E``, in the compute dtype; None as in `apply_op`."""
    work = _work(x)
    if work is None:
        return None
    stats = np.empty((*x.shape[:-1], 2), work)
    native.kernel().softmax_stats(stats, _kernel_view(x), *_half(x))
    with np.errstate(divide="ignore", invalid="ignore"):  # a row of −inf
        lse: np.ndarray = stats[..., :1] + np.log(stats[..., 1:])
    return lse


def scaled_softmax(x: Array, lse: np.ndarray, factor: np.ndarray) -> np.ndarray | None:
    """Return factor × exp(x − lse), in the dtype of x, for lse and factor ``... 1``; None as in `apply_op`."""
    return _call("scaled_softmax", x, (lse, factor), ())


def add(x: Any, y: Any, out: np.ndarray | None = None) -> Any:
    """Return x + y, in `out` if that is given; large arrays of one shape on all threads."""
    is_large = type(x) is np.ndarray and type(y) is np.ndarray and x.size >= _LARGE
    if not is_large or x.shape != y.shape or x.dtype != y.dtype or _work(x) is None:
        return np.add(x, y, out=out) if out is not None else x + y
    if x.flags.f_contiguous and y.flags.f_contiguous and not x.flags.c_contiguous:
        return add(x.T, y.T, None if out is None else out.T).T
    total = native.empty(x.shape, x.dtype) if out is None else out
    native.kernel().add(_kernel_view(total), _kernel_view(x), _kernel_view(y), *_half(x))
    return total


def adamw(
    x: np.ndarray,
    gradient: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    decayed: int,
    **numbers: float,
) -> bool:
    """Update flat arrays in place as `regard.training.AdamW` does; False without a kernel."""
    kernel = native.kernel()
    if kernel is None or x.dtype not in COMPUTE_DTYPES:
        return False
    kernel.adamw(x, gradient, first, second, decayed, **numbers)
    return True


def square_sum(x: np.ndarray) -> float | None:
    """Return the sum of the squares of a flat array; None without a kernel."""
    kernel = native.kernel()
    return None if kernel is None or x.dtype not in COMPUTE_DTYPES else float(kernel.square_sum(x))


def apply_rotary(x: Array, cos: Array, sin: Array, interleaved: bool) -> np.ndarray | None:
    """Return x with its pairs rotated, for cos and sin whose shapes fit; None as in `apply_op`."""
    return _call("apply_rotary", x, (cos, sin), (interleaved,))


def linear(x: Array, weight: Array, bias: Array | None, activation: str | None) -> np.ndarray | None:
    """Return activation(x · W + b), the activation by its name in the kernel.

    None where NumPy's BLAS is faster, where the shapes do not fit, or for an activation of None.
    """
    if not isinstance(weight, np.ndarray) or weight.ndim != 2 or weight.dtype not in COMPUTE_DTYPES:
        return None
    if bias is not None:
        if not isinstance(bias, np.ndarray) or bias.dtype != weight.dtype or bias.shape != weight.shape[1:]:
            return None
        bias = np.ascontiguousarray(_kernel_view(bias))
    inputs, columns = weight.shape
    return _linear(x, _kernel_view(weight), inputs, columns, bias, activation)


def pack(weights: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return weights with the same inputs, ``E F`` each, concatenated in the panels that the kernel's GEMM reads.

    None where NumPy's BLAS is faster, or where the weights are not of one compute dtype.
    """
    kernel, (inputs, _), dtype = _gemm_kernel(), weights[0].shape, weights[0].dtype
    if kernel is None or dtype not in COMPUTE_DTYPES or any(w.dtype != dtype or len(w) != inputs for w in weights):
        return None
    columns = sum(weight.shape[1] for weight in weights)
    panels = native.aligned_zeros((-(-columns // kernel.NR), inputs, kernel.NR), dtype)
    first = 0
    for weight in weights:
        kernel.pack(panels, _kernel_view(weight), first)
        first += weight.shape[1]
    return panels


def packed_linear(
    x: Array,
    packed: np.ndarray,
    inputs: int,
    columns: int,
    bias: np.ndarray | None,
    activation: str | None,
    kind: str | None = None,
) -> np.ndarray | None:
    """Return `linear` of weights from `pack`, or from `pack_quantized` of `kind`, and a contiguous bias."""
    return _linear(x, packed, inputs, columns, bias, activation, kind)


def packed_linear_transposed(x: np.ndarray, packed: np.ndarray, inputs: int, kind: str) -> np.ndarray:
    """Return x · Wᵀ, ``... E``, for float32 x ``... F`` and weights from `pack_quantized`; gradients need it."""
    output = native.empty((*x.shape[:-1], inputs), x.dtype)
    native.kernel().linear_transposed(output, np.ascontiguousarray(_kernel_view(x)), packed, kind.lower())
    return output


def pack_quantized(blocks: Sequence[np.ndarray], kind: str, inputs: int) -> np.ndarray | None:
    """Return weights in groups of outputs whose blocks are interleaved, as the kernel reads them.

    None without a kernel, or where a weight but the last has outputs that do not fill its groups.

    Parameters
    ----------
    blocks : sequence of uint8 arrays, ``F bytes``
        The blocks of each output, of weights with the same inputs, which are concatenated.
    kind : str
        Their kind, as ggml calls it.
    inputs : int
    """
    kernel = native.kernel()
    if kernel is None or any(len(part) % kernel.GROUP for part in blocks[:-1]):
        return None
    size = kernel.group_bytes(kind.lower(), inputs)
    groups = [-(-len(part) // kernel.GROUP) for part in blocks]
    packed = native.aligned_zeros((sum(groups), size), np.dtype(np.uint8))
    first = 0
    for part, count in zip(blocks, groups, strict=True):
        kernel.pack_quantized(packed[first : first + count], part, kind.lower())
        first += count
    return packed


def embed(ids: np.ndarray, tokens: Array, positions: Array, type_row: Array | None, norm: Norm) -> np.ndarray | None:
    """Return the norm of the sum of embeddings, ``B T E``.

    None without a kernel, without ids or where one is outside the table, and where the arrays are not contiguous, of
    one dtype and of these shapes.

    Parameters
    ----------
    ids : int64 array, ``B T``
    tokens : array, ``V E``
    positions : array, ``T E`` or ``B T E``
    type_row : array, ``E``, optional
    norm : (weight, bias, eps)
    """
    kernel, dtype = native.kernel(), norm[0].dtype
    arrays = [tokens, positions, *norm[:2], *([] if type_row is None else [type_row])]
    if kernel is None or dtype not in COMPUTE_DTYPES or ids.dtype != np.int64 or not ids.size:
        return None
    if any(type(x) is not np.ndarray or x.dtype != dtype for x in arrays):
        return None
    if not all(x.flags.c_contiguous and x.flags.aligned for x in (ids, *arrays)):
        return None
    width = tokens.shape[-1]
    if positions.shape not in ((ids.shape[-1], width), (*ids.shape, width)):
        return None
    output = native.empty((ids.size, width), dtype)
    is_computed = kernel.embed(output, ids.reshape(-1), tokens, positions.reshape(-1, width), type_row, *norm)
    return output.reshape(*ids.shape, width) if is_computed else None


def prepare_block_tail(
    out: Map, attn_norm: Norm, up: Map, activation: str | None, down: Map, mlp_norm: Norm
) -> FusedBlockTail | None:
    """Return the steps after the heads of an encoder block whose norms come last, for `fused_block_tail`.

    None for an activation of None, or where the arrays are not contiguous and of one dtype.

    Parameters
    ----------
    out, up, down : (panels, bias)
        Weights from `pack`, and a bias or None.
    attn_norm, mlp_norm : (weight, bias, eps)
    activation : str or None
        Its name in the kernel.
    """
    arrays = [*out, *up, *down, *attn_norm[:2], *mlp_norm[:2]]
    kernel, dtype = _gemm_kernel(), out[0].dtype
    if kernel is None or activation is None or any(x is not None and x.dtype != dtype for x in arrays):
        return None
    if any(not x.flags.c_contiguous or not x.flags.aligned for x in arrays if x is not None):
        return None
    kind = getattr(kernel.Activation, activation)
    return kernel.FusedBlockTail(*out, *attn_norm, *up, kind, *down, *mlp_norm), dtype


def fused_block_tail(tail: FusedBlockTail, context: Array, x: Array) -> np.ndarray | None:
    """Return ``... E`` of the heads' context, ``... T (H Dv)``, and the block's x, ``... T E``.

    None where NumPy's BLAS is faster, where the dtypes are not that of the weights, or where there are too many axes.
    """
    compute, dtype = tail
    fits = type(context) is type(x) is np.ndarray and x.dtype == context.dtype == dtype and x.ndim <= MAX_AXES
    if not fits or _gemm_kernel() is None:
        return None
    output = native.empty(x.shape, dtype)
    compute(output, np.ascontiguousarray(_kernel_view(context)), np.ascontiguousarray(_kernel_view(x)))
    return output


def prepare_encoder_blocks(
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    scale: float,
    blocks: Sequence[tuple[np.ndarray, np.ndarray | None, FusedBlockTail]],
) -> EncoderBlocks | None:
    """Return blocks, each the packed weights and the bias of queries, keys and values and a tail, for `encode_rows`.

    None where NumPy's BLAS is faster, or where the blocks are not of one dtype.
    """
    kernel = _gemm_kernel()
    dtypes = {x for panels, _, (_, dtype) in blocks for x in (panels.dtype, dtype)}
    if kernel is None or len(dtypes) != 1:
        return None
    prepared = [kernel.EncoderBlock(panels, bias, tail) for panels, bias, (tail, _) in blocks]
    return kernel.EncoderBlocks(num_heads, num_kv_heads, head_dim, scale, prepared), dtypes.pop()


def encode_rows(
    blocks: EncoderBlocks, x: np.ndarray, lengths: Sequence[int], weights: Sequence[np.ndarray | None]
) -> np.ndarray | None:
    """Return the output of blocks for x, ``N E``, the tokens of texts of these lengths one after the other.

    None where NumPy's BLAS is faster, where x is not of the dtype of the weights, or where attention may overflow.

    Parameters
    ----------
    weights : sequence of arrays, ``B H T T``, or None
        One for each block, or none at all; receives its weights, of texts of one length.
    """
    compute, dtype = blocks
    if type(x) is not np.ndarray or x.dtype != dtype or _gemm_kernel() is None:
        return None
    output = native.empty(x.shape, dtype)
    return output if compute(output, np.ascontiguousarray(_kernel_view(x)), lengths, weights) else None


def _linear(
    x: Array,
    weight: np.ndarray,
    inputs: int,
    columns: int,
    bias: np.ndarray | None,
    activation: str | None,
    kind: str | None = None,
) -> np.ndarray | None:
    kernel = _gemm_kernel() if kind is None else native.kernel()
    if kernel is None or activation is None or not isinstance(x, np.ndarray):
        return None
    if x.dtype != (weight.dtype if kind is None else np.float32) or x.ndim == 0 or x.shape[-1] != inputs:
        return None
    output = native.empty((*x.shape[:-1], columns), x.dtype)
    how = getattr(kernel.Activation, activation)
    quantization = () if kind is None else (kind.lower(),)
    x = _kernel_view(x)
    if kind is not None or not (x.ndim == 2 and x.flags.f_contiguous):
        x = np.ascontiguousarray(x)  # but one matrix is read transposed, as the gradient of a weight needs it
    kernel.linear(output, x, weight, bias, how, *quantization)
    return output


def _gemm_kernel() -> Any:
    """Return the kernel; None where NumPy's BLAS is faster."""
    kernel = native.kernel()
    return kernel if kernel is not None and kernel.instruction_set() in _FAST_GEMM else None


def _call(op: str, x: Array, arrays: tuple[Array | None, ...], numbers: tuple[Any, ...]) -> np.ndarray | None:
    work = _work(x)
    if work is None:
        return None
    for other in arrays:
        if other is not None and other.dtype != x.dtype and COMPUTE_DTYPES.get(other.dtype) is not work:
            return None
    output = native.empty(x.shape, x.dtype)
    views = [None if other is None else _kernel_view(other) for other in arrays]
    getattr(native.kernel(), op)(_kernel_view(output), _kernel_view(x), *views, *numbers, *_half(x))
    return output


def _work(x: Array) -> Any:
    """Return the dtype in which the kernel computes with x; None if it does not."""
    if not isinstance(x, np.ndarray) or not 0 < x.ndim <= MAX_AXES or native.kernel() is None:
        return None
    return COMPUTE_DTYPES.get(x.dtype) or (np.float32 if _half_name(x.dtype) else None)


def _half(x: np.ndarray) -> tuple[Any, ...]:
    """Return the kernel's argument for half precision: its type, if x has it."""
    return () if x.dtype in COMPUTE_DTYPES else (getattr(native.kernel().DType, str(_half_name(x.dtype))),)


def _fit(arrays: tuple[Array | None, ...], shape: tuple[int, ...]) -> bool:
    return all([x is None or (isinstance(x, np.ndarray) and x.shape == shape) for x in arrays])  # noqa: C419, faster


def _half_name(dtype: np.dtype[Any]) -> str | None:
    name = dtype.name if dtype.isnative and dtype.itemsize == 2 else ""
    return name if name in ("float16", "bfloat16") else None


def _kernel_view(x: np.ndarray) -> np.ndarray:
    """Return an array as the kernel reads it: aligned, copied only if it is not; half precision as its bits."""
    if not x.flags.aligned:
        x = x.copy()
    return x.view(np.uint16) if x.itemsize == 2 else x
