"""Routers and experts: what they are given is checked, and nothing vanishes."""

from __future__ import annotations

import numpy as np
import pytest

from regard import RegardError
from regard.functional import experts, top_k_softmax

EXPERTS, WIDTH, HIDDEN = 3, 4, 2


@pytest.fixture
def arrays(rng):
    shapes = [(EXPERTS, WIDTH, 2 * HIDDEN), (EXPERTS, 2 * HIDDEN), (EXPERTS, HIDDEN, WIDTH), (EXPERTS, WIDTH)]
    return [rng.standard_normal(shape) for shape in shapes]


def alone(x, arrays, i):
    gate_up, gate_up_bias, down, down_bias = (array[i] for array in arrays)
    hidden = x @ gate_up + gate_up_bias
    gate, up = np.minimum(hidden[..., 0::2], 7.0), np.clip(hidden[..., 1::2], -7.0, 7.0)
    return ((up + 1) * gate / (1 + np.exp(-gate))) @ down + down_bias


@pytest.mark.parametrize("k", [0, -2, 4, True, 1.0, None])
def test_a_number_of_experts_that_there_are_not(k):
    with pytest.raises(RegardError, match=r"k must be a whole number|k is at most the number of logits"):
        top_k_softmax(np.array([1.0, 2.0, 3.0]), k)


def test_integer_logits_have_the_weights_of_floats():
    np.testing.assert_array_equal(top_k_softmax(np.array([1, 2, 3]), 2), top_k_softmax(np.array([1.0, 2, 3]), 2))


def test_negative_and_undefined_weights_count(rng, arrays):
    x, routing = rng.standard_normal((5, WIDTH)), rng.standard_normal((5, EXPERTS))
    wanted = sum(routing[:, i, None] * alone(x, arrays, i) for i in range(EXPERTS))
    np.testing.assert_allclose(experts(x, routing, *arrays, slope=1.0, limit=7.0), wanted, rtol=1e-12, atol=1e-12)
    routing[1, 2] = np.nan
    found = experts(x, routing, *arrays, slope=1.0, limit=7.0)
    assert np.isnan(found[1]).all()
    assert np.isfinite(np.delete(found, 1, axis=0)).all()


def test_a_column_for_each_expert(rng, arrays):
    x = rng.standard_normal((5, WIDTH))
    with pytest.raises(RegardError, match=r"routing of 3 experts .* must have the shape \(5, 3\), got \(5, 1\)"):
        experts(x, np.ones((5, 1)), *arrays, slope=1.0, limit=7.0)
    arrays[3] = arrays[3][:, :1]
    with pytest.raises(RegardError, match="down_bias of 3 experts"):
        experts(x, np.ones((5, EXPERTS)), *arrays, slope=1.0, limit=7.0)
