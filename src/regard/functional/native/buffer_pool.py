"""Arrays for results from a pool of freed buffers."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from tracemalloc import is_tracing
from typing import Any

import numpy as np

from regard.functional.native.loader import kernel

_LARGE = 1 << 17  # bytes; any allocator reuses smaller buffers
_MAX_BYTES = 1 << 62
_CACHE_LINE = 64  # bytes
_CHUNK = 1 << 24  # bytes
_chunk_rests: list[np.ndarray] = []  # what is free of the last chunk, or of one for each of several threads


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return an uninitialised array; a large one from the pool, which keeps up to 64 MB of freed buffers.

    The system provides new memory in zeroed pages, which takes longer than filling it.
    """
    size = math.prod(shape) * dtype.itemsize
    if not _LARGE <= size < _MAX_BYTES or (compiled := kernel()) is None or is_tracing():
        return np.empty(shape, dtype)  # visible to tracemalloc
    try:
        whole: np.ndarray = compiled.acquire_buffer(size).view(dtype).reshape(shape)
    except MemoryError:
        return np.empty(shape, dtype)  # with NumPy's error message
    return whole


@contextmanager
def kept_buffers() -> Iterator[None]:
    """Return a context in which the pool keeps as much as is in use at once, and 64 MB.

    For work that is repeated, such as steps of training: the memory of a step is that of the step before. With what is
    in use, the pool is not larger than the process was anyway.
    """
    compiled = kernel()
    if compiled is not None:
        compiled.keep_buffers(True)
    try:
        yield
    finally:
        if compiled is not None:
            compiled.keep_buffers(False)


def empty_like(x: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return an empty array; if it has as many axes as x, those before the last have the memory order of x."""
    if len(shape) != x.ndim or x.ndim < 3:
        return empty(shape, dtype)
    order, back = _cached_order(x.shape, x.strides, len(shape))
    return empty(tuple([shape[axis] for axis in order]), dtype).transpose(back)


def memory_order(shape: tuple[int, ...], strides: tuple[int, ...], axes: int) -> tuple[list[int], list[int]]:
    """Return the axes by descending stride, the last one last, and the inverse permutation; else all as they are."""
    if len(shape) != axes or axes < 3:
        return list(range(axes)), list(range(axes))
    last = len(shape) - 1
    # Broadcast axes and axes of length 1 come first.
    keys = [-(abs(step) if size > 1 else 0) or -_MAX_BYTES for size, step in zip(shape, strides, strict=True)]
    order = [*sorted(range(last), key=keys.__getitem__), last]
    return order, sorted(range(last + 1), key=order.__getitem__)


_cached_order = functools.lru_cache(1024)(memory_order)


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return zeros aligned to a cache line, so that no vector load crosses one.

    Small arrays share chunks, each of which is freed with the last of its arrays: of memory of this size NumPy asks the
    system for large pages, and reading all weights of a model takes few entries of the TLB.
    """
    size = -(-math.prod(shape) * dtype.itemsize // _CACHE_LINE) * _CACHE_LINE
    try:
        rest = _chunk_rests.pop()
    except IndexError:
        rest = np.empty(0, np.uint8)
    if len(rest) < size:
        rest = np.zeros(max(size, _CHUNK) + _CACHE_LINE, np.uint8)
        rest = rest[-rest.ctypes.data % _CACHE_LINE :]
    _chunk_rests.append(rest[size:])
    return rest[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def pool_buffer(x: Any) -> int | None:
    """Return the address of the buffer of the pool that x fills alone; None for any other array."""
    base: Any = x
    while isinstance(base, np.ndarray):
        root, base = base, base.base
    if kernel() is None or not isinstance(x, np.ndarray) or not x.nbytes == root.nbytes >= _LARGE:
        return None
    return int(root.ctypes.data) if type(getattr(base, "obj", None)) is _buffer_type() else None


@functools.cache
def _buffer_type() -> type:
    """Return the type of the object that gives a buffer back to the pool."""
    return type(kernel().acquire_buffer(_LARGE).base.obj)


def pooled_copy(x: np.ndarray) -> np.ndarray:
    """Return a copy of x, from the pool if it is large."""
    if x.nbytes < _LARGE:
        return np.array(x)
    copy = empty_like(x, x.shape, x.dtype)
    copy[...] = x
    return copy
