"""AttnLRP: rules that propagate relevance back through a run, in place of gradients.

The relevance of an array is its value times what `gradients` returns for it, if the variables of the run carry these
rules. With d for what reaches the result y of a function:

- A product of two variables, elementwise or of matrices, passes half of the gradient to each factor.
- An activation, a function f of each number x with f(0) = 0, passes d · y / x: x gets the relevance of y.
- A norm, or a quotient of two variables, treats the divisor as a constant.
- Everything else, linear maps and softmax among them, passes its gradient, a first-order Taylor expansion.

Relevance is conserved, with two exceptions: a constant that is added, such as a bias or a position embedding, absorbs
its share; and softmax, like the sigmoid of a router, does not conserve it. Attention is one step, whose maps are not
recorded: by steps its softmax would be a quotient.

References
----------
Achtibat et al. (2024), "AttnLRP: attention-aware layer-wise relevance propagation for transformers",
https://arxiv.org/abs/2402.05602.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from regard.functional.activation import ACTIVATIONS, silu_vjp, swiglu_vjp
from regard.functional.attention import inputs_vjp
from regard.functional.biases.score_mod import ScoreMod
from regard.functional.experts import experts_vjp, gate_vjp
from regard.functional.inputs import AttentionInputs
from regard.functional.norm import layer_norm_vjp, normalize, rms_norm_vjp
from regard.functional.numpy_vjps import VJPS
from regard.functional.variable import Pullback, Rule, Variable, Vjp, plain


def _share(*factors: Any) -> float:
    """Return what each variable gets of the relevance of a product: a half, or 1 if the other factor is constant."""
    return 1 / max(1, sum(type(x) is Variable for x in factors))


def _product(pullback: Pullback, inputs: Sequence[Any], _: Any) -> Pullback:
    share = _share(*inputs)
    return pullback if share == 1 else lambda d: [share * part for part in pullback(d)]


def _quotient(pullback: Pullback, inputs: Sequence[Any], _: Any) -> Pullback:
    return pullback if _share(*inputs) == 1 else lambda d: pullback(d)[:1]


def _activation(pullback: Pullback, inputs: Sequence[Any], y: np.ndarray, **_: Any) -> Pullback:
    x = plain(inputs[0])

    def rule(d: np.ndarray) -> tuple[np.ndarray]:
        is_zero = x == 0  # where the quotient has the derivative as its limit
        d_x = d * (y / np.where(is_zero, 1, x))
        return (np.where(is_zero, pullback(d)[0], d_x) if is_zero.any() else d_x,)

    return rule


def _swiglu(_: Pullback, inputs: Sequence[Any], __: Any) -> Pullback:
    gate, up = map(plain, inputs)
    share, (activated, pullback) = _share(*inputs), silu_vjp(gate)
    d_gate = _activation(pullback, [gate], activated)
    return lambda d: (d_gate(share * d * up)[0], share * d * activated)


def _layer_norm(_: Pullback, inputs: Sequence[Any], __: Any, *, eps: float) -> Pullback:
    def rule(d: np.ndarray) -> tuple[np.ndarray]:
        g = _held_scale(inputs, d, eps, centered=True)
        return (g - g.mean(-1, keepdims=True),)

    return rule


def _rms_norm(_: Pullback, inputs: Sequence[Any], __: Any, *, eps: float) -> Pullback:
    return lambda d: (_held_scale(inputs, d, eps, centered=False),)


def _held_scale(inputs: Sequence[Any], d: np.ndarray, eps: float, *, centered: bool) -> np.ndarray:
    x, weight = map(plain, inputs[:2])
    _, scale = normalize(x, eps=eps, centered=centered)
    return np.asarray((d if weight is None else d * weight) / scale)


def _experts(_: Pullback, inputs: Sequence[Any], y: np.ndarray, *, slope: float, limit: float) -> Pullback:
    pullback = experts_vjp(*map(plain, inputs), slope=slope, limit=limit, gated=_gated)[1]
    return _product(pullback, inputs, y)


def _gated(gate_up: np.ndarray, slope: float, limit: float) -> tuple[np.ndarray, Pullback]:
    """Return the hidden features of an expert, (up + 1) × activated, and what passes to gate and up, interleaved."""
    gate, up = gate_up[..., 0::2], gate_up[..., 1::2]
    activated, gate_pullback = gate_vjp(gate, slope, limit)
    clipped = np.clip(up, -limit, limit)
    d_gate = _activation(gate_pullback, [gate], activated)
    d_up = _activation(lambda d: (d,), [up], clipped)  # the derivative of the clip at 0 is 1

    def rule(d: np.ndarray) -> tuple[np.ndarray]:
        d_gate_up = np.empty_like(gate_up)
        d_gate_up[..., 0::2] = d_gate(d / 2 * (clipped + 1))[0]
        d_gate_up[..., 1::2] = d_up(d / 2 * activated)[0]
        return (d_gate_up,)

    return (clipped + 1) * activated, rule


def _attention(pullback: Pullback, inputs: Sequence[Any], _: Any, *, p: AttentionInputs) -> Pullback:
    """Return the pullback of weights · v, a product; of softmax; of the softcap, an activation; and of q · kᵀ."""
    parameters = dict(zip(p.parameters, inputs, strict=True))
    if p.softcap is not None:
        assert p.bias is None
        _, pullback = inputs_vjp(*map(plain, inputs), p=p.replace(softcap=None, bias=_capped(p.softcap)))
    of_scores = [x for name, x in parameters.items() if name != "v" and type(x) is Variable]
    context = _share(parameters["v"], *of_scores[:1])
    scores = context * _share(parameters["q"], parameters["k"])
    shares = [scores if name in ("q", "k") else context for name in parameters]
    return lambda d: [None if part is None else share * part for share, part in zip(shares, pullback(d), strict=True)]


def _capped(softcap: float) -> ScoreMod:
    def ratio(score: Any, *_: Any) -> Any:
        x = score / softcap
        return np.where(x == 0, 1, np.tanh(x) / np.where(x == 0, 1, x))

    return ScoreMod(lambda score, *_: softcap * np.tanh(score / softcap), ratio)


ATTNLRP: Mapping[Vjp, Rule] = MappingProxyType({
    **dict.fromkeys((VJPS[np.multiply], VJPS[np.matmul]), _product),
    **{entry.vjp: _activation for entry in ACTIVATIONS.values() if entry.function(np.zeros(1)) == 0},
    VJPS[np.tanh]: _activation,
    VJPS[np.divide]: _quotient,
    swiglu_vjp: _swiglu,
    layer_norm_vjp: _layer_norm,
    rms_norm_vjp: _rms_norm,
    experts_vjp: _experts,
    inputs_vjp: _attention,
})  # fmt: skip
"""The rules by the function whose pullback they replace."""
