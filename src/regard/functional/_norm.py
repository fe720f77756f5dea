"""Layer normalisation."""

from __future__ import annotations

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
        `weight` or `bias` do not have one entry for each of the E features.

    References
    ----------
    Ba, Kiros and Hinton (2016), "Layer normalization", https://arxiv.org/abs/1607.06450.
    """
    x = as_array(x, "x")
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and tuple(parameter.shape) != tuple(x.shape[-1:]):
            raise RegardError(f"{name} {tuple(parameter.shape)} needs one entry for each feature of x {tuple(x.shape)}")
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
