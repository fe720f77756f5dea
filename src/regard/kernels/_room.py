"""Arrays for results, in memory that earlier results have left."""

from __future__ import annotations

import math
from tracemalloc import is_tracing
from typing import Any

import numpy as np

from regard.kernels._use import native

_LARGE = 1 << 17  # bytes; smaller ones every allocator keeps
_ENDLESS = 1 << 62


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return what ``numpy.empty`` does; a large array in memory that is kept when it is gone, up to 64 MB in all.

    New memory comes from the system page by page, each of them cleared, which takes longer than to fill it.
    """
    size = math.prod(shape) * dtype.itemsize
    if not _LARGE <= size < _ENDLESS or (kernel := native()) is None or is_tracing():
        return np.empty(shape, dtype)  # of which tracemalloc knows
    try:
        whole: np.ndarray = kernel.room(size).view(dtype).reshape(shape)
    except MemoryError:
        return np.empty(shape, dtype)  # says what there is no room for
    return whole


def empty_like(x: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return an empty array whose axes before the last, where they are as many as those of x, lie in the same order."""
    if len(shape) != x.ndim or x.ndim < 3:
        return empty(shape, dtype)
    last = x.ndim - 1
    # Axes along which nothing lies come first.
    order = [
        *sorted(range(last), key=lambda axis: -(abs(x.strides[axis]) if x.shape[axis] > 1 else 0) or -_ENDLESS),
        last,
    ]
    lying = empty(tuple([shape[axis] for axis in order]), dtype)
    return lying.transpose(sorted(range(x.ndim), key=order.__getitem__))


def copied(x: np.ndarray) -> np.ndarray:
    """Return a copy of x."""
    if x.nbytes < _LARGE:
        return np.array(x)
    copy = empty_like(x, x.shape, x.dtype)
    copy[...] = x
    return copy
