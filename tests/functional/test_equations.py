"""Softmax, layer norm, GELU, linear, positions and heads against exact arithmetic and hand-worked numbers."""

from __future__ import annotations

import math

import ml_dtypes
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from regard import RegardError
from regard import functional as F

finite = st.floats(-1e4, 1e4, width=32)


@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=3, max_side=5), elements=finite))
def test_softmax_is_within_ulps_of_exact_shares(x):
    shares = F.softmax(x)
    with mpmath.workdps(50):
        for row, ours in zip(x.reshape(-1, x.shape[-1]), shares.reshape(-1, x.shape[-1]), strict=True):
            exponentials = [mpmath.exp(mpmath.mpf(float(a))) for a in row]
            exact = np.array([float(e / mpmath.fsum(exponentials)) for e in exponentials])
            # The shift rounds x − max once: half an ulp of the distance is that much of relative error.
            np.testing.assert_allclose(ours, exact, rtol=4e-16 * (8 + np.ptp(row)), atol=1e-300)


@given(hnp.arrays(np.float64, (3, 5), elements=finite), st.floats(-1e3, 1e3))
def test_softmax_ignores_translation(x, shift):
    np.testing.assert_allclose(F.softmax(x + shift), F.softmax(x), rtol=0, atol=1e-11)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_softmax_shares_out_any_axis(rng, axis):
    np.testing.assert_allclose(F.softmax(rng.standard_normal((2, 3, 5)), axis=axis).sum(axis), 1, rtol=1e-15)


def test_softmax_of_nothing_is_zero_or_empty():
    assert (F.softmax(np.full((2, 3), -np.inf)) == 0).all()
    assert F.softmax(np.zeros((2, 0))).shape == (2, 0)


def test_softmax_of_short_floats_is_rounded_once(rng):
    x = rng.standard_normal(4099).astype(np.float16)
    np.testing.assert_array_equal(F.softmax(x), F.softmax(x.astype(np.float32)).astype(np.float16))


@pytest.mark.parametrize(("dtype", "ulps"), [(np.float32, 8), (np.float64, 8)])
def test_gelu_is_exact_in_both_tails(dtype, ulps):
    x = np.concatenate([np.linspace(-12, 12, 1201), [0.0, 1e-30, -1e-30, 5e3, -5e3]]).astype(dtype)
    with mpmath.workdps(50):
        exact = [mpmath.mpf(float(a)) * mpmath.ncdf(mpmath.mpf(float(a))) for a in x]
    eps = np.finfo(dtype).eps
    for a, ours, want in zip(x, F.gelu(x), exact, strict=True):
        # exp(−x²/2) turns the rounding of its argument, half an ulp of x²/2, into that much relative error
        bound = (ulps + float(a) ** 2) * eps * abs(want) + np.finfo(dtype).tiny
        assert abs(mpmath.mpf(float(ours)) - want) <= bound, a


def test_gelu_at_the_ends():
    assert list(F.gelu(np.array([-np.inf, np.inf, -0.0]))) == [0, np.inf, 0]
    assert np.isnan(F.gelu(np.array(np.nan)))


def test_gelu_tanh_is_the_formula(rng):
    x = rng.standard_normal(101) * 4
    want = [a / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))) for a in x]
    np.testing.assert_allclose(F.gelu(x, "tanh"), want, rtol=1e-12, atol=1e-15)


def test_gelu_keeps_short_floats_short():
    assert F.gelu(np.float16([1.0])).dtype == np.float16


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_large_numbers_neither_overflows_nor_warns(approximate):
    for dtype in (np.float32, np.float64, np.longdouble):
        far = np.finfo(dtype).max
        assert list(F.gelu(np.array([-far, -1e4, 1e4, far], dtype), approximate)) == [0, 0, dtype(1e4), far]


@pytest.mark.skipif(np.finfo(np.longdouble).eps == np.finfo(np.float64).eps, reason="long doubles are doubles here")
def test_gelu_of_long_doubles_is_at_least_as_good_as_of_doubles():
    x = np.linspace(-5, 5, 101)
    np.testing.assert_allclose(F.gelu(x.astype(np.longdouble)), F.gelu(x), rtol=1e-14)


@pytest.mark.parametrize("name", ["gelu_new", "gelu_pytorch_tanh"])
def test_the_names_of_the_tanh_formula_mean_it(name):
    x = np.linspace(-3, 3, 7)
    np.testing.assert_array_equal(F.activation(name)(x), F.gelu(x, "tanh"))
    assert not np.array_equal(F.activation(name)(x), F.gelu(x))


def test_unknown_activations_are_errors():
    with pytest.raises(RegardError, match=r'approximate is "none" or "tanh"'):
        F.gelu(np.ones(2), "erf")
    with pytest.raises(RegardError, match=r"unknown activation 'mish'; known are gelu"):
        F.activation("mish")


def test_relu():
    np.testing.assert_array_equal(F.relu(np.array([-1.0, 0.0, 2.0])), [0, 0, 2])
    assert F.relu([-1, 2]).dtype == np.float64


def test_layer_norm_by_hand():
    # mean 2, variance (1 + 1 + 4 + 4) / 4 = 2.5
    ours = F.layer_norm(np.array([1.0, 3.0, 0.0, 4.0]), np.array([1, 1, 2, 2.0]), np.array([0, 0, 0, 1.0]), eps=0.0)
    root = math.sqrt(2.5)
    np.testing.assert_allclose(ours, [-1 / root, 1 / root, -4 / root, 4 / root + 1], rtol=1e-15)


