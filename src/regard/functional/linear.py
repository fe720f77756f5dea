"""The linear map x · W + b."""

from __future__ import annotations

from regard._utils.errors import RegardError
from regard.functional.activation import activation as activation_function
from regard.functional.activation import kernel_activation
from regard.functional.arrays import Array, as_array, compute_dtype, namespace, result_dtype
from regard.functional.native import ops


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
    x, weight = as_array(x, "x"), as_array(weight, "weight")
    added = [] if bias is None else [as_array(bias, "bias")]
    if weight.ndim != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[0]:
        raise RegardError(
            f"x {tuple(x.shape)} times weight {tuple(weight.shape)} needs x's last axis to be weight's first; "
            f"transpose a weight stored the other way round (PyTorch's nn.Linear), weight.T"
        )
    if any(tuple(b.shape) != tuple(weight.shape[1:]) for b in added):
        raise RegardError(f"bias {tuple(added[0].shape)} needs one entry for each of {weight.shape[1]} outputs")
    xp = namespace(x, weight, *added)
    dtype = result_dtype(x, weight, *added)
    x, weight, *added = (xp.astype(a, compute_dtype(xp, dtype), copy=False) for a in (x, weight, *added))
    y = x @ weight
    for b in added:
        y = y + b
    return xp.astype(y if activate is None else activate(y), dtype, copy=False)
