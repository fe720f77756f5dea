"""The vector-Jacobian product of every equation, and of NumPy's functions, against central differences in float64."""

import inspect

import numpy as np
import pytest

from regard import RegardError, functional as F
from regard.functional import native, numpy_vjps
from regard.functional.variable import Variable, gradients

RNG = np.random.default_rng(0)
X, W, B = RNG.standard_normal((2, 3, 5)), RNG.standard_normal((5, 7)), RNG.standard_normal(7)
BIAS, SCALE = RNG.standard_normal(5), RNG.standard_normal(5)
IDS = np.array([[1, 3, 1], [0, 1, 5]])
ANGLES = RNG.standard_normal((3, 2))
TARGETS = np.array([[4, -100, 0], [2, 2, 1]])
EXPERTS = (
    F.top_k_softmax(RNG.standard_normal((2, 3, 4)), 2),  # of which two are 0: another is not differentiable there
    RNG.standard_normal((4, 5, 6)),
    RNG.standard_normal((4, 6)),
    RNG.standard_normal((4, 3, 5)),
    RNG.standard_normal((4, 5)),
)

# A function of arrays, and the arrays.
EQUATIONS = {
    "linear": (F.linear, X, W, B),
    "linear without a bias": (F.linear, X[0], W),
    "linear with an activation": (lambda *arrays: F.linear(*arrays, activation="gelu"), X, W, B),
    "layer_norm": (F.layer_norm, X, SCALE, BIAS),
    "layer_norm, bare": (lambda x: F.layer_norm(x, eps=0.3), X),
    "layer_norm of a sum": (lambda x, y: F.layer_norm(x, SCALE, BIAS, residual=y), X, X[::-1]),
    "rms_norm": (F.rms_norm, X, SCALE),
    "rms_norm, bare": (lambda x: F.rms_norm(x, eps=0.3), X),
    "rms_norm of a sum": (lambda x, y: F.rms_norm(x, SCALE, residual=y), X, X[::-1]),
    "gelu": (F.gelu, 2 * X),
    "gelu with a bias": (lambda x, b: F.gelu(x, bias=b), X, BIAS),
    "gelu, tanh": (lambda x: F.gelu(x, "tanh"), 2 * X),
    "silu": (F.silu, 3 * X),
    "silu with a bias": (lambda x, b: F.silu(x, bias=b), X, BIAS),
    "relu": (F.relu, X),
    "quick_gelu": (F.quick_gelu, 2 * X),
    "swiglu": (F.swiglu, X, 2 * X[::-1]),
    "swiglu with biases": (lambda x, y, b, c: F.swiglu(x, y, gate_bias=b, up_bias=c), X, X[::-1], BIAS, SCALE),
    "softmax": (F.softmax, X),
    "softmax of another axis": (lambda x: F.softmax(x, 1), X),
    "apply_rotary": (lambda x: F.apply_rotary(x, np.cos(ANGLES), np.sin(ANGLES)), X),
    "apply_rotary, interleaved": (
        lambda x: F.apply_rotary(x, 2 * np.cos(ANGLES), 2 * np.sin(ANGLES), interleaved=True),
        X,
    ),
    "rotary": (F.rotary, X[..., :4]),
    "embedding": (lambda table: F.embedding(table, IDS), RNG.standard_normal((6, 4))),
    "learned_positions": (lambda table: F.learned_positions(table, 3, offset=2), RNG.standard_normal((6, 4))),
    "split_heads": (lambda x: F.split_heads(x, 3), RNG.standard_normal((2, 4, 6))),
    "merge_heads": (F.merge_heads, RNG.standard_normal((2, 3, 4, 2))),
    "cross_entropy": (lambda x: F.cross_entropy(x, TARGETS), X),
    "cross_entropy, smoothed sum": (lambda x: F.cross_entropy(x, TARGETS, label_smoothing=0.2, reduction="sum"), X),
    "cross_entropy of each": (lambda x: F.cross_entropy(x, abs(TARGETS) % 5, ignore_index=2, reduction="none"), X),
    "top_k_softmax": (lambda x: F.top_k_softmax(x, 2), RNG.standard_normal((3, 4))),
    "experts": (lambda x, *arrays: F.experts(x, *arrays, slope=1.7, limit=1.1), X, *EXPERTS),
}
Q, K, V = (RNG.standard_normal((2, heads, 6, 4)) for heads in (4, 2, 2))
SINKS, BUCKETS = RNG.standard_normal(4), RNG.standard_normal((6, 4))
PADDED = np.arange(6) < np.array([6, 4])[:, None, None, None]
ATTENTION = {
    "plain": (F.attention, Q, K, V),
    "causal, with all": (
        lambda q, k, v, sinks: F.attention(q, k, v, sinks=sinks, causal=True, window=(3, 0), softcap=1.5, mask=PADDED),
        *(Q, K, V, SINKS),
    ),
    "a bias": (lambda q, k, v, b: F.attention(q, k, v, bias=b), Q, K, V, RNG.standard_normal((4, 6, 6))),
    "a learned bias": (
        lambda q, k, v, b: F.attention(q, k, v, bias=F.RelativePositionBias(b, max_distance=5)),
        *(Q, K, V, BUCKETS),
    ),
    "dropout": (lambda q, k, v: F.attention(q, k, v, dropout=0.3, rng=np.random.default_rng(3)), Q, K, V),
}


