"""Softmax along any axis of any array. The softmax of attention, with its sinks, is in `reference`."""

from __future__ import annotations

import numpy as np

from regard._utils.errors import RegardError
from regard.functional import reference
from regard.functional.arrays import Array, as_array, compute_dtype, namespace, result_dtype
from regard.functional.native import ops
from regard.functional.variable import Pullback, is_recorded, record_vjp


def softmax(x: Array, axis: int = -1) -> Array:
    """Return exp(x) / Σ exp(x) along `axis`: positive numbers that sum to 1.

    Each row is shifted by its own maximum first, which cancels in exact arithmetic and keeps every exponential between
    0 and 1. Without the shift a score of 1000 overflows; with one shift for all rows, a row far below the others
    underflows.

    Parameters
    ----------
    x : array, any shape
        Scores. −inf gets 0; +inf takes the whole row, shared equally among several.
    axis : int
        The axis that sums to 1.

    Returns
    -------
    array, shape of `x`
        A row of −inf is 0 throughout.

    References
    ----------
    Bridle (1990), "Probabilistic interpretation of feedforward classification network outputs".

    Examples
    --------
    >>> softmax([0.0, 0.0])
    array([0.5, 0.5])
    >>> softmax([1000.0, 1000.0, 0.0])
    array([0.5, 0.5, 0. ])
    """
    x = as_array(x, "x")
    xp = namespace(x)
    if not isinstance(axis, int | np.integer) or not -x.ndim <= axis < x.ndim:
        raise RegardError(f"x {tuple(x.shape)} has no axis {axis}")
    dtype = result_dtype(x)
    x = xp.astype(x, dtype, copy=False)
    if x.shape[axis] == 0:
        return xp.astype(x, dtype)
    last = axis in (-1, x.ndim - 1)
    rows = x if last else xp.moveaxis(x, axis, -1)
    weights = ops.apply_op("softmax", rows)
    if weights is None and is_recorded(rows):
        weights = record_vjp(softmax_vjp, rows)
    elif weights is None:
        rows = xp.astype(rows, compute_dtype(xp, dtype), copy=False)
        weights = xp.astype(reference.softmax(rows), dtype, copy=False)
    return weights if last else xp.moveaxis(weights, -1, axis)


def softmax_vjp(x: Array) -> tuple[Array, Pullback]:
    """Return the `softmax` y of the last axis and its vector-Jacobian product: d_x = y × (d − Σ d · y)."""
    y = softmax(x)
    return y, lambda d: (y * (d - namespace(y).sum(d * y, axis=-1, keepdims=True)),)
