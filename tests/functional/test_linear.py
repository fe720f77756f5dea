"""Linear maps: their product, dtypes and shapes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from regard import RegardError, functional as F


def test_linear_is_x_times_w_plus_b(rng):
    x, w, b = rng.standard_normal((2, 3, 5)), rng.standard_normal((5, 7)), rng.standard_normal(7)
    np.testing.assert_allclose(F.linear(x, w, b), np.einsum("bte,ef->btf", x, w) + b, rtol=1e-12)


def test_linear_counts_integers_as_doubles():
    product = F.linear(np.int8([[100, 100]]), np.int8([[2], [2]]))
    assert (product.dtype, product.tolist()) == (np.float64, [[400.0]])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_linear_computes_half_precision_in_float32_and_rounds_once(rng, dtype):
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
        (lambda: F.learned_positions(np.ones((5, 3)), 6), r"5 rows.*shorten the sequence to 5 tokens"),
    ],
)
def test_shapes_that_do_not_fit_are_named(call, message):
    with pytest.raises(RegardError, match=message):
        call()
