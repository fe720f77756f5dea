"""The cache of keys and values: a value that grows without copying its past."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard import KVCache, RegardError, attention
from regard.functional import ALiBi, alibi_slopes, rotary


@pytest.fixture
def text(rng):
    """Queries for 4 heads, keys and values for 2, of 40 positions in a batch of 3."""
    return tuple(rng.standard_normal((3, heads, 40, width)) for heads, width in ((4, 6), (2, 6), (2, 5)))


def decoded(q, k, v, steps, *, size=None, **options):
    """Return attention computed in steps, each of which attends to the cache."""
    cache, rows, start = KVCache(), [], 0
    for step in steps:
        span = slice(start, start + step)
        cache = cache.append(k[..., span, :], v[..., span, :])
        rows.append(attention(q[..., span, :], cache.k, cache.v, causal=True, **options))
        cache = cache if size is None else cache.slide(size)
        start += step
    return np.concatenate(rows, axis=-2), cache


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_any_steps_give_the_numbers_of_the_whole(steps):
    rng = np.random.default_rng(sum(steps))
    n = sum(steps)
    q, k, v = (rng.standard_normal((2, 3, n, 4)) for _ in range(3))
    out, cache = decoded(q, k, v, steps)
    np.testing.assert_allclose(out, attention(q, k, v, causal=True), rtol=1e-12, atol=1e-14)
    assert np.array_equal(cache.k, k)
    assert np.array_equal(cache.v, v)


@pytest.mark.parametrize(
    "options",
    [
        {"sinks": np.array([0.1, -2.0, 3.0, 0.0])},
        {"softcap": 1.5},
        {"bias": ALiBi(alibi_slopes(4))},
        {"window": (7, 0)},
    ],
)
def test_one_token_at_a_time_under_every_rule(text, options):
    out, _ = decoded(*text, [1] * 40, **options)
    np.testing.assert_allclose(out, attention(*text, causal=True, **options), rtol=1e-12, atol=1e-14)


def test_a_sliding_cache_is_a_window(text):
    out, cache = decoded(*text, [1] * 40, size=7)
    np.testing.assert_allclose(out, attention(*text, causal=True, window=(7, 0)), rtol=1e-12, atol=1e-14)
    assert (cache.start, cache.end, len(cache)) == (33, 40, 7)
    assert np.array_equal(cache.k, text[1][..., 33:, :])


def test_positions_of_rotated_keys_count_from_the_end_of_the_cache(text):
    q, k, v = text
    cache, rows = KVCache(), []
    for t in range(40):
        here = np.array([cache.end])
        cache = cache.append(rotary(k[..., t : t + 1, :], here), v[..., t : t + 1, :]).slide(20)
        rows.append(attention(rotary(q[..., t : t + 1, :], here), cache.k, cache.v, causal=True))
    whole = attention(rotary(q), rotary(k), v, causal=True, window=(19, 0))
    np.testing.assert_allclose(np.concatenate(rows, -2), whole, rtol=1e-10, atol=1e-12)


def test_the_past_is_not_copied(text):
    """Of 40 appended keys each was written once, and copied once for every doubling."""
    _, k, v = text
    cache = KVCache()
    homes = []
    for t in range(40):
        cache = cache.append(k[..., t : t + 1, :], v[..., t : t + 1, :])
        homes.append(cache.k.base.ctypes.data)
    assert len(set(homes)) <= 3
    assert cache._buffer.k.shape[-2] <= 2 * 40


def test_a_cache_is_a_value(text):
    """Older caches stay what they were, whatever grows from them."""
    _, k, v = text
    caches = [KVCache()]
    for t in range(20):
        caches.append(caches[-1].append(k[..., t : t + 1, :], v[..., t : t + 1, :]))
    branch = caches[10].append(k[..., 30:33, :], v[..., 30:33, :])
    again = caches[10].crop(4).append(-k[..., :2, :], -v[..., :2, :])
    for length, cache in enumerate(caches[1:], 1):
        assert np.array_equal(cache.k, k[..., :length, :])
        assert np.array_equal(cache.v, v[..., :length, :])
    assert np.array_equal(branch.k, np.concatenate([k[..., :10, :], k[..., 30:33, :]], -2))
    assert np.array_equal(again.k, np.concatenate([k[..., :4, :], -k[..., :2, :]], -2))
    assert (again.start, again.end) == (0, 6)
    slid = caches[20].slide(8).crop(15)
    assert (slid.start, slid.end) == (12, 15)
    assert np.array_equal(slid.k, k[..., 12:15, :])


def test_two_that_grow_from_one_at_the_same_time_do_not_meet(text):
    _, k, v = text
    start = KVCache().append(k[..., :3, :], v[..., :3, :])

    def grown(sign):
        cache = start
        for t in range(3, 40):
            cache = cache.append(sign * k[..., t : t + 1, :], sign * v[..., t : t + 1, :])
        return cache

    with ThreadPoolExecutor(8) as pool:
        signs = list(range(1, 17))
        for sign, cache in zip(signs, pool.map(grown, signs), strict=True):
            assert np.array_equal(cache.k[..., 3:, :], sign * k[..., 3:, :])


def test_errors_say_what_is_wrong(text):
    _, k, v = text
    cache = KVCache().append(k, v)
    for bad, message in [
        (lambda: KVCache().k, "cache is empty"),
        (lambda: cache.append(k[..., :1, :], v[..., :2, :]), "same heads and positions"),
        (
            lambda: cache.append(k[:2], v[:2]),
            r"k \(2, 2, 40, 6\) of float64 does not continue a cache of \(3, 2, T, 6\)",
        ),
        (lambda: cache.append(k.astype("f4"), v), "of float32 does not continue"),
        (lambda: cache.crop(41), "cannot end at 41"),
        (lambda: cache.crop(2.0), "whole number"),
        (lambda: KVCache(-3), "whole number of at least 0, got -3"),
        (lambda: cache.slide(4).crop(3), "holds positions 36 to 40"),
        (lambda: cache.slide(-1), "whole number of at least 0, got -1"),
    ]:
        with pytest.raises(RegardError, match=message):
            bad()
    assert repr(cache.slide(4)) == "<KVCache of positions 36 to 40>"
