"""The linear map, as the lessons and papers write it: x times W."""

from __future__ import annotations

from regard._errors import RegardError
from regard._typing import Array
from regard.functional._arrays import as_array


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Return x · W + b.

    Parameters
    ----------
    x : array, ``... E``
    weight : array, ``E F``
        Columns are output features (the transpose of what PyTorch's ``nn.Linear`` stores).
    bias : array, ``F``, optional

    Returns
    -------
    array, ``... F``

    Raises
    ------
    RegardError
        The shapes do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> linear(np.array([1.0, 2.0]), np.eye(2), np.array([0.5, 0.5]))
    array([1.5, 2.5])
    """
    x, weight = as_array(x, "x"), as_array(weight, "weight")
    if weight.ndim != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[0]:
        raise RegardError(
            f"x {tuple(x.shape)} times weight {tuple(weight.shape)} needs x's last axis to be weight's first; "
            f"a weight stored the other way round (PyTorch's nn.Linear) goes in transposed, weight.T"
        )
    product = x @ weight
    if bias is None:
        return product
    if tuple(bias.shape) != tuple(weight.shape[1:]):
        raise RegardError(f"bias {tuple(bias.shape)} needs one entry for each of {weight.shape[1]} outputs")
    return product + bias