def weighted(y):
    """Return a sum of all numbers with different weights."""
    return np.sum(y * np.cos(np.arange(y.size)).reshape(y.shape))


def check(function, *arrays, tolerance=1e-7):
    """Compare the gradient of a weighted sum with respect to each array, at once and alone, with differences."""
    variables = [Variable(x) for x in arrays]
    together = gradients(weighted(function(*variables)), variables)
    for i, x in enumerate(arrays):
        direction = np.random.default_rng(i).standard_normal(x.shape) * (x != 0)
        up, down = (weighted(function(*arrays[:i], x + step * direction, *arrays[i + 1 :])) for step in (1e-5, -1e-5))
        variable = Variable(x)
        (alone,) = gradients(weighted(function(*arrays[:i], variable, *arrays[i + 1 :])), [variable])
        np.testing.assert_allclose(alone, together[i], rtol=1e-12, atol=1e-14)
        assert alone.shape == x.shape
        np.testing.assert_allclose((alone * direction).sum(), (up - down) / 2e-5, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", EQUATIONS)
def test_an_equation(name):
    check(*EQUATIONS[name])


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name):
    check(*ATTENTION[name])


def test_every_equation_has_its_vjp():
    """Each function of one array or more whose result depends on it smoothly is here, or is attention of a kind."""
    of_rules = {
        "explain_plan",
        "create_block_mask",
        "alibi_slopes",
        "relative_position_buckets",
        "sinusoidal_positions",
    }
    of_rules |= {"rotary_frequencies", "rotary_pairs", "activation", "gradients"}
    of_rules |= {"normalize", "norm_parts", "score_pairs"}  # composed of operators, each of which is recorded by itself
    of_attention = {"attention_weights", "attention_partial", "merge_partials", "attention_varlen", "linear_attention"}
    equations = {
        name
        for name in F.__all__
        if inspect.isfunction(getattr(F, name)) and not name.endswith("_vjp") and name not in of_rules | of_attention
    }
    assert equations == {name.split(",")[0].split()[0] for name in EQUATIONS} | {"attention"}


@pytest.mark.parametrize("function", [F.linear_vjp, F.embedding_vjp, F.cross_entropy_vjp, F.rms_norm_vjp])
def test_a_vjp_by_itself(function):
    arrays = {
        F.linear_vjp: (X, W, B), F.embedding_vjp: (BIAS[:, None], IDS % 5), F.cross_entropy_vjp: (X, TARGETS),
        F.rms_norm_vjp: (X, SCALE),
    }[function]  # fmt: skip
    output, pullback = function(*arrays)
    plain = getattr(F, function.__name__.removesuffix("_vjp"))(*arrays)
    np.testing.assert_array_equal(output, plain)
    for x, gradient in zip(arrays, pullback(np.ones_like(output)), strict=True):
        assert gradient is None or gradient.shape == x.shape


def test_linear_computes_what_is_asked_for():
    _, pullback = F.linear_vjp(X, W, B, wrt=("x",))
    d_x, d_weight, d_bias = pullback(np.ones((2, 3, 7)))
    assert d_weight is d_bias is None
    np.testing.assert_allclose(d_x, np.ones((2, 3, 7)) @ W.T, rtol=1e-14)


# NumPy's functions

