"""Arrays that are kept up to a number of bytes."""

from __future__ import annotations

import numpy as np

from regard.explorer.cache import Cache


def test_the_arrays_that_were_read_last_stay():
    cache, made = Cache(limit=20), []

    def get(key):
        return cache.get(key, lambda: made.append(key) or np.zeros(10, np.uint8))

    for key in ("a", "b", "a", "c", "a"):  # b was read longest ago when c came
        get(key)
    assert made == ["a", "b", "c"]
    assert cache.nbytes == 20
