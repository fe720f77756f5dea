"""NaN, infinities and empty rows: masked ones do not reach results.

A weight of exactly 0 times NaN is NaN, so that one masked NaN would otherwise reach every row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.functional.arrays import Array, device, is_finite, namespace


def clamp_posinf(x: Array, xp: Any) -> Array:
    """Return `x` with +inf replaced by the largest finite number, so that no other score has weight."""
    largest = xp.finfo(x.dtype).max
    return xp.where(x == xp.inf, largest if xp is np else float(largest), x)  # a longdouble may be too large for float


def finite_row_max(scores: Array, sinks: Array | None, xp: Any) -> Array:
    """Return what to subtract from each row: the maximum of its scores and its sink, or 0 where all are −inf."""
    if scores.shape[-1] == 0:  # no maximum
        scores = xp.full((*scores.shape[:-1], 1), -xp.inf, dtype=scores.dtype, device=device(scores))
    row_max = xp.max(scores, axis=-1, keepdims=True)
    return zero_neginf(row_max if sinks is None else xp.maximum(row_max, clamp_posinf(sinks, xp)), xp)


def zero_neginf(row_max: Array, xp: Any) -> Array:
    """Return a row maximum that can be subtracted: 0 in place of −inf."""
    return xp.where(row_max == -xp.inf, xp.zeros_like(row_max), row_max)


def nonzero(row_sum: Array, xp: Any) -> Array:
    """Return the divisor of each row: its sum, or 1 where that is 0."""
    return xp.where(row_sum == 0, xp.ones_like(row_sum), row_sum)


def saturate_cast(x: Array, dtype: object) -> Array:
    """Return `x` as `dtype`; finite numbers beyond its range become its largest."""
    xp = namespace(x)
    if x.dtype == dtype:
        return x
    largest = float(xp.finfo(dtype).max)
    if float(xp.finfo(x.dtype).max) > largest:
        x = xp.where(xp.isfinite(x), xp.clip(x, -largest, largest), x)
    return xp.astype(x, dtype)


def zero_masked_nonfinite(x: Array, mask: Array | None) -> Array:
    """Return ``... H C F`` with 0 for those vectors that no query attends to and that are not finite.

    NaN elsewhere reaches only scores that the mask replaces one by one. Automatic differentiation, which multiplies a
    masked score's 0 by the key, needs more than that.
    """
    if mask is None or is_finite(x):
        return x
    xp = namespace(x, mask)
    finite = xp.all(xp.isfinite(x), axis=-1, keepdims=True)
    return xp.where(xp.logical_or(xp.any(mask, axis=-2)[..., None], finite), x, xp.zeros_like(x))


def masked_matmul(weights: Array, x: Array, mask: Array | None) -> Array:
    """Return weights · x, in which masked NaN and infinities of x reach no row."""
    product, marks = finite_matmul(weights, x, mask)
    return product if marks is None else restore_nonfinite(product, marks)


def finite_matmul(weights: Array, x: Array, mask: Array | None) -> tuple[Array, Array | None]:
    """Return the sums of the finite values, and which rows attend to values that are not finite.

    Parameters
    ----------
    weights : array, ``... R C``
    x : array, ``... C F``
    mask : boolean array that broadcasts to the weights, or None
        True: the row attends to the value. None: everywhere.

    Returns
    -------
    product : array, ``... R F``
    marks : boolean array, ``... R 3F``, or None
        Which rows attend to +inf, −inf and NaN in each feature; None if all values are finite.
    """
    xp = namespace(weights, x)
    if is_finite(x):
        return weights @ x, None
    ones = xp.ones_like(weights) if mask is None else xp.astype(xp.broadcast_to(mask, weights.shape), weights.dtype)
    kinds = xp.concat([x == xp.inf, x == -xp.inf, xp.isnan(x)], axis=-1)
    marks = ones @ xp.astype(kinds, weights.dtype) > 0
    return weights @ xp.where(xp.isfinite(x), x, xp.zeros_like(x)), marks


def restore_nonfinite(product: Array, marks: Array) -> Array:
    """Return `product` with the infinities and NaN that `finite_matmul` marked."""
    xp, width = namespace(product), product.shape[-1]
    plus, minus, nan = (marks[..., i * width : (i + 1) * width] for i in range(3))
    unclear = xp.logical_or(xp.logical_or(nan, xp.isnan(product)), xp.logical_and(plus, minus))
    return xp.where(unclear, xp.nan, xp.where(plus, xp.inf, xp.where(minus, -xp.inf, product)))