POSITIVE = np.abs(X) + 0.5
NUMPY = {
    np.add: (lambda x, y: x + y, X, BIAS),
    np.subtract: (lambda x, y: x - y, BIAS, X),
    np.multiply: (lambda x, y: x * y, X, X[:1]),
    np.divide: (lambda x, y: x / y, BIAS, POSITIVE),
    np.power: (lambda x, n: x**n + x**3 + 2**n, POSITIVE, BIAS),
    np.matmul: (lambda x, y: x @ y, X, W),
    np.maximum: (np.maximum, X, BIAS),
    np.minimum: (lambda x, y: np.minimum(x, y) + np.minimum(x, 0.1), X, BIAS),
    np.negative: (lambda x: -x, X),
    np.absolute: (abs, X),
    np.square: (np.square, X),
    np.sqrt: (np.sqrt, POSITIVE),
    np.exp: (np.exp, X),
    np.log: (np.log, POSITIVE),
    np.tanh: (np.tanh, X),
    np.sin: (np.sin, X),
    np.cos: (np.cos, X),
    np.where: (lambda x, y: np.where(X > 0, x, y), X, BIAS),
    np.clip: (
        lambda x, y: np.clip(x, -0.5, y) + np.clip(x, y - 1, None) + np.clip(x, a_min=0.1, a_max=y),
        X,
        0.7 * B[:5],
    ),
    np.sum: (lambda x: x.sum((0, 2)) * x.sum(1, keepdims=True).sum(0), X[..., :3]),
    np.max: (lambda x: np.max(x, axis=1) + x.max(), X),
    np.reshape: (lambda x: x.reshape(3, 10) + x.reshape((10, 3)).T, X),
    np.transpose: (lambda x: np.transpose(x, (1, 2, 0)) + np.transpose(x, (-2, 2, 0)), X),
    np.matrix_transpose: (lambda x: x.mT @ x, X),
    np.swapaxes: (lambda x: x.swapaxes(0, 2), X),
    np.moveaxis: (lambda x: np.moveaxis(x, 0, -1), X),
    np.expand_dims: (lambda x: np.expand_dims(x, (0, 2)), X),
    np.squeeze: (lambda x: np.squeeze(x, 0), X[:1]),
    np.broadcast_to: (lambda x: np.broadcast_to(x, (2, 3, 5)), BIAS),
    np.astype: (lambda x: np.astype(x, np.longdouble), X),
    np.concatenate: (lambda x, y: np.concatenate([x, y, x], axis=1), X, X[:, :1]),
    np.stack: (lambda x, y: np.stack([x, y], axis=-1), X, 2 * X),
    np.mean: (lambda x: x.mean(1) - np.mean(x), X),
    np.split: (
        lambda x: sum(i * part.sum() for i, part in enumerate(np.split(x, [1, 1, 4], axis=-1) + np.split(x, 2))),
        X,
    ),
    np.unstack: (lambda x: sum(i * part for i, part in enumerate(np.unstack(x, axis=1))), X),
    np.take: (lambda x: np.take(x, np.array([[0, 2], [2, 2]]), axis=1), X),
    np.repeat: (lambda x: np.repeat(x, 2, axis=-2), X),
    np.take_along_axis: (lambda x: np.take_along_axis(x, np.array([[[1, 1], [0, 4], [2, 3]]] * 2), -1), X),
    np.linalg.norm: (lambda x: np.linalg.norm(x, axis=-1), X),
}
INDEXING = {
    "slices": lambda x: x[:, 1:, ::2],
    "an integer and an ellipsis": lambda x: x[0, ..., 2],
    "arrays that repeat": lambda x: x[np.array([0, 1, 1]), np.array([2, 2, 2])],
    "booleans": lambda x: x[X > 0],
    "none": lambda x: x[..., None, 1],
    "one by one": lambda x: sum(part * i for i, part in enumerate(x)),
}


@pytest.mark.parametrize("function", NUMPY, ids=lambda function: function.__name__)
def test_a_function_of_numpy(function):
    check(*NUMPY[function])


def test_all_functions_of_numpy_are_here():
    assert NUMPY.keys() == {*numpy_vjps.VJPS, *numpy_vjps.OF_SEQUENCES, *numpy_vjps.COMPOSITIONS}


