"""The gradients of `attention_vjp`, number by number, against central differences of the equation in float64."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from attention_cases import PATHS, cut_into_blocks
from regard import attention, attention_vjp
from regard.functional import ALiBi, Causal, DistanceBias, RelativePositionBias, SegmentMask

HEADS, GROUPS, QUERIES, KEYS, DIM, WIDTH = 4, 2, 5, 7, 3, 2
STEP = 1e-5  # the error of a central difference is about step² + 1e-16 / step
TOLERANCE = {"rtol": 1e-7, "atol": 1e-8}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    cut_into_blocks(monkeypatch, 3, 2)


def draw(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape)


def some_masked():
    masked = np.random.default_rng(3).random((HEADS, QUERIES, KEYS)) < 0.4
    masked[:, 2] = True
    return masked


def bias_with_infinities():
    return np.where(some_masked(), -np.inf, draw(HEADS, QUERIES, KEYS))


SLOPES, TABLE, SINKS = np.array([0.5, 0.1, 0.3, 0.05]), draw(8, HEADS), draw(HEADS)
DENSE = {
    f"bias {' '.join(map(str, shape)) or 'one number'}": {"bias": draw(*shape)}
    for shape in [
        (), (KEYS,), (1,), (QUERIES, 1), (1, KEYS), (QUERIES, KEYS), (HEADS, 1, 1), (HEADS, QUERIES, 1),
        (HEADS, 1, KEYS), (1, QUERIES, KEYS), (HEADS, QUERIES, KEYS), (1, HEADS, QUERIES, KEYS),
        (2, HEADS, QUERIES, KEYS), (2, 1, 1, KEYS),
    ]
}  # fmt: skip
CASES = {
    "plain": {},
    "scale": {"scale": 0.3},
    "causal": {"causal": True},
    "causal, nothing for the first": {"causal": True, "query_offset": -2},
    "window": {"window": (2, 1)},
    "key lengths": {"key_lengths": np.array([0, 6])},
    "mask": {"mask": ~some_masked()},
    "mask of rules": {"mask": Causal() & SegmentMask(np.array([0, 0, 1, 1, 2]), np.array([0, 0, 0, 1, 1, 2, 2]))},
    "softcap": {"softcap": 0.7},
    "softcap and masked": {"softcap": 0.7, "causal": True, "bias": bias_with_infinities()},
    "sinks": {"sinks": SINKS},
    "sinks and a row of nothing else": {"sinks": SINKS, "causal": True, "query_offset": -2},
    "bias that masks": {"bias": bias_with_infinities()},
    **DENSE,
    "dense bias, causal": {"bias": draw(QUERIES, KEYS), "causal": True},
    "ALiBi": {"bias": ALiBi(SLOPES)},
    "ALiBi, one slope": {"bias": ALiBi(SLOPES[:1])},
    "ALiBi, causal, offset for each entry": {"bias": ALiBi(SLOPES), "causal": True, "query_offset": np.array([1, 4])},
    "relative positions": {"bias": RelativePositionBias(TABLE, max_distance=6)},
    "relative positions, one way": {"bias": RelativePositionBias(TABLE, bidirectional=False, max_distance=6)},
    "relative positions, one column": {"bias": RelativePositionBias(TABLE[:, :1], max_distance=6), "window": (3, 1)},
    "distances": {"bias": DistanceBias(draw(HEADS, QUERIES + KEYS - 1), 1 - KEYS)},
    "more distances than there are, for all heads": {"bias": DistanceBias(draw(15), -8), "causal": True},
    "distances, offset for each entry": {
        "bias": DistanceBias(draw(HEADS, 1 + QUERIES + KEYS), -QUERIES - 1), "query_offset": np.array([1, 2]),
    },
    "dropout": {"dropout": 0.4},
    "dropout, sinks and bias": {"dropout": 0.4, "sinks": SINKS, "bias": draw(HEADS, QUERIES, KEYS)},
    "all at once": {
        "mask": ~some_masked(), "bias": ALiBi(SLOPES), "causal": True, "window": (4, 0), "query_offset": 2,
        "softcap": 2.0, "scale": 0.9, "sinks": SINKS, "key_lengths": np.array([5, 7]), "dropout": 0.2,
    },
}  # fmt: skip


def with_parameter(bias, parameter):
    """Return a bias of the same kind, made from another array."""
    if isinstance(bias, ALiBi):
        return ALiBi(parameter)
    if isinstance(bias, DistanceBias):
        return DistanceBias(parameter, bias.min_distance)
    if isinstance(bias, RelativePositionBias):
        return RelativePositionBias(parameter, bidirectional=bias.bidirectional, max_distance=bias.max_distance)
    return parameter


def call(function, inputs, options):
    """Call `function` with the differentiable inputs by name, dropping out the same weights each time."""
    options = dict(options)
    if "bias" in inputs:
        options["bias"] = with_parameter(options["bias"], inputs["bias"])
    if "sinks" in inputs:
        options["sinks"] = inputs["sinks"]
    if "dropout" in options:
        options["rng"] = np.random.default_rng(7)
    return function(inputs["q"], inputs["k"], inputs["v"], **options)


def inputs_of(options):
    """Return the arrays of a call that have gradients, by name."""
    inputs = {
        "q": draw(2, HEADS, QUERIES, DIM, seed=10),
        "k": draw(2, GROUPS, KEYS, DIM, seed=11),
        "v": draw(2, GROUPS, KEYS, WIDTH, seed=12),
    }
    if "bias" in options:
        inputs["bias"] = getattr(options["bias"], "parameter", options["bias"])
    if "sinks" in options:
        inputs["sinks"] = options["sinks"]
    return inputs


@functools.cache
def weights_of(shape):
    return draw(*shape, seed=5)


def slopes(inputs, options):
    """Return by how much the equation's output, times `draw(..., seed=5)`, changes with each number of each input."""
    found = {}
    for name, given in inputs.items():
        found[name] = np.zeros_like(given)
        for index in np.ndindex(given.shape):
            if given[index] == -np.inf:
                continue
            ends = []
            for sign in (1, -1):
                moved = given.copy()
                moved[index] += sign * STEP
                output = call(attention, {**inputs, name: moved}, {**options, "implementation": "reference"})
                ends.append((output * weights_of(output.shape)).sum())
            found[name][index] = (ends[0] - ends[1]) / (2 * STEP)
    return found


