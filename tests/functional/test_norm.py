"""Layer norm, by hand and where it is hard."""

from __future__ import annotations

import math

import numpy as np

from regard import functional as F


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
