"""Layer normalisation and its simpler relative."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.functional.arrays import as_array, compute_dtype, namespace, result_dtype
from regard.functional.native import ops


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
        Keeps a constant row from dividing by zero.
    residual : array, shape of `x`, optional
        Added to x first: the norm of x + residual.

    Returns
    -------
    array, ``... E``
        In the dtype of x, or what is common to x and the residual. Short floats are computed in float32 and rounded
        once.

    Raises
    ------
    RegardError
        There are no features, `weight` or `bias` do not have one entry for each of them, `residual` has another
        shape, or `eps` is negative.

    References
    ----------
    Ba, Kiros and Hinton (2016), "Layer normalization", https://arxiv.org/abs/1607.06450.
    """
    asked = _asked("layer_norm", x, residual, weight, bias, eps)
    if asked is not None:
        return asked
    x, weight, bias, dtype = _checked(x, residual, weight, bias, eps)
    xp = namespace(x)
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    normal = centred / xp.sqrt(variance + eps)
    if weight is not None:
        normal = normal * weight
    if bias is not None:
        normal = normal + bias
    return xp.astype(normal, dtype, copy=False)


def rms_norm(x: Array, weight: Array | None = None, *, eps: float = 1e-6, residual: Array | None = None) -> Array:
    """Return x / √(mean of x² + eps) × weight, over the last axis.

    Parameters
    ----------
    x : array, ``... E``
    weight : array, ``E``, optional
    eps : float
        Keeps a row of zeros from dividing by zero.
    residual : array, shape of `x`, optional
        Added to x first: the norm of x + residual.

    Returns
    -------
    array, ``... E``
        In the dtype of x, or what is common to x and the residual. Short floats are computed in float32 and rounded
        once.

    Raises
    ------
    RegardError
        There are no features, `weight` does not have one entry for each of them, `residual` has another shape, or
        `eps` is negative.

    References
    ----------
    Zhang and Sennrich (2019), "Root mean square layer normalization", https://arxiv.org/abs/1910.07467.

    Examples
    --------
    >>> rms_norm([1.0, 7.0], eps=0.0)  # the mean of the squares is 25
    array([0.2, 1.4])
    """
    asked = _asked("rms_norm", x, residual, weight, None, eps)
    if asked is not None:
        return asked
    x, weight, _, dtype = _checked(x, residual, weight, None, eps)
    xp = namespace(x)
    normal = x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + eps)
    if weight is not None:
        normal = normal * weight
    return xp.astype(normal, dtype, copy=False)


def _asked(
    norm: str, x: Array, residual: Array | None, weight: Array | None, bias: Array | None, eps: float
) -> Array | None:
    """Return what the kernel makes of arguments that are all well; None where it makes nothing of them."""
    if not isinstance(x, np.ndarray) or not x.shape or not x.shape[-1] or not 0 <= eps < math.inf:
        return None
    if residual is not None and getattr(residual, "dtype", None) != x.dtype:
        return None
    return ops.apply_op(norm, x, (residual,), (weight, bias), (float(eps),))


def _checked(x: Array, residual: Array | None, weight: Array | None, bias: Array | None, eps: float) -> Any:
    """Return x with the residual added, in the precision to compute in; weight and bias; the dtype of the result."""
    x = as_array(x, "x")
    weight = None if weight is None else as_array(weight, "weight")
    bias = None if bias is None else as_array(bias, "bias")
    if x.ndim == 0 or x.shape[-1] == 0:
        raise RegardError(f"x {tuple(x.shape)} has no features to take the mean of; its last axis is that of features")
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and tuple(parameter.shape) != tuple(x.shape[-1:]):
            raise RegardError(f"{name} {tuple(parameter.shape)} needs one entry for each feature of x {tuple(x.shape)}")
    if not 0 <= eps < math.inf:
        raise RegardError(f"eps must be a finite number of at least 0, got {eps}")
    added = [] if residual is None else [as_array(residual, "residual")]
    if any(tuple(a.shape) != tuple(x.shape) for a in added):
        raise RegardError(f"residual {tuple(added[0].shape)} is added to x {tuple(x.shape)}; both need one shape")
    xp, dtype = namespace(x, *added), result_dtype(x, *added)
    x, *added = (xp.astype(a, compute_dtype(xp, dtype), copy=False) for a in (x, *added))
    for a in added:
        x = x + a
    return x, weight, bias, dtype
