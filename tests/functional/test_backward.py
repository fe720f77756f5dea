"""The gradients of `attention_vjp` against central differences of the equation in float64."""

import dataclasses

import numpy as np
import pytest

from attention_cases import PATHS, cut_into_blocks, random_case
from regard import attention, attention_vjp
from regard.functional import ALiBi, Causal, DistanceBias, RelativePositionBias, SegmentMask
from sweeps import sweep_after

HEADS, GROUPS, QUERIES, KEYS, DIM, WIDTH = 4, 2, 5, 7, 3, 2
STEP = 1e-5  # the error of a central difference is about step² + 1e-16 / step
TOLERANCE = {"rtol": 1e-6, "atol": 1e-7}


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
    if isinstance(bias, np.ndarray):
        return parameter
    return dataclasses.replace(bias, parameter=parameter)


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


def check(q, k, v, options, path):
    """Compare each gradient along a direction with the difference of outputs."""
    inputs = {"q": q, "k": k, "v": v}
    if "bias" in options:
        inputs["bias"] = getattr(options["bias"], "parameter", options["bias"])
    if "sinks" in options:
        inputs["sinks"] = options["sinks"]
    output, pullback = call(attention_vjp, inputs, {**options, "implementation": path})
    d_output = draw(*output.shape, seed=5)
    gradients = {name: x for name, x in pullback(d_output)._asdict().items() if x is not None}
    assert gradients.keys() == inputs.keys()
    for seed, (name, given) in enumerate(inputs.items(), 20):
        assert gradients[name].shape == given.shape
        step, reference = STEP * draw(*given.shape, seed=seed), {**options, "implementation": "reference"}
        up, down = (call(attention, {**inputs, name: given + x}, reference) for x in (step, -step))
        slope = ((up - down) * d_output).sum() / (2 * STEP)
        np.testing.assert_allclose((gradients[name] * step).sum() / STEP, slope, **TOLERANCE, err_msg=name)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", CASES)
def test_each_gradient_is_the_slope_of_the_output(name, path):
    shapes = (2, HEADS, QUERIES, DIM), (2, GROUPS, KEYS, DIM), (2, GROUPS, KEYS, WIDTH)
    check(*(draw(*shape, seed=seed) for seed, shape in enumerate(shapes, 10)), CASES[name], path)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("first", sweep_after(4, range(0, 2000, 50)))
def test_of_random_arguments_too(first, path):
    for seed in range(first, first + 10):
        case = random_case(seed)
        check(case.q, case.k, case.v, case.options, path)


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
    check(*(draw(*shape, seed=seed) for seed, shape in enumerate(shapes)), {}, path)
