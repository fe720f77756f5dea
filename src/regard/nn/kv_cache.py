"""The KV cache: keys and values of the tokens so far, for decoding without computing them again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.functional import native
from regard.functional.arrays import Array, as_array, device, namespace

__all__ = ["KVCache"]

_FIRST_CAPACITY = 64  # so that a short text is rarely copied


@dataclass(frozen=True, eq=False, repr=False)
class KVCache:
    """Keys and values of consecutive positions.

    A cache is immutable: `append`, `crop` and `slide` return another one, which shares its buffer. New keys are written
    after the others; the past is copied only when the buffer is full, which doubles its capacity, or when a second
    cache grows from the same one. (Read-only arrays, as those of JAX, and arrays with gradients are copied each time.)

    Parameters
    ----------
    start : int
        The position of the first key in the cache; more than 0 after `slide`.

    Examples
    --------
    >>> import numpy as np
    >>> from regard import attention
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 5, 4))
    >>> cache, rows = KVCache(), []
    >>> for t in range(5):
    ...     cache = cache.append(k[t : t + 1], v[t : t + 1])
    ...     rows.append(attention(q[t : t + 1], cache.k, cache.v, causal=True))
    >>> bool(np.allclose(np.concatenate(rows), attention(q, k, v, causal=True)))
    True
    """

    start: int = 0
    _buffer: _Buffer | None = field(default=None, kw_only=True)
    _low: int = field(default=0, kw_only=True)
    _high: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        whole_number("the start of a cache", self.start, 0)

    @property
    def k(self) -> Array:
        """The keys, ``... G S D``; do not write to them."""
        return self._filled_buffer().k[..., self._low : self._high, :]

    @property
    def v(self) -> Array:
        """The values, ``... G S Dv``; do not write to them."""
        return self._filled_buffer().v[..., self._low : self._high, :]

    @property
    def end(self) -> int:
        """The position of the next key."""
        return self.start + len(self)

    @property
    def has_shape(self) -> bool:
        """Whether anything was appended, be it no position: the heads and dtype of the cache are then fixed."""
        return self._buffer is not None

    def __len__(self) -> int:
        return self._high - self._low

    def __repr__(self) -> str:
        return f"<KVCache of positions {self.start} to {self.end}>"

    def append(self, k: Array, v: Array) -> KVCache:
        """Return the cache with the keys, ``... G T D``, and values, ``... G T Dv``, of the next T positions."""
        k, v = as_array(k, "k"), as_array(v, "v")
        namespace(k, v)
        if k.ndim < 2 or k.shape[:-1] != v.shape[:-1]:
            raise RegardError(f"k {tuple(k.shape)} and v {tuple(v.shape)} must have the same heads and positions")
        count, buffer = int(k.shape[-2]), self._buffer
        if buffer is None:
            buffer = _Buffer.copy_of(k[..., :0, :], v[..., :0, :], count)
            return KVCache(self.start, _buffer=buffer).append(k, v)
        buffer.check(k, v)
        if not buffer.claim(self._high, count):
            buffer = _Buffer.copy_of(self.k, self.v, count)
            return KVCache(self.start, _buffer=buffer, _high=len(self)).append(k, v)
        buffer.write(self._high, k, v)
        return self._longer(count)

    def reserve(self, count: int) -> KVCache:
        """Return the cache with `count` more positions, whose keys and values the caller writes before any use.

        Raises
        ------
        RegardError
            The cache is empty, and so has no shape yet.
        """
        buffer = self._filled_buffer()
        if not buffer.claim(self._high, count):
            buffer = _Buffer.copy_of(self.k, self.v, count)
            return KVCache(self.start, _buffer=buffer, _high=len(self)).reserve(count)
        return self._longer(count)

    def _longer(self, count: int) -> KVCache:
        """Return the cache with `count` more positions of its buffer; every block makes one for every token."""
        longer = object.__new__(KVCache)
        vars(longer).update(vars(self), _high=self._high + count)
        return longer

    @property
    def layout(self) -> tuple[Any, ...]:
        """The type of the keys, their dtype, the axes before their positions, ``D``, and the same of the values.

        Empty if the cache has no shape.
        """
        return () if self._buffer is None else self._buffer.layout

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The memory of keys and of values, with what is not written yet; none of an empty cache."""
        return () if self._buffer is None else (self._buffer.k, self._buffer.v)

    def with_arrays(self, *arrays: Array) -> KVCache:
        """Return the cache with other memory, as `arrays` gives it."""
        if not arrays:
            return self
        k, v = arrays
        return KVCache(self.start, _buffer=_Buffer(k, v, self._high), _low=self._low, _high=self._high)

    def crop(self, end: int) -> KVCache:
        """Return the cache without the positions from `end` on."""
        end = whole_number("the end of a cache", end, 0)
        if not self.start <= end <= self.end:
            raise RegardError(f"the cache holds positions {self.start} to {self.end}; it cannot end at {end}")
        return KVCache(self.start, _buffer=self._buffer, _low=self._low, _high=self._high - (self.end - end))

    def slide(self, size: int) -> KVCache:
        """Return the cache with its last `size` positions only; `start` is the first of them."""
        size = whole_number("the size of a cache", size, 0)
        dropped = max(0, len(self) - size)
        return KVCache(self.start + dropped, _buffer=self._buffer, _low=self._low + dropped, _high=self._high)

    def select(self, rows: Sequence[int]) -> KVCache:
        """Return the cache of some texts of the batch."""
        if not len(self):
            return KVCache(self.end)
        return KVCache(self.start).append(self.k[list(rows)], self.v[list(rows)])

    def _filled_buffer(self) -> _Buffer:
        if self._buffer is None:
            raise RegardError("the cache is empty and has no shape yet; append keys and values first")
        return self._buffer


