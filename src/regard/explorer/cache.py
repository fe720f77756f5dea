"""Arrays that are dear to make and asked for again: kept up to a bound, those that were asked for last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

import numpy as np

LIMIT = 256 << 20
"""Bytes that are kept of an exploration."""


class Cache:
    """At most `limit` bytes of arrays; many threads may ask."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._kept: OrderedDict[Hashable, np.ndarray] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes that are kept now."""
        with self._lock:
            return sum(array.nbytes for array in self._kept.values())

    def get(self, key: Hashable, make: Callable[[], np.ndarray]) -> np.ndarray:
        """Return what `make` returned for `key`; two that ask for the same at once wait for one making."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    return self._kept[key]
            made = make()
            made.setflags(write=False)
            with self._lock:
                self._kept[key] = made
                while len(self._kept) > 1 and sum(array.nbytes for array in self._kept.values()) > self.limit:
                    self._making.pop(self._kept.popitem(last=False)[0], None)
            return made
