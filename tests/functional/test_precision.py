"""How far from exact: never more than twice the naive formula in the same precision, both against float64."""

import functools

import ml_dtypes
import mpmath
import numpy as np
import pytest

from attention_cases import PATHS
from regard import AttentionMap, attention, attention_weights
from regard.functional import native

TILES = native.kernel().tile_implementations() if native.kernel() else []
SHORT = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


def naive(q, k, v, scale):
    """Return the formula with every step rounded to the precision of its inputs."""
    dtype = q.dtype

    def rounded(x):
        return x.astype(dtype).astype(np.float32)

    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    scores = rounded(rounded(q * np.float32(scale)) @ k.T)
    exponentials = rounded(np.exp(rounded(scores - scores.max(-1, keepdims=True))))
    return rounded(rounded(exponentials / rounded(exponentials.sum(-1, keepdims=True))) @ v).astype(dtype)


def exact(q, k, v, scale):
    """Return the formula in the longest floats there are."""
    q, k, v = (x.astype(np.float64).astype(np.longdouble) for x in (q, k, v))
    scores = (q @ k.T) * np.longdouble(scale)
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return (exponentials / exponentials.sum(-1, keepdims=True)) @ v


@pytest.mark.pairwise
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", SHORT)
@pytest.mark.parametrize("spread", [0.1, 1.0, 30.0, 1e3, 1e4])
@pytest.mark.parametrize("size", [1, 2, 7, 64, 513, 4096])
def test_error_is_at_most_twice_that_of_the_naive_formula(size, spread, kind, path):
    """`spread` is the largest score."""
    check_error(size, spread, SHORT[kind], path)


@pytest.mark.usefixtures("as_it_was")
@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("spread", [0.1, 1.0, 30.0, 1e3, 1e4])
@pytest.mark.parametrize("size", [64, 513, 4096])
def test_so_is_that_of_products_of_bfloat16(size, spread, tiles):
    assert native.kernel().use_tiles(tiles)
    check_error(size, spread, ml_dtypes.bfloat16, "native")


@functools.cache  # for the test of each path
def case_of(size, spread, dtype):
    """Return q, k and v, the context as it is, and the largest error of the naive formula."""
    rng, queries, dim = np.random.default_rng(20170612), min(size, 64), 64
    q, k, v = (rng.standard_normal(shape) for shape in ((queries, dim), (size, dim), (size, 16)))
    grown = np.sqrt(spread / np.abs(q @ k.T / 8).max())
    q, k = q * grown, k * grown
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    truth = exact(q, k, v, 1 / 8)
    return q, k, v, truth, np.abs(naive(q, k, v, 1 / 8).astype(np.float64) - truth).max()


def check_error(size, spread, dtype, path):
    q, k, v, truth, theirs = case_of(size, spread, dtype)
    ours = np.abs(attention(q, k, v, implementation=path).astype(np.float64) - truth).max()
    # The largest value, rounded; of a few rows the naive formula may hit the truth by luck, and a score rounded once
    # moves a weight by half a unit of the score.
    luck = float(ml_dtypes.finfo(dtype).eps) / 2 * float(np.abs(truth).max()) * (1 if len(q) >= 64 else 1 + spread)
    assert ours <= 2 * theirs + luck


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exponential_is_better_than_two_units_in_the_last_place(rng, dtype):
    """Of shifted scores, down to where the result is no longer a normal number.

    Beside a score of 0 a much smaller one has a weight of its exponential, divided by 1: what the softmax computes it
    with can be measured. Nearer to 0 the division rounds once more.
    """
    lowest, own = np.log(np.finfo(dtype).smallest_normal), np.log(np.finfo(dtype).eps / 4)
    x = np.concatenate([np.linspace(lowest, 0, 4001), -np.geomspace(1e-12, -lowest, 2000)]).astype(dtype)
    x = x[x >= dtype(lowest) * dtype(0.999)]
    bias = np.stack([np.zeros_like(x), x], axis=-1)
    weights = attention_weights(np.zeros((len(x), 1), dtype), np.zeros((2, 1), dtype), bias=bias)
    with mpmath.workdps(40):
        for score, weight in zip(x, weights[:, 1], strict=True):
            truth = mpmath.exp(mpmath.mpf(float(score)))
            truth = truth if score < own else truth / (1 + truth)
            units = abs(mpmath.mpf(float(weight)) - truth) / mpmath.mpf(float(np.spacing(weight)))
            assert units < (2 if score < own else 3)


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_of_recovered_weights_sum_to_one_whatever_the_log_sum_exp(rng, dtype, shift):
    queries, keys, dim = 40, 2000, 16
    q, k = rng.standard_normal((queries, dim)).astype(dtype), rng.standard_normal((keys, dim)).astype(dtype)
    q[:, 0], k[:, 0] = 200.0, 200.0 * np.sign(shift)  # a score of 1e4 for all, after the scale of 1/4
    look = AttentionMap(q, k)
    if shift:
        assert np.abs(look.lse).min() > 9e3
    for rows in (
        look[:, :],
        np.concatenate([look[:, a : a + 300] for a in range(0, keys, 300)], axis=-1),
        np.concatenate([attention_weights(q, k, cols=slice(a, a + 300)) for a in range(0, keys, 300)], axis=-1),
    ):
        assert rows.dtype == dtype
        tolerance = 1e-6 if dtype != np.float16 else 1e-3
        np.testing.assert_allclose(rows.astype(np.float64).sum(-1), 1, rtol=0, atol=tolerance)
    np.testing.assert_allclose(look.received().astype(np.float64).sum(), queries, rtol=tolerance)
