"""Products that are not multiplied out have the numbers of those that are."""

import numpy as np
import pytest

from regard import RegardError
from regard.functional import FactoredMatrix


def product(rng, *shape, inner=3):
    left = rng.standard_normal((*shape[:-1], inner))
    return FactoredMatrix(left, rng.standard_normal((*shape[:-2], inner, shape[-1])))


@pytest.mark.parametrize("shape", [(7, 5), (5, 7), (2, 4, 6, 6), (2, 2)])
def test_singular_values_and_norm(rng, shape):
    x = product(rng, *shape)
    whole = np.asarray(x)
    assert x.shape == whole.shape == shape
    u, values, vt = x.svd
    count = min(3, *shape[-2:])
    np.testing.assert_allclose(values[..., :count], np.linalg.svd(whole)[1][..., :count], atol=1e-12)
    np.testing.assert_allclose((u * values[..., None, :]) @ vt, whole, atol=1e-12)
    np.testing.assert_allclose(
        u.mT @ u, np.broadcast_to(np.eye(u.shape[-1]), (*shape[:-2], *2 * u.shape[-1:])), atol=1e-12
    )
    np.testing.assert_allclose(x.norm, np.linalg.norm(whole, axis=(-1, -2)), atol=1e-12)


def test_eigenvalues(rng):
    x = product(rng, 4, 6, 6)
    for ours, whole in zip(x.eigenvalues, np.asarray(x), strict=True):
        theirs = np.linalg.eigvals(whole)
        theirs = theirs[np.argsort(-abs(theirs))][:3]
        for value in theirs:
            assert np.abs(ours - value).min() < 1e-10
    with pytest.raises(RegardError, match="no eigenvalues"):
        _ = product(rng, 4, 5).eigenvalues


@pytest.mark.parametrize("inner", [2, 9])
def test_products_of_products(rng, inner):
    x, y = product(rng, 3, 6, 5), product(rng, 3, 5, 7, inner=inner)
    whole = np.asarray(x) @ np.asarray(y)
    both = x @ y
    assert both.left.shape[-1] == min(3, inner)
    np.testing.assert_allclose(np.asarray(both), whole, atol=1e-12)
    np.testing.assert_allclose(np.asarray(x @ np.asarray(y)), whole, atol=1e-12)
    np.testing.assert_allclose(np.asarray(np.asarray(x) @ y), whole, atol=1e-12)
    np.testing.assert_allclose(np.asarray(both.T), whole.mT, atol=1e-12)
    np.testing.assert_allclose(np.asarray(both[1]), whole[1], atol=1e-12)


def test_products_with_a_vector_are_vectors(rng):
    x, left, right = product(rng, 3, 6, 5), rng.standard_normal(6), rng.standard_normal(5)
    np.testing.assert_allclose(x @ right, np.asarray(x) @ right, atol=1e-12)
    np.testing.assert_allclose(left @ x, left @ np.asarray(x), atol=1e-12)
    with pytest.raises(ValueError, match="size 6 is different from 5"):
        x @ left


def test_a_product_of_a_whole_vocabulary_takes_no_memory_of_its_square(rng):
    x = FactoredMatrix(rng.standard_normal((200_000, 4)), rng.standard_normal((4, 200_000)))  # 320 GB
    assert x.norm > 0
    assert len(x.eigenvalues) == len(x.singular_values) == 4
    assert repr(x) == "FactoredMatrix(200000 200000, inner 4)"


def test_factors_must_meet(rng):
    with pytest.raises(RegardError, match=r"\(3, 4\) · \(5, 3\) is not a product"):
        FactoredMatrix(rng.standard_normal((3, 4)), rng.standard_normal((5, 3)))
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(product(rng, 3, 3), copy=False)


@pytest.mark.parametrize("shape", [(7, 5), (2, 7, 5)])
def test_rows_and_columns_are_those_of_the_product(rng, shape):
    x = product(rng, *shape)
    whole = np.asarray(x)
    lead = (1,) * (len(shape) - 2)
    order = rng.permutation(shape[-2])
    for index in [3, -1, slice(1, 4), order, (2, 3), (slice(None), 2), (order, slice(0, 2)), (slice(2), -1)]:
        index = (*lead, *(index if isinstance(index, tuple) else (index,)))
        found = x[index]
        assert isinstance(found, FactoredMatrix) == (found.ndim == 2 if isinstance(found, np.ndarray) else True)
        np.testing.assert_allclose(np.asarray(found), whole[index], atol=1e-12)
    for index in [(0,) * 4, 99, None, ...]:
        with pytest.raises(IndexError):
            _ = x[index]


def test_a_product_that_fits_no_memory_is_not_multiplied_out(rng):
    x = FactoredMatrix(rng.standard_normal((200_000, 4)), rng.standard_normal((4, 200_000)))
    with pytest.raises(RegardError, match=r"40,000,000,000 numbers: take rows"):
        np.asarray(x)
    np.testing.assert_allclose(x[199_999], x.left[-1] @ x.right)
