"""From queries and keys to scores, for the whole map or any block of it, and from weights to their sums."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard._utils.typing import Array
from regard.functional.arrays import is_finite, namespace
from regard.functional.inputs import AttentionInputs, heads, repeat_kv
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.functional.score_layout import ALL, Index, take


class Tile(NamedTuple):
    """Scores of a block of cells, as they become step by step; each broadcasts to ``... H R C``.

    Parameters
    ----------
    scores : array
        q · kᵀ × scale.
    capped : array
        After the softcap.
    biased : array
        After bias and mask; −inf where hidden.
    allowed : boolean array or None
        Where a query may look; None is everywhere.
    """

    scores: Array
    capped: Array
    biased: Array
    allowed: Array | None


def score(
    p: AttentionInputs, rows: Index = ALL, cols: Index = ALL, *, full: bool = False, trace: Recorder = NULL_RECORDER
) -> Tile:
    """Return the scores of `rows` and `cols`: scale, softcap, bias, mask, in this order.

    Parameters
    ----------
    full : bool
        The mask is known to allow all of the block, so it need not be asked.
    """
    xp, layout = p.layout.xp, p.layout
    with np.errstate(invalid="ignore", over="ignore"):  # of what hidden keys hold
        allowed = None if p.mask is None or full else p.mask.allows(layout, rows, cols)
        bias = None if p.bias is None else p.bias.tile(layout, rows, cols)
        if p.bias is not None and p.bias.can_mask:
            shown = bias != -xp.inf
            allowed = shown if allowed is None else xp.logical_and(allowed, shown)

        q = take(p.q, rows, -2)
        k = zero_masked_nonfinite(repeat_kv(take(p.k, cols, -2), heads(p.q)), allowed)
        scores = trace("scores", q @ xp.matrix_transpose(k) * p.scale, "... H T S")
        capped = biased = scores
        if p.softcap is not None:
            capped = biased = trace("capped", p.softcap * xp.tanh(scores / p.softcap), "... H T S")
        if bias is not None:
            biased = capped + saturate_cast(bias, capped.dtype)
        if allowed is not None:
            biased = xp.where(allowed, biased, -xp.inf)
        if bias is not None or allowed is not None:
            biased = trace("biased", biased, "... H T S")
    return Tile(scores, capped, biased, allowed)


def weighted_sum(weights: Array, x: Array, allowed: Array | None) -> tuple[Array, Array | None]:
    """Return weights · x, in which what is not allowed does not count, be it NaN or infinity.

    0 · NaN is NaN, so a hidden NaN would poison every row: the finite values are summed, and the infinities and NaN
    that a row does see are told beside, for `restore_nonfinite` to put in.

    Parameters
    ----------
    weights : array, ``... R C``
    x : array, ``... C F``
    allowed : boolean array that broadcasts to the weights, or None for everywhere

    Returns
    -------
    total : array, ``... R F``
    marks : boolean array, ``... R 3F``, or None
        Which rows see +inf, −inf and NaN in each feature; None if there are none.
    """
    xp = namespace(weights, x)
    if is_finite(x):
        return weights @ x, None
    ones = (
        xp.ones_like(weights) if allowed is None else xp.astype(xp.broadcast_to(allowed, weights.shape), weights.dtype)
    )
    kinds = xp.concat([x == xp.inf, x == -xp.inf, xp.isnan(x)], axis=-1)
    marks = ones @ xp.astype(kinds, weights.dtype) > 0
    return weights @ xp.where(xp.isfinite(x), x, xp.zeros_like(x)), marks


def restore_nonfinite(total: Array, marks: Array | None) -> Array:
    """Return `total` with the infinities and NaN that `weighted_sum` told of."""
    if marks is None:
        return total
    xp, width = namespace(total), total.shape[-1]
    plus, minus, nan = (marks[..., i * width : (i + 1) * width] for i in range(3))
    unclear = xp.logical_or(xp.logical_or(nan, xp.isnan(total)), xp.logical_and(plus, minus))
    return xp.where(unclear, xp.nan, xp.where(plus, xp.inf, xp.where(minus, -xp.inf, total)))


def zero_masked_nonfinite(x: Array, allowed: Array | None) -> Array:
    """Return ``... H C F`` with 0 for the vectors that no query sees and that hold anything that is not finite.

    What is left of NaN then reaches only scores that are hidden one by one. A derivative, which multiplies a hidden
    score's 0 with the key, needs more than that.
    """
    if allowed is None or is_finite(x):
        return x
    xp = namespace(x, allowed)
    finite = xp.all(xp.isfinite(x), axis=-1, keepdims=True)
    return xp.where(xp.logical_or(xp.any(allowed, axis=-2)[..., None], finite), x, xp.zeros_like(x))


def saturate_cast(x: Array, dtype: object) -> Array:
    """Return `x` as `dtype`, the finite numbers that are too large for it as its largest."""
    xp = namespace(x)
    if x.dtype == dtype:
        return x
    largest = float(xp.finfo(dtype).max)
    if float(xp.finfo(x.dtype).max) > largest:
        x = xp.where(xp.isfinite(x), xp.clip(x, -largest, largest), x)
    return xp.astype(x, dtype)
