"""Layer normalisation."""

from __future__ import annotations

import math

from regard._errors import RegardError
from regard._typing import Array
from regard.functional._arrays import as_array, compute_dtype, namespace, result_dtype


def layer_norm(x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float = 1e-5) -> Array:
    """Return (x − mean) / √(variance + eps) × weight + bias, over the last axis.

    Parameters
    ----------
    x : array, ``... E``
    weight, bias : array, ``E``, optional
    eps : float
        Keeps a constant row from dividing by zero.

    Returns
    -------
    array, ``... E``

    Raises
    ------
    RegardError
        There are no features, `weight` or `bias` do not have one entry for each of them, or `eps` is negative.

    References
    ----------
    Ba, Kiros and Hinton (2016), "Layer normalization", https://arxiv.org/abs/1607.06450.
    """
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
    xp = namespace(x)
    dtype = result_dtype(x)
    x = xp.astype(x, compute_dtype(xp, dtype), copy=False)
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    normal = centred / xp.sqrt(variance + eps)
    if weight is not None:
        normal = normal * weight
    if bias is not None:
        normal = normal + bias
    return xp.astype(normal, dtype, copy=False)
