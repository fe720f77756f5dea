"""How often something may happen: token buckets by key, of which a bounded number is kept."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

MAX_KEYS = 4096


class Rates:
    """A token bucket for each key: `burst` at once, then `per_second`.

    A bucket is kept as the time at which it will be full (the generic cell rate algorithm of ATM). The key that was
    used least recently makes room for a new one.
    """

    def __init__(
        self, per_second: float, burst: int, max_keys: int = MAX_KEYS, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval, self._burst, self._max_keys, self._now = 1 / per_second, burst, max_keys, now
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def delay(self, key: Hashable) -> float:
        """Return the seconds until the bucket has a token; 0 if it has one."""
        debt = max(0.0, self._full_at.get(key, 0.0) - self._now())
        return max(0.0, debt - (self._burst - 1) * self._interval)

    def take(self, key: Hashable) -> None:
        """Take a token, or the next one that comes."""
        self._full_at[key] = max(self._full_at.get(key, 0.0), self._now()) + self._interval
        self._full_at.move_to_end(key)
        while len(self._full_at) > self._max_keys:
            self._full_at.popitem(last=False)
