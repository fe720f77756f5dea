"""The compiled kernel, asked first for what stands around attention; where it cannot, the formula computes.

Both mean the same. The kernel goes over the rows once, where each step of a formula in NumPy is a pass over memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard import kernels
from regard._typing import Array

_AXES = 8  # at most, in the kernel
_LONG = {np.dtype(np.float32): np.float32, np.dtype(np.float64): np.float64}
_AHEAD = frozenset({"AVX-512", "AVX2"})  # with which the kernel multiplies matrices at least as fast as a BLAS


def compute(function: str, like: Array, arrays: Sequence[Array | None] = (), *numbers: Any) -> np.ndarray | None:
    """Return what a function of the kernel makes of `like` and `arrays`, in the shape and dtype of `like`.

    Parameters
    ----------
    function : str
        Its name in the kernel.
    like : array, ``... E``
    arrays : sequence of arrays that broadcast to `like`, or None
        In the order of the kernel; their last axis may be another.
    *numbers
        What it takes besides.

    Returns
    -------
    array or None
        None where the kernel is not there or does not take these arrays: they are not all of NumPy and of one
        precision to compute in, or have no axis, or too many.
    """
    kernel = kernels.native()
    if kernel is None or not isinstance(like, np.ndarray) or not 0 < like.ndim <= _AXES:
        return None
    short = None if like.dtype in _LONG else _short_kind(like.dtype)
    precision = np.float32 if short else _LONG.get(like.dtype)
    for x in arrays:
        if x is None:
            continue
        its = _LONG.get(x.dtype) or (np.float32 if short and x.dtype == like.dtype else None)
        if its is not precision or not isinstance(x, np.ndarray):
            return None
    if precision is None:
        return None
    output = np.empty(like.shape, like.dtype)
    kind = getattr(kernel.Kind, short or "float16")
    read = [None if x is None else _as_read(x) for x in arrays]
    getattr(kernel, function)(_as_read(output), _as_read(like), *read, *numbers, kind)
    return output


def linear(x: Array, weight: Array, bias: Array | None) -> np.ndarray | None:
    """Return x · W + b as the kernel multiplies, or None where NumPy's BLAS is to do it."""
    kernel = kernels.native()
    if kernel is None or not isinstance(x, np.ndarray) or not isinstance(weight, np.ndarray):
        return None
    if x.dtype not in _LONG or weight.dtype != x.dtype or kernel.instruction_set() not in _AHEAD:
        return None
    if bias is not None and (not isinstance(bias, np.ndarray) or bias.dtype != x.dtype):
        return None
    rows = np.ascontiguousarray(_as_read(x)).reshape(x.size // max(1, x.shape[-1]), x.shape[-1])
    output = np.empty((*x.shape[:-1], weight.shape[1]), x.dtype)
    flat = output.reshape(len(rows), weight.shape[1])
    kernel.linear(flat, rows, _as_read(weight), None if bias is None else np.ascontiguousarray(_as_read(bias)))
    return output


def _short_kind(dtype: np.dtype[Any]) -> str | None:
    name = dtype.name if dtype.isnative and dtype.itemsize == 2 else ""
    return name if name in ("float16", "bfloat16") else None


def _as_read(x: np.ndarray) -> np.ndarray:
    """Return an array as the kernel reads it: without a copy unless its numbers lie askew; short floats as bits."""
    if not x.flags.aligned:
        x = x.copy()
    return x.view(np.uint16) if x.itemsize == 2 else x
