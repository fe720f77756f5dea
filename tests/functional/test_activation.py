"""Activation functions, against exact arithmetic, by NumPy and with each instruction set of the kernel."""

import functools

import mpmath
import numpy as np
import pytest
from mpmath import exp, mpf, pi, sqrt

from regard import functional as F
from regard.functional import native
from regard.functional.activation import ACTIVATIONS


@pytest.fixture(params=["NumPy", *(native.kernel().instruction_sets() if native.kernel() else [])])
def computed_by(request, monkeypatch, as_it_was):
    if request.param == "NumPy":
        monkeypatch.setattr(native, "kernel", lambda: None)
    else:
        assert native.kernel().use_instruction_set(request.param)
    return request.param


def tanh_argument(a):
    return 2 * sqrt(2 / pi) * (a + mpf("0.044715") * a**3)


# The function, its formula, and how many units its result may be off: the exponential turns the rounding of its
# argument, such as x²/2, into that much relative error.
FORMULAS = {
    "gelu": (F.gelu, lambda a: a * mpmath.ncdf(a), lambda a: 8 + a**2),
    "gelu tanh": (
        lambda x: F.gelu(x, "tanh"),
        lambda a: a / (1 + exp(-tanh_argument(a))),
        lambda a: 8 + 4 * abs(tanh_argument(a)),
    ),
    "silu": (F.silu, lambda a: a / (1 + exp(-a)), lambda a: 6),
    "quick_gelu": (F.quick_gelu, lambda a: a / (1 + exp(-mpf("1.702") * a)), lambda a: 6 + 2 * abs(a)),
}
NUMBERS = np.float32([*np.linspace(-12, 12, 241), *np.linspace(-80, 80, 81), 0, 1e-30, -1e-30, 5e3, -5e3])


@functools.cache  # for each dtype and what computes it
def exact(name):
    """Return the values at `NUMBERS` in 50 digits, and how many units a result may be off."""
    _, formula, units = FORMULAS[name]
    with mpmath.workdps(50):
        return [(mpf(float(a)), formula(mpf(float(a))), units(mpf(float(a)))) for a in NUMBERS]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FORMULAS)
def test_it_is_the_formula_in_both_tails(computed_by, name, dtype):
    eps, tiny = (mpf(float(x)) for x in (np.finfo(dtype).eps, np.finfo(dtype).tiny))
    for ours, (a, value, units) in zip(FORMULAS[name][0](NUMBERS.astype(dtype)), exact(name), strict=True):
        bound = units * eps * abs(value) + (1 + abs(a)) * tiny
        if (name, computed_by) == ("gelu tanh", "NumPy"):
            bound += eps * abs(a)  # 1 + tanh cancels
        assert abs(mpf(float(ours)) - value) <= bound, a


@pytest.mark.usefixtures("computed_by")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FORMULAS)
def test_large_numbers_and_infinities_neither_overflow_nor_warn(name, dtype):
    function, far = FORMULAS[name][0], np.finfo(dtype).max
    x = np.array([-np.inf, -far, -1e4, -0.0, 1e4, far, np.inf], dtype)
    np.testing.assert_array_equal(function(x), [0, 0, 0, 0, dtype(1e4), far, np.inf])
    assert np.isnan(function(np.array(np.nan, dtype)))


@pytest.mark.skipif(np.finfo(np.longdouble).eps == np.finfo(np.float64).eps, reason="long doubles are doubles here")
def test_gelu_of_long_doubles_is_at_least_as_good_as_of_doubles():
    x = np.linspace(-5, 5, 101)
    np.testing.assert_allclose(F.gelu(x.astype(np.longdouble)), F.gelu(x), rtol=1e-14)
    far = np.finfo(np.longdouble).max
    for approximate in ("none", "tanh"):
        assert list(F.gelu(np.array([-far, -1e4, 1e4, far]), approximate)) == [0, 0, 1e4, far]


@pytest.mark.parametrize("name", ["gelu_new", "gelu_pytorch_tanh"])
def test_the_names_of_the_tanh_formula_mean_it(name):
    x = np.linspace(-3, 3, 7)
    np.testing.assert_array_equal(F.activation(name)(x), F.gelu(x, "tanh"))
    assert not np.array_equal(F.activation(name)(x), F.gelu(x))


def test_the_function_of_each_name_is_public():
    """`test_vjps` has an equation for everything public."""
    assert {entry.function.__name__ for entry in ACTIVATIONS.values()} - {"_gelu_tanh"} <= {*F.__all__}
