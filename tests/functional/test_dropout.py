"""Dropout of weights: from an explicit generator, the same for every way of computing."""

import numpy as np
import pytest

from attention_cases import PATHS, cut_into_blocks, random_case
from regard import Trace, attention, attention_weights, explain_plan


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    cut_into_blocks(monkeypatch, 3, 2)


def dropping(seed, rate=0.4):
    return {"dropout": rate, "rng": np.random.default_rng(seed)}


def test_all_paths_drop_the_same_weights():
    for seed in range(200):
        case = random_case(seed)
        direct, *others = (
            attention(case.q, case.k, case.v, **case.options, **dropping(seed), implementation=path) for path in PATHS
        )
        for other in others:
            np.testing.assert_allclose(other, direct, rtol=1e-10, atol=1e-12)
        traced = attention(case.q, case.k, case.v, **case.options, **dropping(seed), trace=Trace())
        plain = attention(case.q, case.k, case.v, **case.options, **dropping(seed))
        assert np.array_equal(traced, plain)  # the same numbers whether weights are recorded or not
        weights = attention_weights(case.q, case.k, **case.options, **dropping(seed))
        v = case.v if case.v.ndim == 2 else np.repeat(case.v, case.q.shape[-3] // case.v.shape[-3], -3)
        np.testing.assert_allclose(weights @ v, direct, rtol=1e-10, atol=1e-12)
        part = attention_weights(case.q, case.k, **case.options, **dropping(seed), rows=slice(1, None), cols=[-1])
        np.testing.assert_allclose(part, weights[..., 1:, -1:], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_rate_is_the_fraction_that_is_dropped_and_the_mean_stays(rate):
    q, k = np.zeros((2, 3, 200, 1)), np.zeros((2, 3, 300, 1))
    weights = attention_weights(q, k, **dropping(7, rate)) * 300
    assert set(np.unique(weights.round(9))) == {0.0, round(1 / (1 - rate), 9)}
    count = weights.size
    assert abs((weights == 0).mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / count)
    kept = weights > 0
    shifted = (kept[:, 1:, :-1] == kept[:, :-1, 1:]).mean()  # nor does one head drop as another a row further on
    assert abs(shifted - (rate**2 + (1 - rate) ** 2)) < 6 * np.sqrt(1 / count)
    # No two rows, columns, heads or entries drop alike, and neighbours are independent.
    for axis in range(4):
        together = (kept & np.roll(kept, 1, axis)).mean()
        assert abs(together - (1 - rate) ** 2) < 6 * np.sqrt(1 / count)


def test_calls_draw_anew_from_the_generator():
    q = k = v = np.random.default_rng(0).standard_normal((6, 3))
    rng = np.random.default_rng(5)
    first, second = (attention(q, k, v, dropout=0.5, rng=rng) for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.array_equal(first, attention(q, k, v, **dropping(5, 0.5)))
    state = np.random.default_rng(5)
    explain_plan(q, k, v)
    assert np.array_equal(attention(q, k, v, dropout=0.0, rng=state), attention(q, k, v))
    assert state.bit_generator.state == np.random.default_rng(5).bit_generator.state  # a rate of 0 draws nothing
