"""Arrays that are kept up to a number of bytes."""

import numpy as np
import pytest

from regard.explorer.cache import Cache, Kept


def test_the_arrays_that_were_read_last_stay():
    cache, made = Cache(limit=20), []

    def get(key):
        return cache.get(key, lambda: made.append(key) or np.zeros(10, np.uint8))

    for key in ("a", "b", "a", "c", "a"):  # b was read longest ago when c came
        get(key)
    assert made == ["a", "b", "c"]
    assert cache.nbytes == 20


def test_of_what_fails_or_makes_room_nothing_is_left():
    cache = Cache(limit=20)
    for key in range(100):
        with pytest.raises(ZeroDivisionError):
            cache.get(key, lambda: 1 // 0)
        cache.get(-key, lambda: np.zeros(10, np.uint8))
    assert len(cache._arrays) == len(cache._key_locks) == 2


def test_the_last_eight_answers_are_kept_and_computed_once():
    kept, computed = Kept(), []
    for key in [*range(8), 0, 8, 1]:
        assert kept.compute(key, lambda key=key: computed.append(key) or -key) == -key
    assert computed == [*range(9)]
    assert list(kept) == [*range(1, 9)]
