"""The rules of AttnLRP: worked by hand, against compositions of other rules, and what keeps the sum of relevance."""

import numpy as np
import pytest

from regard import functional as F
from regard.functional.activation import ACTIVATIONS
from regard.functional.attnlrp import ATTNLRP
from regard.functional.variable import Variable, gradients

RNG = np.random.default_rng(0)
X, Y, W = (RNG.standard_normal(shape) for shape in ((3, 4), (3, 4), (4, 6)))
Q, K, V = (RNG.standard_normal((2, 3, 4)) for _ in range(3))
S = 1 / (1 + np.exp(-2))  # the sigmoid of 2
BIAS = RNG.standard_normal((2, 3, 3))


def relevances(function, *arrays, d=None):
    """Return the result of a function, and what its rules return for each array."""
    variables = [Variable(x, rules=ATTNLRP) for x in arrays]
    result = function(*variables)
    return result.value, gradients(result, variables, RNG.standard_normal(result.shape) if d is None else d)


CONSERVING = {
    "product": (np.multiply, X, Y),
    "square": (lambda x: x * x, X),
    "product with a constant": (lambda x: x * Y, X),
    "matrix product": (lambda x, y: x @ y.mT, X, Y),
    "quotient": (np.divide, X, Y),
    "length 1": (lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)), X),
    "linear": (lambda x: F.linear(x, W), X),
    "linear with an activation": (lambda x: F.linear(x, W, activation="gelu"), X),
    **{name: (F.activation(name), X) for name in ACTIVATIONS},
    "tanh": (np.tanh, X),
    "activation of 0": (F.gelu, np.array([0.0, 1.0])),
    "swiglu": (F.swiglu, X, Y),
    "layer_norm": (lambda x: F.layer_norm(x, Y[0], eps=0.3), X),
    "rms_norm": (lambda x: F.rms_norm(x, Y[0], eps=0.3), X),
    "bare norms": (lambda x: F.layer_norm(F.rms_norm(x)), X),
    "attention to constant keys": (lambda v: F.attention(Q, K, v), V),
    "concatenation": (lambda x, y: np.concatenate([x, y]).T[1:] - x.T[1:, :1], X, Y),
}


@pytest.mark.parametrize("case", CONSERVING)
def test_the_sum_of_relevance_is_kept(case):
    function, *arrays = CONSERVING[case]
    d = RNG.standard_normal(function(*arrays).shape)
    y, found = relevances(function, *arrays, d=d)
    total = sum((x * part).sum() for x, part in zip(arrays, found, strict=True))
    assert total == pytest.approx((y * d).sum(), rel=1e-12)


def test_a_product_gives_half_to_each_factor():
    _, (of_x, of_y) = relevances(np.multiply, np.array([2.0]), np.array([5.0]), d=np.array([1.0]))
    assert (of_x, of_y) == (2.5, 1.0)  # of 10: 2 · 2.5 and 5 · 1


def test_an_activation_at_0_has_its_derivative():
    _, (found,) = relevances(F.silu, np.array([0.0, 1.0]), d=np.ones(2))
    np.testing.assert_allclose(found, [0.5, 1 / (1 + np.exp(-1))])


def test_a_norm_holds_its_scale():
    x = np.array([[1.0, 7.0]])
    _, (found,) = relevances(lambda x: F.rms_norm(x, eps=0.0), x, d=np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(found, [[0.2, 0.0]])  # the root of the mean of 1 and 49 is 5
    _, (found,) = relevances(lambda x: F.layer_norm(x, eps=0.0), x, d=np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(found, [[1 / 6, -1 / 6]])  # (x − mean) / 3, the mean a linear map


def test_a_softmax_is_expanded_to_first_order():
    x, d = np.array([0.5, -1.0, 2.0]), np.array([1.0, 3.0, -2.0])
    y, (found,) = relevances(F.softmax, x, d=d)
    relevance = d * y
    np.testing.assert_allclose(x * found, x * (relevance - y * relevance.sum()))  # Achtibat et al., proposition 3.1


@pytest.mark.parametrize(
    ("softcap", "biased", "groups"), [(None, False, 2), (None, True, 2), (None, False, 1), (1.5, False, 1)]
)
def test_attention_is_the_composition_of_its_steps(softcap, biased, groups):
    mask, d = np.tri(3, dtype=bool), RNG.standard_normal(Q.shape)

    def composed(q, k, v, bias=None):
        k, v = (np.repeat(x, 2 // groups, 0) for x in (k, v))
        scores = q @ k.mT * 0.5
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        scores = scores if bias is None else scores + bias
        return F.softmax(np.where(mask, scores, -np.inf)) @ v

    def attention(q, k, v, bias=None):
        return F.attention(q, k, v, bias=bias, causal=True, softcap=softcap)

    arrays = [Q, K[:groups], V[:groups], *([BIAS] if biased else [])]
    (y, found), (expected_y, expected) = (relevances(f, *arrays, d=d) for f in (attention, composed))
    np.testing.assert_allclose(y, expected_y, rtol=1e-12)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def test_experts_are_the_composition_of_their_steps():
    gate_up, down = RNG.standard_normal((5, 4, 6)), RNG.standard_normal((5, 3, 4))
    gate_up_bias, down_bias = RNG.standard_normal((5, 6)), RNG.standard_normal((5, 4))
    routing, d = F.top_k_softmax(RNG.standard_normal((3, 5)), 2), RNG.standard_normal(X.shape)

    def clipped(x, low, high):  # relevance passes as through an activation
        return x * (np.clip(x.value, low, high) / x.value)

    def composed(x, routing):
        total = 0
        for i in range(5):
            hidden = F.linear(x, gate_up[i], gate_up_bias[i])
            gate, up = clipped(hidden[:, 0::2], -np.inf, 0.9), clipped(hidden[:, 1::2], -0.9, 0.9)
            y = F.linear((up + 1) * (F.silu(1.7 * gate) / 1.7), down[i], down_bias[i])
            total = total + routing[:, [i]] * y * (routing.value[:, [i]] != 0)
        return total

    def experts(x, routing):
        return F.experts(x, routing, gate_up, gate_up_bias, down, down_bias, slope=1.7, limit=0.9)

    (y, found), (expected_y, expected) = (relevances(f, X, routing, d=d) for f in (experts, composed))
    np.testing.assert_allclose(y, expected_y, rtol=1e-12)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-10)
    np.testing.assert_allclose(found[1], expected[1] * (routing != 0), rtol=1e-10)


@pytest.mark.parametrize(
    ("gate", "up", "expected"),
    [
        (0.0, 0.5, (0.375, 0.0)),  # of 1.5 · gate · sigmoid(2 · gate), half of its derivative at 0
        (1.0, 0.0, (S / 2, S / 2)),  # the derivative of the clip at 0 is 1
        (1.0, -1.0, (0.0, S / 2)),  # up + 1 is 0, and the gate counts for up all the same
    ],
)
def test_experts_at_0_have_the_derivative_of_their_activations(gate, up, expected):
    x, down = np.array([[gate, up]]), np.array([[[1.0, 0.0]]])
    one_expert = (np.ones((1, 1)), np.eye(2)[None], np.zeros((1, 2)), down, np.zeros((1, 2)))  # its gate is x[0]
    _, (found,) = relevances(lambda x: F.experts(x, *one_expert, slope=2.0, limit=3.0), x, d=down[0])
    np.testing.assert_allclose(found, [expected], rtol=1e-12)
