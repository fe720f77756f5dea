"""Caches: of computed arrays, bounded in bytes, and of the last few answers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import numpy as np

_Key = TypeVar("_Key", bound=Hashable)
_Answer = TypeVar("_Answer")
_MAX_KEPT = 8

LIMIT = 256 << 20
"""Bytes cached for an exploration."""


class Cache:
    """Least recently used arrays, at most `limit` bytes; safe to use from several threads."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._arrays: OrderedDict[Hashable, np.ndarray] = OrderedDict()
        self._key_locks: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        with self._lock:
            return sum(array.nbytes for array in self._arrays.values())

    def get(self, key: Hashable, compute: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the array of `key`; concurrent calls for one key compute it once."""
        with self._lock:
            key_lock = self._key_locks.setdefault(key, threading.Lock())
        with key_lock:
            with self._lock:
                if key in self._arrays:
                    self._arrays.move_to_end(key)
                    return self._arrays[key]
            try:
                array = compute()
            except BaseException:
                with self._lock:
                    self._key_locks.pop(key, None)
                raise
            array.setflags(write=False)
            with self._lock:
                self._arrays[key] = array
                while len(self._arrays) > 1 and sum(each.nbytes for each in self._arrays.values()) > self.limit:
                    self._key_locks.pop(self._arrays.popitem(last=False)[0], None)
            return array


class Kept(dict[_Key, _Answer], Generic[_Key, _Answer]):
    """The last 8 answers that took long, the newest last."""

    def compute(self, key: _Key, answer: Callable[[], _Answer]) -> _Answer:
        """Return the answer of `key`, which is computed where it is not kept."""
        if key not in self:
            self[key] = answer()
            while len(self) > _MAX_KEPT:
                del self[next(iter(self))]
        return self[key]
