"""Fewer points that still begin and end where all do."""

import numpy as np
import pytest

from regard.training.thinning import mean_losses, spread


def test_a_spread_has_both_ends():
    assert spread([1, 2, 3], 3) == [1, 2, 3]
    assert spread(range(101), 5) == [0, 25, 50, 75, 100]
    assert spread(range(10), 2) == [0, 9]


@pytest.mark.parametrize("count", [1, 7, 999, 1000, 1001, 2500])
def test_losses_are_means_of_equally_many_steps(count):
    values = np.arange(count) ** 1.5
    steps, means, size = mean_losses(range(1, count + 1), values.tolist(), 1000)
    assert len(steps) == len(means) <= 1000
    assert steps[-1] == count
    assert means[-1] == pytest.approx(values[max(0, count - size) :].mean())
    if count > size:
        assert means[1] == pytest.approx(values[size : 2 * size].mean())


def test_no_losses():
    assert mean_losses([], [], 10) == ([], [], 1)
