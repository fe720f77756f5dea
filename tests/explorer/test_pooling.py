"""Pooled regions of a map, against each cell reduced by itself."""

from itertools import pairwise

import numpy as np
import pytest

from regard.explorer.pooling import pool_between, pool_overview
from regard.trace.overviews import bin_edges, equal_edges

REDUCED = {"max": np.max, "mean": np.mean}


@pytest.mark.parametrize("pool", REDUCED)
@pytest.mark.parametrize(
    ("rows", "cols"), [([0, 2, 4, 6], [0, 4, 8]), ([0, 1, 4, 6], [0, 8]), ([0, 6], [0, 1, 2, 8]), (range(7), range(9))]
)
def test_each_cell_is_the_reduction_of_the_weights_between_its_edges(rng, pool, rows, cols):
    weights, rows, cols = rng.random((6, 8)), np.array(rows), np.array(cols)
    expected = [[REDUCED[pool](weights[a:b, c:d]) for c, d in pairwise(cols)] for a, b in pairwise(rows)]
    np.testing.assert_allclose(pool_between(weights, rows, cols, pool), expected, rtol=1e-15)


@pytest.mark.parametrize("pool", REDUCED)
def test_a_part_of_an_overview_reduces_the_cells_that_it_touches(rng, pool):
    """20 tokens in an overview of 10 cells: those of two tokens each."""
    overview = rng.random((10, 10))
    found = pool_overview(overview, 20, np.array([3, 8, 11]), np.array([0, 4, 7]), pool)
    expected = [[REDUCED[pool](overview[a:b, c:d]) for c, d in ((0, 2), (2, 4))] for a, b in ((1, 4), (4, 6))]
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_edges_of_equal_bins_and_of_bins_of_one_size():
    assert equal_edges(2, 12, 4).tolist() == [2, 4, 7, 9, 12]
    assert bin_edges(2, 12, 4).tolist() == [2, 6, 10, 12]
