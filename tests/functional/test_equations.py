"""The equations beside attention: softmax, norms, linear maps, heads, positions, experts, and sums through them."""

import math

import ml_dtypes
import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from regard import functional as F
from regard.functional import Variable, experts, gradients, layer_norm, norm_parts, normalize, rms_norm, score_pairs

finite = st.floats(-1e4, 1e4, width=32)


ROOT = math.sqrt(2.5)  # of the variance of 1, 3, 0 and 4, whose mean is 2: (1 + 1 + 4 + 4) / 4
FAR = np.finfo(np.float32).max
ENDS = np.array([-np.inf, -FAR, FAR, np.inf], np.float32)
BY_HAND = {  # a call, and its result in its dtype
    "softmax of masked rows": (lambda: F.softmax(np.full((2, 3), -np.inf)), np.zeros((2, 3))),
    "softmax of no numbers": (lambda: F.softmax(np.zeros((2, 0))), np.zeros((2, 0))),
    "layer norm": (
        lambda: F.layer_norm(np.array([1.0, 3, 0, 4]), np.array([1.0, 1, 2, 2]), np.array([0.0, 0, 0, 1]), eps=0.0),
        np.array([-1 / ROOT, 1 / ROOT, -4 / ROOT, 4 / ROOT + 1]),
    ),
    "layer norm of a constant row": (lambda: F.layer_norm(np.full(5, 3.0), np.ones(5), np.arange(5.0)), np.arange(5.0)),
    "layer norm of large float16": (lambda: F.layer_norm(np.float16([6e4, -6e4] * 2)), np.float16([1, -1] * 2)),
    "layer norm of lists": (lambda: F.layer_norm([[1, 3]], [1, 2], [0, 1], eps=0), np.array([[-1.0, 3.0]])),
    "linear map of integers": (lambda: F.linear(np.int8([[100, 100]]), np.int8([[2], [2]])), np.array([[400.0]])),
    "linear map of lists": (lambda: F.linear([1, 2], [[1, 0], [0, 1]], [3, 4]), np.array([4.0, 6.0])),
    "learned positions": (lambda: F.learned_positions([[1, 2], [3, 4]], 1, offset=1), np.array([[3, 4]])),
    "heads of lists": (lambda: F.merge_heads(F.split_heads([[1, 2]], 2).tolist()), np.array([[1, 2]])),
    "relu": (lambda: F.relu([-1, 0, 2]), np.array([0.0, 0.0, 2.0])),
    "gelu of float16": (lambda: F.gelu(np.float16([0.0])), np.float16([0.0])),
    "slopes of quick_gelu": (lambda: F.quick_gelu_vjp(ENDS)[1](np.ones_like(ENDS))[0], np.float32([0, 0, 1, 1])),
    "the last of an odd width is a sine": (
        lambda: F.sinusoidal_positions(3, 5)[:, 4],
        np.sin(np.arange(3) / 10000 ** (4 / 5)),
    ),
    "every second slope of twice as many heads": (
        lambda: F.alibi_slopes(6),
        np.array([1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]),
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name):
    call, expected = BY_HAND[name]
    found = call()
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-3 if expected.dtype == np.float16 else 1e-15, strict=True)


@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=3, max_side=5), elements=finite))
def test_softmax_is_within_ulps_of_exact_weights(x):
    weights = F.softmax(x)
    with mpmath.workdps(50):
        for row, ours in zip(x.reshape(-1, x.shape[-1]), weights.reshape(-1, x.shape[-1]), strict=True):
            exponentials = [mpmath.exp(mpmath.mpf(float(a))) for a in row]
            exact = np.array([float(e / mpmath.fsum(exponentials)) for e in exponentials])
            # The shift rounds x − max once: half an ulp of the distance is that much of relative error.
            np.testing.assert_allclose(ours, exact, rtol=4e-16 * (8 + np.ptp(row)), atol=1e-300)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_softmax_normalises_any_axis(rng, axis):
    np.testing.assert_allclose(F.softmax(rng.standard_normal((2, 3, 5)), axis=axis).sum(axis), 1, rtol=1e-15)


def test_softmax_of_half_precision_is_rounded_once(rng):
    x = rng.standard_normal(4099).astype(np.float16)
    np.testing.assert_array_equal(F.softmax(x), F.softmax(x.astype(np.float32)).astype(np.float16))


