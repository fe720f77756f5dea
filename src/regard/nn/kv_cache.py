"""The keys and values of the tokens so far, so that a text can be continued without computing them again."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard._utils.validation import whole_number
from regard.functional.arrays import as_array, device, namespace

__all__ = ["KVCache"]

_FIRST_CAPACITY = 16


@dataclass(frozen=True, eq=False, repr=False)
class KVCache:
    """Keys and values of consecutive positions.

    A cache is a value: `append`, `crop` and `slide` return another one, and the old one stays what it was. The two
    share their memory: a key that is appended is written behind the others, and the past is copied only when room runs
    out, which is then doubled, and where a second cache grows from the same one. (Arrays that cannot be written to, as
    those of JAX, and those that a gradient is taken through are copied each time.)

    Parameters
    ----------
    start : int
        The position of the first key that is kept; more than 0 after `slide`.

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
    _room: _Room | None = field(default=None, kw_only=True)
    _low: int = field(default=0, kw_only=True)
    _high: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        whole_number("the start of a cache", self.start, 0)

    @property
    def k(self) -> Array:
        """The keys, ``... G S D``, not to be written to."""
        return self._kept().k[..., self._low : self._high, :]

    @property
    def v(self) -> Array:
        """The values, ``... G S Dv``, not to be written to."""
        return self._kept().v[..., self._low : self._high, :]

    @property
    def end(self) -> int:
        """The position that the next key will have: what positions of queries and keys to come count from."""
        return self.start + len(self)

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
        count, room = int(k.shape[-2]), self._room
        if room is None:
            room = _Room.around(k[..., :0, :], v[..., :0, :], count)
            return KVCache(self.start, _room=room).append(k, v)
        room.check(k, v)
        if not room.claim(self._high, count):
            room = _Room.around(self.k, self.v, count)
            return KVCache(self.start, _room=room, _high=len(self)).append(k, v)
        room.write(self._high, k, v)
        return KVCache(self.start, _room=room, _low=self._low, _high=self._high + count)

    def crop(self, end: int) -> KVCache:
        """Return the cache without the positions from `end` on."""
        end = whole_number("the end of a cache", end, 0)
        if not self.start <= end <= self.end:
            raise RegardError(f"the cache holds positions {self.start} to {self.end}; it cannot end at {end}")
        return KVCache(self.start, _room=self._room, _low=self._low, _high=self._high - (self.end - end))

    def slide(self, size: int) -> KVCache:
        """Return the cache with its last `size` positions alone; `start` tells the first of them."""
        size = whole_number("the size of a cache", size, 0)
        gone = max(0, len(self) - size)
        return KVCache(self.start + gone, _room=self._room, _low=self._low + gone, _high=self._high)

    def _kept(self) -> _Room:
        if self._room is None:
            raise RegardError("the cache is empty, and its shape not known; append keys and values first")
        return self._room


class _Room:
    """Memory for keys and values, written from the front; what is written never changes."""

    def __init__(self, k: Array, v: Array, filled: int) -> None:
        self.k, self.v = k, v
        self._filled = filled
        self._lock = threading.Lock()

    @classmethod
    def around(cls, k: Array, v: Array, count: int) -> _Room:
        """Return a copy of `k` and `v` with room for `count` more positions and as many again."""
        filled = int(k.shape[-2])
        capacity = max(_FIRST_CAPACITY, 2 * (filled + count))
        return cls(_enlarged(k, capacity), _enlarged(v, capacity), filled)

    def check(self, k: Array, v: Array) -> None:
        """Raise RegardError unless `k` and `v` can stand behind what is there."""
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
        """Tell whether the next `count` places from `position` on are free, and take them if so."""
        with self._lock:
            if position != self._filled or position + count > self.k.shape[-2]:
                return False
            self._filled += count
            return True

    def write(self, position: int, k: Array, v: Array) -> None:
        """Put `k` and `v` into places that have been claimed."""
        self.k, self.v = (_written(old, position, new) for old, new in ((self.k, k), (self.v, v)))


def _enlarged(x: Array, capacity: int) -> Array:
    xp = namespace(x)
    more = (*x.shape[:-2], capacity - x.shape[-2], x.shape[-1])
    return xp.concat([x, xp.zeros(more, dtype=x.dtype, device=device(x))], axis=-2)


def _written(x: Array, position: int, new: Array) -> Array:
    end = position + new.shape[-2]
    if _is_writeable(x) and not getattr(new, "requires_grad", False):
        # PyTorch counts writes to what a gradient may need; nobody reads what is being written here.
        (x.data if hasattr(x, "requires_grad") else x)[..., position:end, :] = new
        return x
    return namespace(x).concat([x[..., :position, :], new, x[..., end:, :]], axis=-2)


def _is_writeable(x: Any) -> bool:
    if isinstance(x, np.ndarray):
        return True
    from array_api_compat import is_writeable_array

    if hasattr(x, "is_inference") and x.is_inference():  # PyTorch allows no writing to such outside of its mode
        import torch

        return bool(torch.is_inference_mode_enabled())
    return bool(is_writeable_array(x)) and not getattr(x, "requires_grad", False)
