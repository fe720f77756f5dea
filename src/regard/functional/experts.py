"""Mixture of experts: a router chooses a few of many feed-forward networks for each token.

References
----------
Shazeer et al. (2017), "Outrageously large neural networks", https://arxiv.org/abs/1701.06538.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number, whole_number
from regard.functional.arrays import as_array
from regard.functional.linear import linear_vjp
from regard.functional.softmax import softmax
from regard.functional.variable import Pullback, Vjp, is_recorded, record_vjp

_AXES = {  # of the arguments of `experts`; x and routing may have more before them
    **{"x": ("E",), "routing": ("X",), "gate_up_weight": ("X", "E", "2F"), "gate_up_bias": ("X", "2F")},
    **{"down_weight": ("X", "F", "E"), "down_bias": ("X", "E")},
}


def top_k_softmax(logits: np.ndarray, k: int) -> Any:
    """Return the softmax of the k largest logits of each row, 0 for the others: the weights of a router.

    Parameters
    ----------
    logits : array, ``... X``
        Of integers the softmax is float64.
    k : int
        1 to ``X``.

    Raises
    ------
    RegardError
        `k` is not such a number, or there are no logits.

    Examples
    --------
    >>> import numpy as np
    >>> top_k_softmax(np.array([0.0, 3.0, 3.0]), 2)
    array([0. , 0.5, 0.5])
    """
    if is_recorded(logits):
        return record_vjp(top_k_softmax_vjp, logits, k=k)
    logits, k = np.asarray(logits), whole_number("k", k, 1)
    if logits.ndim < 1 or k > logits.shape[-1]:
        raise RegardError(f"k is at most the number of logits of a row, got {k} for logits of shape {logits.shape}")
    if logits.dtype.kind in "iu":
        logits = logits.astype(np.float64)
    largest = np.argpartition(logits, -k, axis=-1)[..., -k:]
    weights = np.zeros_like(logits)
    np.put_along_axis(weights, largest, softmax(np.take_along_axis(logits, largest, -1)), -1)
    return weights


def top_k_softmax_vjp(logits: np.ndarray, k: int) -> tuple[np.ndarray, Pullback]:
    """Return `top_k_softmax`, w, and its vector-Jacobian product: that of a softmax, d_logits = w × (d − Σ d · w)."""
    weights = top_k_softmax(logits, k)
    return weights, lambda d: (weights * (d - (d * weights).sum(-1, keepdims=True)),)


def experts(
    x: np.ndarray,
    routing: np.ndarray,
    gate_up_weight: np.ndarray,
    gate_up_bias: np.ndarray,
    down_weight: np.ndarray,
    down_bias: np.ndarray,
    *,
    slope: float,
    limit: float,
) -> Any:
    """Return Σ routing × expert(x), over the experts of each token with a weight other than 0.

    An expert is the gated network of gpt-oss: ((up + 1) × gate × sigmoid(slope × gate)) · W_down + b_down.

    Parameters
    ----------
    x : array, ``... E``
    routing : array, ``... X``
        The weight of each of the ``X`` experts for each token.
    gate_up_weight, gate_up_bias : array, ``X E 2F`` and ``X 2F``
        For each expert: the columns of gate and up projection, interleaved.
    down_weight, down_bias : array, ``X F E`` and ``X E``
    slope : float
        Of the gate's sigmoid.
    limit : float
        The gate is clipped above it, the up projection to ±limit.

    Returns
    -------
    array, ``... E``

    Raises
    ------
    RegardError
        The shapes do not fit: `routing` has a column for each expert. An argument is not of numbers.
    """
    arrays = (x, routing, gate_up_weight, gate_up_bias, down_weight, down_bias)
    if is_recorded(*arrays):
        return record_vjp(experts_vjp, *arrays, slope=slope, limit=limit)
    return _experts(*_as_arrays(arrays), slope=slope, limit=limit)[0]


def experts_vjp(
    x: np.ndarray,
    routing: np.ndarray,
    gate_up_weight: np.ndarray,
    gate_up_bias: np.ndarray,
    down_weight: np.ndarray,
    down_bias: np.ndarray,
    *,
    slope: float,
    limit: float,
    gated: Vjp | None = None,
) -> tuple[np.ndarray, Pullback]:
    """Return `experts` and its vector-Jacobian product, in the order of the arrays.

    A token gives gradients to its own experts only; the routing weight of another has none. The hidden features are
    computed anew, with another pullback where `gated` replaces `gated_vjp`.
    """
    arrays = _as_arrays((x, routing, gate_up_weight, gate_up_bias, down_weight, down_bias))
    x, routing, gate_up_weight, gate_up_bias, down_weight, down_bias = arrays
    output, routed = _experts(*arrays, slope=slope, limit=limit)

    def pullback(d: np.ndarray) -> tuple[np.ndarray, ...]:
        d_x, d_routing, d_gate_up, d_gate_up_bias, d_down, d_down_bias = (np.zeros_like(a) for a in arrays)
        for i, tokens in routed:
            gate_up, gate_up_pullback = linear_vjp(x[tokens], gate_up_weight[i], gate_up_bias[i])
            hidden, hidden_pullback = (gated or gated_vjp)(gate_up, slope, limit)
            y, down_pullback = linear_vjp(hidden, down_weight[i], down_bias[i])
            d_routing[tokens, i] = (d[tokens] * y).sum(-1)
            d_hidden, d_down[i], d_down_bias[i] = down_pullback(d[tokens] * routing[tokens, i, None])
            d_tokens, d_gate_up[i], d_gate_up_bias[i] = gate_up_pullback(hidden_pullback(d_hidden)[0])
            d_x[tokens] += d_tokens
        return d_x, d_routing, d_gate_up, d_gate_up_bias, d_down, d_down_bias

    return output, pullback


def _as_arrays(arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """Return the arrays of `experts` as NumPy's, those of integers in float64; an error for too few axes."""
    converted = []
    for (name, axes), each in zip(_AXES.items(), arrays, strict=True):
        array = np.asarray(as_array(each, name))
        is_short = array.ndim < len(axes) if name in ("x", "routing") else array.ndim != len(axes)
        if is_short:
            raise RegardError(f"{name} has the axes {' '.join(axes)}, got the shape {array.shape}")
        converted.append(array.astype(np.float64) if array.dtype.kind in "iu" else array)
    return tuple(converted)


