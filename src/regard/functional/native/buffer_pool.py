"""Arrays for results, in memory that earlier results have left."""

from __future__ import annotations

import functools
import math
from tracemalloc import is_tracing
from typing import Any

import numpy as np

from regard.functional.native.loader import kernel

_LARGE = 1 << 17  # bytes; smaller ones every allocator keeps
_ENDLESS = 1 << 62


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return what ``numpy.empty`` does; a large array in memory that is kept when it is gone, up to 64 MB in all.

    New memory comes from the system page by page, each of them cleared, which takes longer than to fill it.
    """
    size = math.prod(shape) * dtype.itemsize
    if not _LARGE <= size < _ENDLESS or (found := kernel()) is None or is_tracing():
        return np.empty(shape, dtype)  # of which tracemalloc knows
    try:
        whole: np.ndarray = found.acquire_buffer(size).view(dtype).reshape(shape)
    except MemoryError:
        return np.empty(shape, dtype)  # says what there is no room for
    return whole


def empty_like(x: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return an empty array whose axes before the last, where they are as many as those of x, lie in the same order."""
    if len(shape) != x.ndim or x.ndim < 3:
        return empty(shape, dtype)
    order, back = _order(x.shape, x.strides)
    return empty(tuple([shape[axis] for axis in order]), dtype).transpose(back)


@functools.lru_cache(1024)
def _order(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Return the axes from the longest step to the shortest, the last one last, and where each is then found."""
    last = len(shape) - 1
    # Axes along which nothing lies come first.
    steps = [-(abs(step) if size > 1 else 0) or -_ENDLESS for size, step in zip(shape, strides, strict=True)]
    order = [*sorted(range(last), key=steps.__getitem__), last]
    return order, sorted(range(last + 1), key=order.__getitem__)


def pooled_copy(x: np.ndarray) -> np.ndarray:
    """Return a copy of x."""
    if x.nbytes < _LARGE:
        return np.array(x)
    copy = empty_like(x, x.shape, x.dtype)
    copy[...] = x
    return copy
