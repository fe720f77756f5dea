"""The softmax, against exact arithmetic."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from regard import functional as F

finite = st.floats(-1e4, 1e4, width=32)


@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=3, max_side=5), elements=finite))
def test_softmax_is_within_ulps_of_exact_weights(x):
    weights = F.softmax(x)
    with mpmath.workdps(50):
        for row, ours in zip(x.reshape(-1, x.shape[-1]), weights.reshape(-1, x.shape[-1]), strict=True):
            exponentials = [mpmath.exp(mpmath.mpf(float(a))) for a in row]
            exact = np.array([float(e / mpmath.fsum(exponentials)) for e in exponentials])
            # The shift rounds x − max once: half an ulp of the distance is that much of relative error.
            np.testing.assert_allclose(ours, exact, rtol=4e-16 * (8 + np.ptp(row)), atol=1e-300)


@given(hnp.arrays(np.float64, (3, 5), elements=finite), st.floats(-1e3, 1e3))
def test_softmax_ignores_translation(x, shift):
    np.testing.assert_allclose(F.softmax(x + shift), F.softmax(x), rtol=0, atol=1e-11)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_softmax_normalises_any_axis(rng, axis):
    np.testing.assert_allclose(F.softmax(rng.standard_normal((2, 3, 5)), axis=axis).sum(axis), 1, rtol=1e-15)


def test_softmax_of_nothing_is_zero_or_empty():
    assert (F.softmax(np.full((2, 3), -np.inf)) == 0).all()
    assert F.softmax(np.zeros((2, 0))).shape == (2, 0)


def test_softmax_of_half_precision_is_rounded_once(rng):
    x = rng.standard_normal(4099).astype(np.float16)
    np.testing.assert_array_equal(F.softmax(x), F.softmax(x.astype(np.float32)).astype(np.float16))