def test_layer_norm_has_mean_zero_and_variance_one(rng):
    y = F.layer_norm(rng.standard_normal((3, 5, 257)) * 7 + 100, eps=0.0)
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-13)
    np.testing.assert_allclose(y.var(-1), 1, rtol=1e-12)


def test_layer_norm_of_a_constant_row_is_its_bias():
    np.testing.assert_array_equal(F.layer_norm(np.full(5, 3.0), np.ones(5), np.arange(5.0)), np.arange(5.0))


def test_layer_norm_of_float16_does_not_overflow():
    x = np.float16([60000, -60000, 60000, -60000])
    np.testing.assert_allclose(F.layer_norm(x), [1, -1, 1, -1], rtol=1e-3)


def test_linear_is_x_times_w_plus_b(rng):
    x, w, b = rng.standard_normal((2, 3, 5)), rng.standard_normal((5, 7)), rng.standard_normal(7)
    np.testing.assert_allclose(F.linear(x, w, b), np.einsum("bte,ef->btf", x, w) + b, rtol=1e-12)


def test_linear_counts_integers_as_doubles():
    product = F.linear(np.int8([[100, 100]]), np.int8([[2], [2]]))
    assert (product.dtype, product.tolist()) == (np.float64, [[400.0]])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_linear_computes_short_floats_in_float32_and_rounds_once(rng, dtype):
    x, w, b = (rng.standard_normal(shape).astype(dtype) for shape in ((5, 101), (101, 7), (7,)))
    product = F.linear(x, w, b)
    assert product.dtype == dtype
    np.testing.assert_array_equal(product, F.linear(*(a.astype(np.float32) for a in (x, w, b))).astype(dtype))


def test_lists_will_do_for_every_array():
    np.testing.assert_array_equal(F.linear([1, 2], [[1, 0], [0, 1]], [3, 4]), [4, 6])
    np.testing.assert_array_equal(F.layer_norm([[1, 3]], [1, 2], [0, 1], eps=0), [[-1, 3]])
    np.testing.assert_array_equal(F.learned_positions([[1, 2], [3, 4]], 1, offset=1), [[3, 4]])
    np.testing.assert_array_equal(F.merge_heads(F.split_heads([[1, 2]], 2).tolist()), [[1, 2]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.linear(np.ones((2, 2), bool), np.ones((2, 2), bool)), r"bool; convert it"),
        (lambda: F.relu(np.ones(2, bool)), r"bool; convert it"),
        (lambda: F.relu(np.ones(2, complex)), r"complex128; convert it"),
        (lambda: F.layer_norm(np.float64(3)), r"x \(\) has no features"),
        (lambda: F.layer_norm(np.ones((2, 0))), r"x \(2, 0\) has no features"),
        (lambda: F.layer_norm(np.ones(2), eps=-1), r"eps must be .* got -1"),
        (lambda: F.split_heads(np.ones(4), 2), r"x \(4,\) needs at least 2 axes, T \(H D\)"),
        (lambda: F.split_heads(np.ones((2, 4)), 2.0), r"num_heads must be a whole number of at least 1, got 2\.0"),
        (lambda: F.merge_heads(np.ones((4, 2))), r"x \(4, 2\) needs at least 3 axes, H T D"),
        (lambda: F.sinusoidal_positions(2.5, 4), r"length must be a whole number of at least 0, got 2\.5"),
        (lambda: F.sinusoidal_positions(2, 4, base=0), r"base must be .* got 0"),
        (lambda: F.learned_positions(np.ones(5), 2), r"two axes, P E, got \(5,\)"),
        (lambda: F.learned_positions(np.ones((5, 3)), -2, offset=3), r"length must be .* got -2"),
        (lambda: F.learned_positions(np.ones((5, 3)), 2, offset=-3), r"offset must be .* got -3"),
        (lambda: F.linear(np.ones((2, 3)), np.ones((5, 3))), r"x \(2, 3\) times weight \(5, 3\).*weight\.T"),
        (lambda: F.linear(np.ones((2, 3)), np.ones((3, 5)), np.ones(3)), r"bias \(3,\)"),
        (lambda: F.layer_norm(np.ones((2, 3)), np.ones(2)), r"weight \(2,\)"),
        (lambda: F.split_heads(np.ones((2, 7)), 3), r"7 features do not split into 3 heads"),
        (lambda: F.softmax(np.ones(3), axis=1), r"x \(3,\) has no axis 1"),
        (lambda: F.sinusoidal_positions(-1, 4), r"length must be .* got -1"),
        (lambda: F.learned_positions(np.ones((5, 3)), 6), r"5 rows.*shorten the text to 5 tokens"),
    ],
)
def test_shapes_that_do_not_fit_are_named(call, message):
    with pytest.raises(RegardError, match=message):
        call()


def test_sinusoidal_positions_are_those_of_the_paper():
    table = F.sinusoidal_positions(11, 6)
    for position in range(11):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            assert table[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-15)
            assert table[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-15)


def test_sinusoidal_positions_of_an_odd_width_end_with_a_sine():
    np.testing.assert_array_equal(F.sinusoidal_positions(3, 5)[:, 4], np.sin(np.arange(3) / 10000 ** (4 / 5)))


def test_table_positions_take_rows_from_an_offset(rng):
    table = rng.standard_normal((7, 3))
    np.testing.assert_array_equal(F.learned_positions(table, 2, offset=5), table[5:])


def test_heads_split_and_merge(rng):
    x = rng.standard_normal((2, 5, 3 * 7))
    heads = F.split_heads(x, 3)
    assert heads.shape == (2, 3, 5, 7)
    np.testing.assert_array_equal(heads[:, 1], x[..., 7:14])
    np.testing.assert_array_equal(F.merge_heads(heads), x)
