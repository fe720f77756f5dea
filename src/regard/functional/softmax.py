"""Scores into shares: the softmax."""

from __future__ import annotations

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.functional.arrays import as_array, compute_dtype, namespace, result_dtype
from regard.functional.native import ops


def softmax(x: Array, axis: int = -1) -> Array:
    """Return exp(x) / Σ exp(x) along `axis`: positive shares that sum to 1.

    Each row is shifted by its own maximum first, which changes nothing in exact arithmetic (numerator and
    denominator shrink by the same factor) and keeps every exponential between 0 and 1. Without the shift
    a score of 1000 overflows; with one shift for all rows, a row far below the others vanishes.

    Parameters
    ----------
    x : array, any shape
        Scores. −inf is a score that gets no share; one of +inf takes all, and several share it equally.
    axis : int
        The axis that is shared out.

    Returns
    -------
    array, shape of `x`
        A row of −inf everywhere, which has nothing to share among, is 0 throughout.

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
    asked = ops.compute("softmax", x if last else xp.moveaxis(x, axis, -1))
    if asked is not None:
        return asked if last else xp.moveaxis(asked, -1, axis)
    x = xp.astype(x, compute_dtype(xp, dtype), copy=False)
    x = clamp_posinf(x)
    exponentials = xp.exp(x - finite_row_max(xp.max(x, axis=axis, keepdims=True)))
    total = xp.sum(exponentials, axis=axis, keepdims=True)
    return xp.astype(exponentials / nonzero(total), dtype, copy=False)


def clamp_posinf(x: Array) -> Array:
    """Return `x` with +inf as the largest finite number, next to which every other score counts for nothing."""
    xp = namespace(x)
    return xp.where(x == xp.inf, float(xp.finfo(x.dtype).max), x)


def finite_row_max(row_max: Array) -> Array:
    """Return by how much to shift rows with these maxima: not at all where there is nothing but −inf."""
    xp = namespace(row_max)
    return xp.where(row_max == -xp.inf, xp.zeros_like(row_max), row_max)


def nonzero(total: Array) -> Array:
    """Return what to divide by: 1 for the total of a row with nothing in it."""
    xp = namespace(total)
    return xp.where(total == 0, xp.ones_like(total), total)