def test_linear_is_x_times_w_plus_b(rng):
    x, w, b = rng.standard_normal((2, 3, 5)), rng.standard_normal((5, 7)), rng.standard_normal(7)
    np.testing.assert_allclose(F.linear(x, w, b), np.einsum("bte,ef->btf", x, w) + b, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_linear_computes_half_precision_in_float32_and_rounds_once(rng, dtype):
    x, w, b = (rng.standard_normal(shape).astype(dtype) for shape in ((5, 101), (101, 7), (7,)))
    product = F.linear(x, w, b)
    assert product.dtype == dtype
    np.testing.assert_array_equal(product, F.linear(*(a.astype(np.float32) for a in (x, w, b))).astype(dtype))


def test_heads_split_and_merge(rng):
    x = rng.standard_normal((2, 5, 3 * 7))
    heads = F.split_heads(x, 3)
    assert heads.shape == (2, 3, 5, 7)
    np.testing.assert_array_equal(heads[:, 1], x[..., 7:14])
    np.testing.assert_array_equal(F.merge_heads(heads), x)


def test_sinusoidal_positions_are_those_of_the_paper():
    table = F.sinusoidal_positions(11, 6)
    for position in range(11):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            np.testing.assert_allclose(
                table[position, 2 * i : 2 * i + 2], [math.sin(angle), math.cos(angle)], atol=1e-15
            )


@given(
    st.sampled_from(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]),
    st.lists(st.integers(-(2**63), 2**64 - 1), min_size=1, max_size=8),
    st.booleans(),
    st.sampled_from([(32, 128), (300, 1000), (4, 3)]),
)
def test_buckets_of_every_integer_are_those_of_wide_ones(dtype, values, bidirectional, sizes):
    info = np.iinfo(dtype)
    relative = np.array([min(max(x, info.min), info.max) for x in values], dtype)
    near = np.array([min(max(int(x), -(10**6)), 10**6) for x in relative])
    options = dict(zip(("num_buckets", "max_distance"), sizes, strict=True), bidirectional=bidirectional)
    found, expected = (F.relative_position_buckets(x, **options) for x in (relative, near))
    np.testing.assert_array_equal(found, expected)


EXPERTS, WIDTH, HIDDEN = 3, 4, 2


@pytest.fixture
def arrays(rng):
    shapes = [(EXPERTS, WIDTH, 2 * HIDDEN), (EXPERTS, 2 * HIDDEN), (EXPERTS, HIDDEN, WIDTH), (EXPERTS, WIDTH)]
    return [rng.standard_normal(shape) for shape in shapes]


def alone(x, arrays, i):
    gate_up, gate_up_bias, down, down_bias = (array[i] for array in arrays)
    hidden = x @ gate_up + gate_up_bias
    gate, up = np.minimum(hidden[..., 0::2], 7.0), np.clip(hidden[..., 1::2], -7.0, 7.0)
    return ((up + 1) * gate / (1 + np.exp(-gate))) @ down + down_bias


def test_negative_and_undefined_weights_count(rng, arrays):
    x, routing = rng.standard_normal((5, WIDTH)), rng.standard_normal((5, EXPERTS))
    wanted = sum(routing[:, i, None] * alone(x, arrays, i) for i in range(EXPERTS))
    np.testing.assert_allclose(experts(x, routing, *arrays, slope=1.0, limit=7.0), wanted, rtol=1e-12, atol=1e-12)
    routing[1, 2] = np.nan
    found = experts(x, routing, *arrays, slope=1.0, limit=7.0)
    assert np.isnan(found[1]).all()
    assert np.isfinite(np.delete(found, 1, axis=0)).all()


@given(st.integers(1, 5), st.integers(1, 7), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_pairs_sum_to_the_score(num_q, num_k, features, seed):
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((2, num_q, features)), rng.standard_normal((2, num_k, features))
    pairs = score_pairs(q, k, scale=0.3)
    assert pairs.shape == (2, num_q, num_k)
    np.testing.assert_allclose(pairs.sum((1, 2)), 0.3 * (q.sum(1) * k.sum(1)).sum(-1), atol=1e-12)
    np.testing.assert_allclose(pairs[1, -1, 0], 0.3 * q[1, -1] @ k[1, 0], atol=1e-12)


@given(st.integers(1, 5), st.integers(2, 7), st.booleans(), st.integers(0, 2**32 - 1))
def test_parts_of_a_norm_sum_to_the_norm(count, features, centered, seed):
    rng = np.random.default_rng(seed)
    parts, weight, bias = rng.standard_normal((count, 3, features)), *rng.standard_normal((2, features))
    x = parts.sum(0)
    _, scale = normalize(x, eps=1e-3, centered=centered)
    found = norm_parts(parts, scale, weight, centered=centered).sum(0)
    expected = layer_norm(x, weight, bias, eps=1e-3) - bias if centered else rms_norm(x, weight, eps=1e-3)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_gradients_pass_through_both():
    rng = np.random.default_rng(0)
    q, k = Variable(rng.standard_normal((2, 3))), Variable(rng.standard_normal((4, 3)))
    normed = norm_parts(q, np.array([2.0]), centered=True)
    d_q, d_k = gradients(score_pairs(normed, k, scale=0.5).sum(), [q, k])
    total = k.value.sum(0)
    np.testing.assert_allclose(d_q, np.broadcast_to((total - total.mean()) / 4, (2, 3)))
    np.testing.assert_allclose(d_k, np.broadcast_to(normed.value.sum(0) / 2, (4, 3)))


def test_parts_in_half_precision_are_computed_in_single():
    parts = np.array([[1.0, 3.0]], np.float16)
    assert norm_parts(parts, np.float32(2), centered=True).dtype == np.float32