def _experts(*arrays: np.ndarray, slope: float, limit: float) -> tuple[np.ndarray, list[tuple[int, np.ndarray]]]:
    """Return the output, and the experts that have tokens, with a boolean array ``...`` of theirs."""
    slope, limit = finite_number("slope", slope), finite_number("limit", limit)
    x, routing, gate_up_weight, gate_up_bias, down_weight, down_bias = arrays
    count, width, hidden_dim = down_weight.shape[0], x.shape[-1], down_weight.shape[1]
    expected = {
        "routing": (routing, (*x.shape[:-1], count)),
        "gate_up_weight": (gate_up_weight, (count, width, 2 * hidden_dim)),
        "gate_up_bias": (gate_up_bias, (count, 2 * hidden_dim)),
        "down_weight": (down_weight, (count, hidden_dim, width)),
        "down_bias": (down_bias, (count, width)),
    }
    for name, (array, shape) in expected.items():
        if array.shape != shape:
            raise RegardError(
                f"{name} of {count} experts for x {x.shape} must have the shape {shape}, got {array.shape}"
            )
    output, routed = np.zeros_like(x), []
    for i in map(int, np.flatnonzero(routing.reshape(-1, routing.shape[-1]).any(0))):
        tokens = routing[..., i] != 0  # NaN among them, so that it shows
        hidden, _ = gated_vjp(x[tokens] @ gate_up_weight[i] + gate_up_bias[i], slope, limit)
        output[tokens] += (hidden @ down_weight[i] + down_bias[i]) * routing[tokens, i, None]
        routed.append((i, tokens))
    return output, routed


def gated_vjp(gate_up: np.ndarray, slope: float, limit: float) -> tuple[np.ndarray, Pullback]:
    """Return (up + 1) × gate × sigmoid(slope × gate), ``... F``, of clipped gate and up, ``... 2F`` interleaved."""
    activated, gate_pullback = gate_vjp(gate_up[..., 0::2], slope, limit)
    up = np.clip(gate_up[..., 1::2], -limit, limit)

    def pullback(d: np.ndarray) -> tuple[np.ndarray]:
        d_gate_up = np.empty_like(gate_up)
        d_gate_up[..., 0::2] = gate_pullback(d * (up + 1))[0]
        d_gate_up[..., 1::2] = d * activated * (np.abs(gate_up[..., 1::2]) <= limit)  # 0 where it was clipped
        return (d_gate_up,)

    return (up + 1) * activated, pullback


def gate_vjp(gate: np.ndarray, slope: float, limit: float) -> tuple[np.ndarray, Pullback]:
    """Return gate × sigmoid(slope × gate), ``... F``, of the clipped gate, and its vector-Jacobian product."""
    clipped = np.minimum(gate, limit)
    with np.errstate(over="ignore"):
        denominator = 1 + np.exp(-slope * clipped)

    def pullback(d: np.ndarray) -> tuple[np.ndarray]:
        sigmoid = 1 / denominator
        return (d * sigmoid * (1 + slope * clipped * (1 - sigmoid)) * (gate <= limit),)  # 0 where it was clipped

    return clipped / denominator, pullback
