"""Label placement: inside the page, without overlap of labels or points."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard.plot.label_placement import place_labels


def place(points, sizes, page, obstacles=None, segments=None):
    return place_labels(
        points,
        sizes,
        page,
        obstacles=points if obstacles is None else obstacles,
        segments=np.zeros((0, 2, 2)) if segments is None else segments,
    )


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_labels_are_on_the_page_and_cover_neither_each_other_nor_a_point(count, seed):
    rng = np.random.default_rng(seed)
    page = (5.0, 4.0)
    points = rng.random((count, 2)) * page
    sizes = rng.random((count, 2)) * (0.8, 0.1) + 0.1
    boxes = [
        (np.array(centre) - size / 2, np.array(centre) + size / 2)
        for centre, size in zip(place(points, sizes, page), sizes, strict=True)
        if centre is not None
    ]
    for i, (low, high) in enumerate(boxes):
        assert (low >= 0).all()
        assert (high <= page).all()
        assert not ((points > low) & (points < high)).all(axis=1).any()
        for other_low, other_high in boxes[:i]:
            assert not ((low < other_high) & (other_low < high)).all()


LINE = np.array([[[1.0, 1.0], [2.0, 1.0]]])


@pytest.mark.parametrize(
    ("at", "segments", "least", "most"),
    [(1.0, None, 1.2, 1.35), (2.9, None, 0, 2.9), (1.0, LINE, 0, 1)],
    ids=["right of its point if that is free", "away from the edge", "away from a line"],
)
def test_where_a_label_is(at, segments, least, most):
    ((x, y),) = place(np.array([[at, 1.0]]), np.array([[0.4, 0.1]]), (3, 2), segments=segments)
    assert least < x < most
    assert y == 1 or least == 0


def test_equal_points_have_labels_around_them_as_far_away_as_it_takes():
    centres = place(np.ones((6, 2)), np.full((6, 2), 0.1), (2, 2))
    assert len({*centres} - {None}) == 6
    assert None not in place(np.full((60, 2), 3.0), np.full((60, 2), (0.6, 0.15)), (6, 6))


def test_a_label_that_is_larger_than_the_page_is_left_out():
    assert place(np.ones((1, 2)), np.array([[9.0, 0.1]]), (2, 2)) == [None]


def test_a_label_is_nearer_to_its_own_point_than_to_another():
    """To the right of the first point, where labels go first, another point is nearer."""
    points, page = np.array([[2.0, 2.0], [2.26, 2.101]]), (4.0, 4.0)
    sizes = np.array([[0.4, 0.1], [0.4, 0.1]])
    for point, other, size, centre in zip(points, points[::-1], sizes, place(points, sizes, page), strict=True):
        assert gap(centre, size, point) < gap(centre, size, other)


def gap(centre, size, point):
    return np.linalg.norm(np.maximum(np.abs(np.array(centre) - point) - size / 2, 0))
