"""The compiled kernel, asked first for what stands around attention; where it cannot, the formula computes.

Both mean the same. The kernel goes over the rows once, where each step of a formula in NumPy is a pass over memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard import kernels
from regard._typing import Array

_AXES = 8  # at most, in the kernel
_LONG = {np.dtype(np.float32): np.float32, np.dtype(np.float64): np.float64}
_AHEAD = frozenset({"AVX-512", "AVX2"})  # with which the kernel multiplies matrices at least as fast as a BLAS

_BENDS = {
    None: "straight",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


def compute(
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


def rotate(x: Array, cos: Array, sin: Array, interleaved: bool) -> np.ndarray | None:
    """Return x, whose shape cos and sin fit, with its pairs turned; None as in `compute`."""
    return _asked("rotate", x, (cos, sin), (interleaved,))


def linear(x: Array, weight: Array, bias: Array | None, bend: str | None) -> np.ndarray | None:
    """Return x · W + b as the kernel multiplies, and bends where it knows how.

    None where NumPy's BLAS is to multiply, or where they do not fit.
    """
    kernel = kernels.native()
    if kernel is None or kernel.instruction_set() not in _AHEAD or bend not in _BENDS:
        return None
    if not isinstance(x, np.ndarray) or not isinstance(weight, np.ndarray):
        return None
    if x.dtype not in _LONG or weight.dtype != x.dtype:
        return None
    if x.ndim == 0 or weight.ndim != 2 or x.shape[-1] != weight.shape[0]:
        return None
    if bias is not None:
        if not isinstance(bias, np.ndarray) or bias.dtype != x.dtype or bias.shape != weight.shape[1:]:
            return None
        bias = np.ascontiguousarray(_as_read(bias))
    *lead, inputs = x.shape
    outputs, rows = weight.shape[1], math.prod(lead)
    output = np.empty((rows, outputs), x.dtype)
    x = np.ascontiguousarray(_as_read(x)).reshape(rows, inputs)
    kernel.linear(output, x, _as_read(weight), bias, getattr(kernel.Bend, _BENDS[bend]))
    return output.reshape(*lead, outputs)


def _asked(function: str, x: Array, arrays: tuple[Array | None, ...], numbers: tuple[Any, ...]) -> np.ndarray | None:
    kernel = kernels.native()
    if kernel is None or not isinstance(x, np.ndarray) or not 0 < x.ndim <= _AXES:
        return None
    short = None if x.dtype in _LONG else _short_kind(x.dtype)
    precision = np.float32 if short else _LONG.get(x.dtype)
    if precision is None:
        return None
    for other in arrays:
        if other is not None and other.dtype != x.dtype and _LONG.get(other.dtype) is not precision:
            return None
    output = np.empty(x.shape, x.dtype)
    read = [None if other is None else _as_read(other) for other in arrays]
    kind = () if short is None else (getattr(kernel.Kind, short),)
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
