"""The linear map x · W + b."""

from __future__ import annotations

import math
from collections.abc import Collection

from regard._utils.errors import RegardError
from regard.functional.activation import activation as activation_function, kernel_activation
from regard.functional.arrays import Array, as_array, compute_dtype, namespace, result_dtype
from regard.functional.native import ops
from regard.functional.variable import Pullback, Variable, is_recorded, record_vjp


def linear(x: Array, weight: Array, bias: Array | None = None, *, activation: str | None = None) -> Array:
    """Return x · W + b, or an activation of it.

    Parameters
    ----------
    x : array, ``... E``
    weight : array, ``E F``
        Columns are output features (the transpose of what PyTorch's ``nn.Linear`` stores).
    bias : array, ``F``, optional
    activation : str, optional
        The name of an activation, as `regard.functional.activation` takes it.

    Returns
    -------
    array, ``... F``
        In the common floating dtype of all (integers count as float64). Half precision is computed in float32 and
        rounded once.

    Raises
    ------
    RegardError
        The shapes do not fit, or the activation is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> linear(np.array([1.0, 2.0]), np.eye(2), np.array([0.5, 0.5]))
    array([1.5, 2.5])
    """
    activate = None if activation is None else activation_function(activation)
    y = ops.linear(x, weight, bias, kernel_activation(activation))
    if y is not None:
        return y
    if is_recorded(x, weight, bias):
        operands = {"x": x, "weight": weight, "bias": bias}
        y = record_vjp(linear_vjp, x, weight, bias, wrt=[name for name, a in operands.items() if type(a) is Variable])
        return y if activate is None else activate(y)
    x, weight = as_array(x, "x"), as_array(weight, "weight")
    bias = None if bias is None else as_array(bias, "bias")
    if weight.ndim != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[0]:
        raise RegardError(
            f"x {tuple(x.shape)} times weight {tuple(weight.shape)} needs x's last axis to be weight's first; "
            f"transpose a weight stored the other way round (PyTorch's nn.Linear), weight.T"
        )
    if bias is not None and tuple(bias.shape) != tuple(weight.shape[1:]):
        raise RegardError(f"bias {tuple(bias.shape)} needs one entry for each of {weight.shape[1]} outputs")
    arrays = (x, weight) if bias is None else (x, weight, bias)
    xp, dtype = namespace(*arrays), result_dtype(*arrays)
    wide = compute_dtype(xp, dtype)
    y = xp.astype(x, wide, copy=False) @ xp.astype(weight, wide, copy=False)
    if bias is not None:
        y = y + xp.astype(bias, wide, copy=False)
    return xp.astype(y if activate is None else activate(y), dtype, copy=False)


def linear_vjp(
    x: Array, weight: Array, bias: Array | None = None, *, wrt: Collection[str] = ("x", "weight", "bias")
) -> tuple[Array, Pullback]:
    """Return `linear` and its vector-Jacobian product: d_x = d · Wᵀ, d_W = xᵀ · d, d_b = Σ d.

    Parameters
    ----------
    x, weight, bias
        As `linear` takes them.
    wrt : collection of str
        The arguments whose gradients are computed; those of the others are None.

    Returns
    -------
    output : array, ``... F``
    pullback : function
        Returns the gradients of x, weight and bias for that of the output.
    """
    output, x_shape = linear(x, weight, bias), x.shape
    inputs = _rows(x) if "weight" in wrt else None  # else nothing holds x

    def pullback(d: Array) -> tuple[Array | None, Array | None, Array | None]:
        d_x = linear(d, weight.T).reshape(x_shape) if "x" in wrt else None
        d_weight = None if inputs is None else linear(inputs.T, _rows(d))
        return d_x, d_weight, None if bias is None or "bias" not in wrt else _sum(_rows(d))

    return output, pullback


def _sum(rows: Array) -> Array:
    sums = ops.column_sums(rows)
    return rows.sum(0) if sums is None else sums


def _rows(x: Array) -> Array:
    return x.reshape((math.prod(x.shape[:-1]), x.shape[-1]))