class _Buffer:
    """Memory for keys and values, filled from the front; written positions never change."""

    def __init__(self, k: Array, v: Array, filled: int) -> None:
        self.k, self.v = k, v
        self.layout = tuple(part for x in (k, v) for part in (type(x), x.dtype, tuple(x.shape[:-2]), x.shape[-1]))
        self._filled = filled
        self._lock = threading.Lock()

    @classmethod
    def copy_of(cls, k: Array, v: Array, count: int) -> _Buffer:
        """Return a copy of `k` and `v` with capacity for `count` more positions, doubled."""
        filled = int(k.shape[-2])
        capacity = max(_FIRST_CAPACITY, 2 * (filled + count))
        return cls(_enlarged(k, capacity), _enlarged(v, capacity), filled)

    def check(self, k: Array, v: Array) -> None:
        """Raise RegardError unless `k` and `v` can be appended."""
        for name, new, old in (("k", k, self.k), ("v", v, self.v)):
            namespace(old, new)
            fits = new.ndim == old.ndim and new.shape[:-2] == old.shape[:-2] and new.shape[-1] == old.shape[-1]
            if not fits or new.dtype != old.dtype:
                shape = (*old.shape[:-2], "T", old.shape[-1])
                raise RegardError(
                    f"{name} {tuple(new.shape)} of {new.dtype} does not continue a cache of "
                    f"({', '.join(map(str, shape))}) of {old.dtype}"
                )

    def claim(self, position: int, count: int) -> bool:
        """Claim `count` positions from `position` on; False if they are not the next free ones."""
        with self._lock:
            if position != self._filled or position + count > self.k.shape[-2]:
                return False
            self._filled += count
            return True

    def write(self, position: int, k: Array, v: Array) -> None:
        """Write `k` and `v` to claimed positions."""
        self.k, self.v = (_written(old, position, new) for old, new in ((self.k, k), (self.v, v)))


def _enlarged(x: Array, capacity: int) -> Array:
    if type(x) is np.ndarray:
        enlarged = native.empty((*x.shape[:-2], capacity, x.shape[-1]), x.dtype)
        enlarged[..., : x.shape[-2], :] = x
        return enlarged
    xp = namespace(x)
    more = (*x.shape[:-2], capacity - x.shape[-2], x.shape[-1])
    return xp.concat([x, xp.zeros(more, dtype=x.dtype, device=device(x))], axis=-2)


def _written(x: Array, position: int, new: Array) -> Array:
    end = position + new.shape[-2]
    if _is_writeable(x) and not getattr(new, "requires_grad", False):
        # .data: autograd counts writes to a tensor as changes, but nothing has read these positions
        (x.data if hasattr(x, "requires_grad") else x)[..., position:end, :] = new
        return x
    return namespace(x).concat([x[..., :position, :], new, x[..., end:, :]], axis=-2)


def _is_writeable(x: Any) -> bool:
    if isinstance(x, np.ndarray):
        return True
    from array_api_compat import is_writeable_array

    if hasattr(x, "is_inference") and x.is_inference():  # PyTorch: writable only in inference mode
        import torch

        return bool(torch.is_inference_mode_enabled())
    return bool(is_writeable_array(x)) and not getattr(x, "requires_grad", False)