@functools.cache  # for the test of each path
def slopes_of_case(name):
    return slopes(inputs_of(CASES[name]), CASES[name])


def check(inputs, options, expected):
    output, pullback = call(attention_vjp, inputs, options)
    gradients = pullback(draw(*output.shape, seed=5))._asdict()
    for name, given in inputs.items():
        assert gradients[name].shape == given.shape
        np.testing.assert_allclose(gradients[name], expected[name], **TOLERANCE, err_msg=name)
    return gradients


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", CASES)
def test_each_gradient_is_the_slope_of_the_output(name, path):
    options = {**CASES[name], "implementation": path}
    gradients = check(inputs_of(options), options, slopes_of_case(name))
    assert (gradients["bias"] is None) == ("bias" not in options)
    assert (gradients["sinks"] is None) == ("sinks" not in options)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "shapes",
    [
        ((5, 3), (7, 3), (7, 2)),
        ((4, 5, 3), (7, 3), (7, 2)),
        ((4, 5, 3), (1, 7, 3), (2, 7, 2)),
        ((1, 2, 5, 3), (3, 2, 7, 3), (1, 1, 7, 2)),
        ((2, 1, 2, 5, 3), (3, 1, 7, 3), (7, 2)),
        ((5, 3), (3, 1, 7, 3), (1, 7, 2)),
    ],
    ids=str,
)
def test_an_input_that_is_broadcast_gets_the_sum_of_its_gradients(shapes, path):
    inputs = {name: draw(*shape, seed=i) for i, (name, shape) in enumerate(zip("qkv", shapes, strict=True))}
    check(inputs, {"implementation": path}, slopes(inputs, {}))
