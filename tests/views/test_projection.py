"""Projection: principal components of the standardized vectors, deterministic and finite."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard import RegardError
from regard.views import project
from regard.views.projection import find_sinks

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 11), st.integers(0, 2**32 - 1))


def clouds(sizes):
    words, width, seed = sizes
    rng = np.random.default_rng(seed)
    return rng.standard_normal((words, width)), 7 * rng.standard_normal((words, width)) + 3


def standardised(cloud):
    centred = cloud - cloud.mean(axis=0)
    return centred / np.sqrt((centred**2).sum() / len(cloud))


def test_explained_variance_is_that_of_the_covariance(rng):
    original, contextual = rng.standard_normal((7, 11)), 5 * rng.standard_normal((7, 11)) + 2
    before, after, ratio = project(original, contextual)
    both = np.concatenate([standardised(original), standardised(contextual)])
    values, vectors = np.linalg.eigh(np.cov(both.T, bias=True))
    np.testing.assert_allclose(ratio, values[::-1][:2] / values.sum(), rtol=1e-10)
    plane = both @ vectors[:, ::-1][:, :2]
    np.testing.assert_allclose(np.abs(np.concatenate([before, after])), np.abs(plane), atol=1e-10)


@given(SIZES)
def test_explained_variance_is_that_of_the_drawn_points(sizes):
    original, contextual = clouds(sizes)
    drawn = np.concatenate(project(original, contextual)[:2])
    ratio = project(original, contextual)[2]
    whole = np.concatenate(
        [standardised(original), standardised(contextual)] if sizes[0] > 1 else [original, contextual]
    )
    whole = whole - whole.mean(axis=0)
    np.testing.assert_allclose((drawn**2).sum(axis=0) / (whole**2).sum(), ratio, atol=1e-9)
    assert ratio[0] >= ratio[1] >= 0
    assert ratio.sum() <= 1 + 1e-9


@given(SIZES, st.floats(0.1, 100), st.floats(-50, 50))
def test_length_and_a_common_shift_of_a_cloud_do_not_matter(sizes, factor, shift):
    original, contextual = clouds((max(sizes[0], 2), *sizes[1:]))
    one, other = project(original, contextual), project(original, contextual * factor + shift)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(np.abs(a), np.abs(b), atol=1e-6)


def test_the_same_word_twice_starts_at_the_same_point(rng):
    original = rng.standard_normal((4, 6))
    original[3] = original[1]
    before, _, _ = project(original, rng.standard_normal((4, 6)))
    np.testing.assert_allclose(before[3], before[1], atol=1e-12)


def test_the_largest_loading_is_positive(rng):
    original, contextual = rng.standard_normal((5, 4)), rng.standard_normal((5, 4))
    before, after, _ = project(original, contextual)
    both = np.concatenate([standardised(original), standardised(contextual)])
    components = np.linalg.lstsq(both, np.concatenate([before, after]))[0]
    assert (components[np.abs(components).argmax(axis=0), [0, 1]] > 0).all()


@pytest.mark.parametrize("words", [1, 2, 5])
def test_vectors_that_never_change_stand_in_the_middle(words):
    before, after, ratio = project(np.full((words, 3), 0.1), np.full((words, 3), 0.1))
    np.testing.assert_allclose(np.concatenate([before, after]), 0, atol=1e-12)
    assert ratio.tolist() == [0, 0]


@pytest.mark.parametrize("words", [1, 2, 5])
def test_a_word_moves_along_the_first_axis_repeated_or_not(words):
    before, after, ratio = project([[0.0, 0.0, 3.0]] * words, [[4.0, 0.0, 3.0]] * words)
    np.testing.assert_allclose(before, [[-2, 0]] * words, atol=1e-12)
    np.testing.assert_allclose(after, [[2, 0]] * words, atol=1e-12)
    np.testing.assert_allclose(ratio, [1, 0], atol=1e-12)


def test_one_cloud_may_be_a_point_while_the_other_is_not(rng):
    before, after, ratio = project(np.ones((3, 4)), rng.standard_normal((3, 4)))
    np.testing.assert_allclose(before, 0, atol=1e-12)
    assert np.isfinite(after).all()
    np.testing.assert_allclose(ratio.sum(), 1)


@pytest.mark.parametrize(
    ("original", "contextual", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 4)), r"one shape T E, got \(2, 3\) and \(2, 4\)"),
        (np.ones(3), np.ones(3), "one shape T E"),
        (np.ones((0, 3)), np.ones((0, 3)), "one shape T E"),
        (np.ones((2, 3)), np.full((2, 3), np.inf), "must be finite, got NaN or infinity"),
    ],
)
def test_mistakes(original, contextual, message):
    with pytest.raises(RegardError, match=message):
        project(original, contextual)


def test_means_scales_and_axes_are_those_of_the_fitted_words(rng):
    original, contextual = rng.standard_normal((2, 7, 11))
    fitted = np.array([True] * 5 + [False] * 2)
    before, after, ratio = project(original, contextual, fitted)
    alone = project(original[:5], contextual[:5])
    for one, other in zip((before[:5], after[:5], ratio), alone, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    assert after[5:].any(axis=1).all()  # the others are projected too


def test_sinks_are_far_longer_than_the_median_in_one_of_the_clouds(rng):
    vectors = rng.standard_normal((3, 9, 16))
    assert not find_sinks(vectors).any()
    vectors[1, 4] *= 50
    vectors[2, 7] *= 3
    assert np.flatnonzero(find_sinks(vectors)).tolist() == [4]
    assert not find_sinks(np.zeros((2, 3, 4))).any()