@pytest.mark.parametrize("shapes", [((5,), (5,)), ((5,), (2, 5, 3)), ((2, 3, 5), (5,)), ((4, 1, 3, 5), (2, 5, 2))])
def test_matrix_products_of_any_axes(shapes):
    check(lambda x, y: x @ y, *(RNG.standard_normal(shape) for shape in shapes))


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name):
    check(INDEXING[name], X)


@pytest.mark.parametrize("base", [3.0, 0.0, np.array([0.5, 2.0])])
def test_the_exponent_may_be_a_number(base):
    n = Variable(np.array(2.0))
    (found,) = gradients(np.sum(base**n), [n])
    safe = np.where(np.asarray(base) > 0, base, 1)
    np.testing.assert_allclose(found, np.sum(np.asarray(base) ** 2 * np.log(safe)), rtol=1e-12)


def test_the_power_0_has_gradient_0_everywhere():
    x = Variable(np.array([-1.0, 0.0, 2.0]))
    np.testing.assert_array_equal(gradients(np.sum(x**0), [x])[0], 0)


@pytest.mark.parametrize("vjp", [F.layer_norm_vjp, F.rms_norm_vjp])
def test_norms_of_large_numbers_in_half_precision_without_the_kernel(vjp, monkeypatch):
    x, d = (300 * X).astype(np.float16), X[::-1].astype(np.float16)
    weight = W[:, 0].astype(np.float16)
    expected = vjp(x.astype(np.float64), weight.astype(np.float64))[1](d.astype(np.float64))
    monkeypatch.setattr(native, "kernel", lambda: None)
    for gradient, exact in zip(vjp(x, weight)[1](d), expected, strict=True):
        if exact is not None:
            assert gradient.dtype == np.float16
            np.testing.assert_allclose(gradient, exact, rtol=2e-3, atol=2e-3 * np.abs(exact).max())


def test_in_place_operators_make_new_variables():
    x = Variable(X)
    y = x
    y += 1
    y *= x
    np.testing.assert_array_equal(x.value, X)
    np.testing.assert_allclose(gradients(np.sum(y), [x])[0], 2 * X + 1)


def test_comparisons_and_indices_are_plain():
    x = Variable(X)
    assert type(x > 0) is np.ndarray
    assert x.argmax() == X.argmax()
    assert isinstance(np.isfinite(x), np.ndarray)


def test_what_has_no_gradient_is_an_error():
    x = Variable(X)
    with pytest.raises(RegardError, match=r"no gradient through np\.sinh"):
        np.sinh(x)
    for several in (np.modf, np.linalg.svd, np.frexp):  # of several results, one is continuous
        with pytest.raises(RegardError, match="no gradient through"):
            several(x)
    with pytest.raises(RegardError, match=r"no gradient through np\.rfft"):
        np.fft.rfft(x)
    with pytest.raises(RegardError, match="not converted to a plain array"):
        np.asarray(x)
    with pytest.raises(RegardError, match="not written in place"):
        np.add(X, x, out=np.empty_like(X))
    with pytest.raises(RegardError, match=r"one floating number, got float64 \(2, 3, 5\)"):
        gradients(x, [x])


def test_a_result_is_differentiated_once():
    x = Variable(X)
    total = np.sum(x * x)
    gradients(total, [x])
    with pytest.raises(RegardError, match="taken already"):
        gradients(total, [x])


def test_gradients_have_the_dtype_of_the_input():
    x, w = Variable(X.astype(np.float32)), Variable(W)
    assert [d.dtype for d in gradients(np.sum(F.linear(x, w)), [x, w])] == [np.float32, np.float64]


def test_a_variable_that_does_not_matter_has_the_gradient_0():
    x, y = Variable(X), Variable(BIAS)
    np.testing.assert_array_equal(gradients(np.sum(x), [y])[0], np.zeros(5))


def test_what_is_added_up_in_place_is_shared_with_nothing():
    x, y = Variable(X), Variable(2 * X)
    together = (x + y) * SCALE + x * 3 + x * 5 + (x - y) * BIAS  # the sums hand one array to both
    d_together = np.cos(X)
    given = d_together.copy()
    d_x, d_y = gradients(together, [x, y], d_together)
    np.testing.assert_allclose(d_x, given * (SCALE + BIAS + 8), rtol=1e-14)
    np.testing.assert_allclose(d_y, given * (SCALE - BIAS), rtol=1e-14)
    assert np.array_equal(d_together, given)
