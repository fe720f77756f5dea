"""The compiled kernel, asked first for what stands around attention; where it cannot, the formula computes.

Both mean the same. The kernel goes over the rows once, where each step of a formula in NumPy is a pass over memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from regard._utils.typing import Array
from regard.functional import native

_AXES = 8  # at most, in the kernel
_LONG = {np.dtype(np.float32): np.float32, np.dtype(np.float64): np.float64}
_AHEAD = frozenset({"AVX-512", "AVX2"})  # with which the kernel multiplies matrices at least as fast as a BLAS

Map: TypeAlias = tuple[np.ndarray, np.ndarray | None]
Norm: TypeAlias = tuple[np.ndarray, np.ndarray, float]
FusedBlockTail: TypeAlias = tuple[Any, np.dtype[Any]]  # the kernel's, and of which precision it is

_BENDS = {
    None: "identity",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


def apply_op(
    function: str,
    x: Array,
    others: tuple[Array | None, ...] = (),
    features: tuple[Array | None, ...] = (),
    numbers: tuple[Any, ...] = (),
) -> np.ndarray | None:
    """Return what a function of the kernel makes of x, in its shape and dtype.

    Parameters
    ----------
    function : str
        Its name in the kernel.
    x : array, ``... E``
    others : tuple of arrays of the same shape, or None
    features : tuple of arrays with one number for each feature, ``E``, or None
        Arrays in the order of the kernel.
    numbers : tuple
        What it takes besides.

    Returns
    -------
    array or None
        None where the kernel is not there or does not take these arrays: they are not all of NumPy, of these shapes
        and of one precision to compute in, or have no axis, or too many.
    """
    if not _are(others, x, "shape") or not _are(features, x, "features"):
        return None
    return _asked(function, x, (*others, *features), numbers)


def apply_rotary(x: Array, cos: Array, sin: Array, interleaved: bool) -> np.ndarray | None:
    """Return x, whose shape cos and sin fit, with its pairs turned; None as in `apply_op`."""
    return _asked("apply_rotary", x, (cos, sin), (interleaved,))


def linear(x: Array, weight: Array, bias: Array | None, bend: str | None) -> np.ndarray | None:
    """Return x · W + b as the kernel multiplies, and bends where it knows how.

    None where NumPy's BLAS is to multiply, or where they do not fit.
    """
    if not isinstance(weight, np.ndarray) or weight.ndim != 2 or weight.dtype not in _LONG:
        return None
    if bias is not None:
        if not isinstance(bias, np.ndarray) or bias.dtype != weight.dtype or bias.shape != weight.shape[1:]:
            return None
        bias = np.ascontiguousarray(_as_read(bias))
    inputs, columns = weight.shape
    return _mapped(x, _as_read(weight), inputs, columns, bias, bend)


def pack(weights: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return weights with the same inputs, ``E F`` each, side by side in panels as the kernel reads them.

    None where it would not multiply, or where they are not of one precision that it computes in.
    """
    kernel, (inputs, _), dtype = _multiplier(), weights[0].shape, weights[0].dtype
    if kernel is None or dtype not in _LONG or any(w.dtype != dtype or len(w) != inputs for w in weights):
        return None
    columns = sum(weight.shape[1] for weight in weights)
    panels = np.zeros((-(-columns // kernel.NR), inputs, kernel.NR), dtype)
    first = 0
    for weight in weights:
        kernel.pack(panels, _as_read(weight), first)
        first += weight.shape[1]
    return panels


def packed_linear(
    x: Array, panels: np.ndarray, columns: int, bias: np.ndarray | None, bend: str | None
) -> np.ndarray | None:
    """Return x · W + b of weights that `pack` laid out, and a bias as it lies in memory; None as in `linear`."""
    return _mapped(x, panels, panels.shape[1], columns, bias, bend)


def prepare_block_tail(
    out: Map, first: Norm, up: Map, activation: str, down: Map, second: Norm
) -> FusedBlockTail | None:
    """Return what stands behind the heads of an encoder block whose norms come last, ready for `fused_block_tail`.

    None where the kernel does not know the activation, or where not all is of one precision.

    Parameters
    ----------
    out, up, down : (panels, bias)
        Weights as `pack` lays them out, and a bias or None.
    first, second : (weight, bias, eps)
        Of the norms.
    """
    arrays = [*out, *up, *down, *first[:2], *second[:2]]
    kernel, dtype = _multiplier(), out[0].dtype
    if kernel is None or activation not in _BENDS or any(x is not None and x.dtype != dtype for x in arrays):
        return None
    if any(not x.flags.c_contiguous or not x.flags.aligned for x in arrays if x is not None):
        return None
    bend = getattr(kernel.Activation, _BENDS[activation])
    return kernel.FusedBlockTail(*out, *first, *up, bend, *down, *second), dtype


def fused_block_tail(end: FusedBlockTail, context: Array, x: Array) -> np.ndarray | None:
    """Return ``... E`` of the heads' context, ``... T (H Dv)``, and the block's x, ``... T E``.

    None where NumPy's BLAS is to multiply, or where they are not of the weights' precision, or have too many axes.
    """
    compute, dtype = end
    fits = type(context) is type(x) is np.ndarray and x.dtype == context.dtype == dtype and x.ndim <= _AXES
    if not fits or _multiplier() is None:
        return None
    output = native.empty(x.shape, dtype)
    compute(output, np.ascontiguousarray(_as_read(context)), np.ascontiguousarray(_as_read(x)))
    return output


def _mapped(
    x: Array, weight: np.ndarray, inputs: int, columns: int, bias: np.ndarray | None, bend: str | None
) -> np.ndarray | None:
    kernel = _multiplier()
    if kernel is None or bend not in _BENDS or not isinstance(x, np.ndarray):
        return None
    if x.dtype != weight.dtype or x.ndim == 0 or x.shape[-1] != inputs:
        return None
    output = native.empty((*x.shape[:-1], columns), x.dtype)
    kernel.linear(output, np.ascontiguousarray(_as_read(x)), weight, bias, getattr(kernel.Activation, _BENDS[bend]))
    return output


def _multiplier() -> Any:
    """Return the kernel, None where NumPy's BLAS multiplies matrices faster."""
    kernel = native.kernel()
    return kernel if kernel is not None and kernel.instruction_set() in _AHEAD else None


def _asked(function: str, x: Array, arrays: tuple[Array | None, ...], numbers: tuple[Any, ...]) -> np.ndarray | None:
    kernel = native.kernel()
    if kernel is None or not isinstance(x, np.ndarray) or not 0 < x.ndim <= _AXES:
        return None
    short = None if x.dtype in _LONG else _short_kind(x.dtype)
    precision = np.float32 if short else _LONG.get(x.dtype)
    if precision is None:
        return None
    for other in arrays:
        if other is not None and other.dtype != x.dtype and _LONG.get(other.dtype) is not precision:
            return None
    output = native.empty(x.shape, x.dtype)
    read = [None if other is None else _as_read(other) for other in arrays]
    kind = () if short is None else (getattr(kernel.DType, short),)
    getattr(kernel, function)(_as_read(output), _as_read(x), *read, *numbers, *kind)
    return output


def _are(arrays: tuple[Array | None, ...], x: Array, what: str) -> bool:
    """Tell whether these are arrays of NumPy with the shape, or for each of the features, of x."""
    for other in arrays:
        if other is None:
            continue
        if not isinstance(other, np.ndarray) or other.shape != (x.shape if what == "shape" else x.shape[-1:]):
            return False
    return True


def _short_kind(dtype: np.dtype[Any]) -> str | None:
    name = dtype.name if dtype.isnative and dtype.itemsize == 2 else ""
    return name if name in ("float16", "bfloat16") else None


def _as_read(x: np.ndarray) -> np.ndarray:
    """Return an array as the kernel reads it: without a copy unless its numbers lie askew; short floats as bits."""
    if not x.flags.aligned:
        x = x.copy()
    return x.view(np.uint16) if x.itemsize == 2 else x
