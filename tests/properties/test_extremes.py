"""Numbers near the largest float: where the exact result is finite, every path gives it."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from oracle import exact_attention

from attention_cases import PATHS
from regard import attention, attention_partial, attention_vjp, merge_partials

DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
needs_longdouble = np.finfo(np.longdouble).maxexp > np.finfo(np.float64).maxexp
NARROWER = [dtype for dtype in DTYPES if dtype is not np.float64 or needs_longdouble]
every_path = pytest.mark.parametrize("path", PATHS)
every_dtype = pytest.mark.parametrize("dtype", NARROWER, ids=lambda dtype: np.dtype(dtype).name)


def largest(dtype):
    return float(ml_dtypes.finfo(dtype).max)


@every_path
@every_dtype
@pytest.mark.parametrize("keys", [2, 3, 7, 100, 1000])
@pytest.mark.parametrize("queries", [1, 70])
def test_the_mean_of_the_largest_values_is_the_largest_value(dtype, queries, keys, path):
    q, k = np.zeros((queries, 2), dtype), np.zeros((keys, 2), dtype)
    v = np.full((keys, 3), largest(dtype)).astype(dtype) * np.array([1, -1, 1], dtype)
    v[::2, 2] = 0
    half, tolerance = keys // 2 / keys * largest(dtype), 8 * float(ml_dtypes.finfo(dtype).eps)
    for output in (
        attention(q, k, v, implementation=path),
        attention_partial(q, k, v, implementation=path).output,
        merge_partials(
            *(attention_partial(q, k[a:b], v[a:b], implementation=path) for a, b in ((0, 1), (1, keys)))
        ).output,
    ):
        assert np.isfinite(output).all()
        np.testing.assert_allclose(output[:, :2].astype(np.float64) / v[:1, :2].astype(np.float64), 1, rtol=tolerance)
        np.testing.assert_allclose(output[:, 2].astype(np.float64), half, rtol=tolerance)


@every_path
@every_dtype
@given(st.integers(0, 2**32 - 1))
def test_extreme_scores_and_values_give_the_exact_result(dtype, path, seed):
    """Scores beyond the largest float, of both signs, that also cancel; ties are exact."""
    rng = np.random.default_rng(seed)
    queries, keys = int(rng.choice([1, 9])), int(rng.choice([3, 70]))
    ends = np.array([-1, -0.5, 0, 0.5, 1]) * largest(dtype)
    q, k, v = (rng.choice(ends, shape).astype(dtype) for shape in ((queries, 2), (keys, 2), (keys, 3)))
    expected, _ = exact_attention(q, k, v, scale=1 / np.sqrt(2))
    output = attention(q, k, v, implementation=path)
    tolerance = 8 * float(ml_dtypes.finfo(dtype).eps)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(
            output.astype(np.float64) / largest(dtype), expected / largest(dtype), rtol=tolerance, atol=tolerance
        )
    parts = [attention_partial(q, k[a:b], v[a:b], implementation=path) for a, b in ((0, 2), (2, keys))]
    merged = merge_partials(*parts).output.astype(np.float64)
    # A log-sum-exp of 1e76 does not hold how many keys tie: the merge is some mean of the parts.
    assert (np.abs(merged / largest(dtype)) <= 1 + tolerance).all()


@every_path
@pytest.mark.parametrize("sign", [1, -1])
def test_scores_and_biases_that_overflow_together_are_compared_exactly(path, sign):
    """Scores of ±3e38 with biases of ±1e38 and ±2e38 are beyond float32: the larger sum takes the weight."""
    q, k, v = np.float32([[sign * 3e38]]), np.float32([[1], [1]]), np.float32([[5], [7]])
    bias = np.float32([[sign * 1e38, sign * 2e38]])
    expected = 7 if sign > 0 else 5
    assert attention(q, k, v, bias=bias, scale=1.0, implementation=path) == expected


@every_path
def test_what_is_masked_does_not_make_a_call_extreme(path):
    """Infinities and NaN of masked keys and values, beside numbers that overflow."""
    q, k = np.zeros((2, 1), np.float32), np.float32([[0], [0], [np.nan]])
    v = np.float32([[2e38], [2e38], [np.inf]])
    assert (attention(q, k, v, key_lengths=2, implementation=path) == np.float32(2e38)).all()


@every_path
@every_dtype
def test_gradients_of_extreme_numbers_are_finite_where_they_are_exactly(path, dtype):
    """Of the mean of two values near the largest float: dV = P dO; dQ and dK are 0, because the values are equal."""
    q, k = np.ones((3, 2), dtype), np.ones((4, 2), dtype)
    v = np.full((4, 2), largest(dtype) / 2, dtype)
    output, pullback = attention_vjp(q, k, v, implementation=path)
    np.testing.assert_array_equal(output, np.broadcast_to(v[:1], output.shape))
    gradients = pullback(np.ones_like(output))
    np.testing.assert_allclose(gradients.v.astype(np.float64), 0.75, rtol=1e-2 if dtype != np.float64 else 1e-12)
    np.testing.assert_array_equal(gradients.q, np.zeros_like(q))
    np.testing.assert_array_equal(gradients.k, np.zeros_like(k))
