"""Layer normalisation and root mean square normalisation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, as_array, compute_dtype, namespace, result_dtype
from regard.functional.native import ops
from regard.functional.variable import Pullback, is_recorded, record_vjp


def layer_norm(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    eps: float = 1e-5,
    residual: Array | None = None,
) -> Array:
    """Return (x − mean) / √(variance + eps) × weight + bias, over the last axis.

    Parameters
    ----------
    x : array, ``... E``
    weight, bias : array, ``E``, optional
    eps : float
        Prevents division by zero in a constant row.
    residual : array, shape of `x`, optional
        Added to x first: the norm of x + residual.

    Returns
    -------
    array, ``... E``
        In the dtype of x, or the common dtype of x and the residual. Half precision is computed in float32 and
        rounded once.

    Raises
    ------
    RegardError
        There are no features, `weight` or `bias` do not have one entry for each of them, `residual` has another
        shape, or `eps` is negative.

    References
    ----------
    Ba, Kiros and Hinton (2016), "Layer normalization", https://arxiv.org/abs/1607.06450.
    """
    y = _native("layer_norm", x, residual, weight, bias, eps=eps)
    if y is not None:
        return y
    if is_recorded(x, weight, bias, residual):
        return record_vjp(layer_norm_vjp, _plus(x, residual), weight, bias, eps=eps)
    x, weight, bias, dtype = _validated(x, residual, weight, bias, eps)
    xp = namespace(x)
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    y = centred / xp.sqrt(variance + eps)
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return xp.astype(y, dtype, copy=False)


def rms_norm(x: Array, weight: Array | None = None, *, eps: float = 1e-6, residual: Array | None = None) -> Array:
    """Return x / √(mean of x² + eps) × weight, over the last axis.

    See `layer_norm` for the arguments, the dtype of the result, and errors.

    References
    ----------
    Zhang and Sennrich (2019), "Root mean square layer normalization", https://arxiv.org/abs/1910.07467.

    Examples
    --------
    >>> rms_norm([1.0, 7.0], eps=0.0)  # the mean of the squares is 25
    array([0.2, 1.4])
    """
    y = _native("rms_norm", x, residual, weight, None, eps=eps)
    if y is not None:
        return y
    if is_recorded(x, weight, residual):
        return record_vjp(rms_norm_vjp, _plus(x, residual), weight, eps=eps)
    x, weight, _, dtype = _validated(x, residual, weight, None, eps)
    xp = namespace(x)
    y = x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + eps)
    if weight is not None:
        y = y * weight
    return xp.astype(y, dtype, copy=False)


def normalize(x: Array, *, eps: float, centered: bool) -> tuple[Array, Array]:
    """Return x, less its mean if `centered`, and √(mean of x² + eps), ``... 1``, by which a norm divides it.

    In the compute dtype. `layer_norm` is the quotient of centered vectors × weight + bias, `rms_norm` that of vectors
    as they are × weight.
    """
    wide = _wide(x)
    if centered:
        wide = wide - _mean(wide)
    return wide, (_mean(wide * wide) + eps) ** 0.5


def layer_norm_vjp(
    x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float = 1e-5
) -> tuple[Array, Pullback]:
    """Return `layer_norm` and its vector-Jacobian product.

    With n = (x − mean) / σ and σ = √(variance + eps), each a function of all features, and g = d × weight:
    d_x = (g − mean(g) − n × mean(g × n)) / σ; d_weight = Σ d × n and d_bias = Σ d, over all vectors.

    Returns
    -------
    output : array, ``... E``
    pullback : function
        Returns the gradients of x, weight and bias for that of the output; None for those not given.
    """

    def pullback(d: Array) -> tuple[Array, Array | None, Array | None]:
        gradients = ops.norm_vjp("layer_norm_vjp", x, d, weight, eps=eps, has_bias=bias is not None)
        if gradients is not None:
            return gradients
        wide, d = _wide(x), _wide(d)
        centred = wide - _mean(wide)
        sigma = (_mean(centred * centred) + eps) ** 0.5
        normed = centred / sigma
        g = d if weight is None else d * _wide(weight)
        d_x = (g - _mean(g) - normed * _mean(g * normed)) / sigma
        d_weight, d_bias = (None if y is None else _rounded(_sum(z), y) for y, z in ((weight, d * normed), (bias, d)))
        return _rounded(d_x, x), d_weight, d_bias

    return layer_norm(x, weight, bias, eps=eps), pullback


def rms_norm_vjp(x: Array, weight: Array | None = None, *, eps: float = 1e-6) -> tuple[Array, Pullback]:
    """Return `rms_norm` and its vector-Jacobian product.

    With n = x / r and r = √(mean of x² + eps), and g = d × weight: d_x = (g − n × mean(g × n)) / r; d_weight = Σ d × n.

    Returns
    -------
    output : array, ``... E``
    pullback : function
        Returns the gradients of x and weight for that of the output; None for a weight that was not given.
    """

    def pullback(d: Array) -> tuple[Array, Array | None]:
        gradients = ops.norm_vjp("rms_norm_vjp", x, d, weight, eps=eps)
        if gradients is not None:
            return gradients[:2]
        wide, d = _wide(x), _wide(d)
        root = (_mean(wide * wide) + eps) ** 0.5
        normed = wide / root
        g = d if weight is None else d * _wide(weight)
        d_x = (g - normed * _mean(g * normed)) / root
        return _rounded(d_x, x), None if weight is None else _rounded(_sum(d * normed), weight)

    return rms_norm(x, weight, eps=eps), pullback


def _mean(x: Array) -> Array:
    return namespace(x).mean(x, axis=-1, keepdims=True)


def _wide(x: Array) -> Array:
    """Return an array in its compute dtype."""
    xp = namespace(x)
    return xp.astype(x, compute_dtype(xp, x.dtype), copy=False)


def _rounded(gradient: Array, x: Array) -> Array:
    """Return the gradient of x in the dtype of x."""
    return namespace(x).astype(gradient, x.dtype, copy=False)


def _sum(x: Array) -> Array:
    """Return the sum of all vectors, ``E``, of ``... E``."""
    return namespace(x).sum(x, axis=tuple(range(x.ndim - 1)))


def _native(op: str, x: Array, residual: Array | None, *features: Array | None, eps: float) -> Array | None:
    """Return a norm from the kernel; None for arguments that it does not take, invalid ones included."""
    if not isinstance(x, np.ndarray) or not x.shape or not x.shape[-1] or not 0 <= eps < math.inf:
        return None
    if residual is not None and getattr(residual, "dtype", None) != x.dtype:
        return None
    return ops.apply_op(op, x, (residual,), features, (float(eps),))


def _plus(x: Array, residual: Array | None) -> Array:
    """Return x plus the residual, of variables."""
    if residual is None:
        return x
    _check_residual(residual, x)
    return x + residual


def _check_residual(residual: Array, x: Array) -> None:
    if tuple(residual.shape) != tuple(x.shape):
        raise RegardError(f"residual {tuple(residual.shape)} is added to x {tuple(x.shape)}; both need one shape")


def _validated(x: Array, residual: Array | None, weight: Array | None, bias: Array | None, eps: float) -> Any:
    """Return x plus the residual in the compute dtype, weight, bias, and the dtype of the result."""
    x = as_array(x, "x")
    weight = None if weight is None else as_array(weight, "weight")
    bias = None if bias is None else as_array(bias, "bias")
    if x.ndim == 0 or x.shape[-1] == 0:
        raise RegardError(f"x {tuple(x.shape)} has no features; its last axis must have at least one")
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and tuple(parameter.shape) != tuple(x.shape[-1:]):
            raise RegardError(f"{name} {tuple(parameter.shape)} needs one entry for each feature of x {tuple(x.shape)}")
    if not 0 <= eps < math.inf:
        raise RegardError(f"eps must be a finite number of at least 0, got {eps}")
    residual = None if residual is None else as_array(residual, "residual")
    arrays = (x,) if residual is None else (x, residual)
    xp, dtype = namespace(*arrays), result_dtype(*arrays)
    wide = compute_dtype(xp, dtype)
    x = xp.astype(x, wide, copy=False)
    if residual is not None:
        _check_residual(residual, x)
        x = x + xp.astype(residual, wide, copy=False)
    return x, weight, bias, dtype
