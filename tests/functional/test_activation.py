"""Activation functions, against exact arithmetic."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from regard import RegardError, functional as F
from regard.functional.activation import ACTIVATIONS


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


def test_gelu_keeps_half_precision():
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
    with pytest.raises(RegardError, match=r'approximate must be "none" or "tanh", got .erf.'):
        F.gelu(np.ones(2), "erf")
    with pytest.raises(RegardError, match=r"unknown activation 'mish'; known are gelu"):
        F.activation("mish")


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float64, 4e-15)])
def test_quick_gelu_and_its_gradient_are_the_formula(rng, dtype, tolerance):
    x = (rng.standard_normal(101) * 4).astype(dtype)
    with mpmath.workdps(30):
        f = [mpmath.mpf(float(a)) / (1 + mpmath.exp(-mpmath.mpf("1.702") * float(a))) for a in x]
        slopes = [mpmath.diff(lambda a: a / (1 + mpmath.exp(-mpmath.mpf("1.702") * a)), float(a)) for a in x]
    y, pullback = F.quick_gelu_vjp(x)
    (d_x,) = pullback(np.full_like(x, 2))
    np.testing.assert_allclose(y, np.array(f, dtype), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(d_x, 2 * np.array(slopes, dtype), rtol=tolerance, atol=tolerance)


def test_quick_gelu_of_large_numbers_neither_overflows_nor_warns():
    far = np.finfo(np.float32).max
    x = np.array([-np.inf, -far, far, np.inf], np.float32)
    np.testing.assert_array_equal(F.quick_gelu(x), [0, 0, far, np.inf])
    np.testing.assert_array_equal(F.quick_gelu_vjp(x)[1](np.ones_like(x))[0], [0, 0, 1, 1])


def test_relu():
    np.testing.assert_array_equal(F.relu(np.array([-1.0, 0.0, 2.0])), [0, 0, 2])
    assert F.relu([-1, 2]).dtype == np.float64


def test_the_function_of_each_name_is_public():
    """`test_vjps` has an equation for everything public."""
    assert {entry.function.__name__ for entry in ACTIVATIONS.values()} - {"_gelu_tanh"} <= {*F.__all__}
