"""From queries and keys to scores, for the whole map or any block of it, and from weights to their sums."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard._recorder import SILENT, Recorder
from regard._typing import Array
from regard.functional._arrays import is_finite, namespace
from regard.functional._grid import EVERY, Index, take
from regard.functional._problem import Problem, for_each_query_head, heads


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
    seen : boolean array or None
        Where a query may look; None is everywhere.
    """

    scores: Array
    capped: Array
    biased: Array
    seen: Array | None


def score(
    p: Problem, rows: Index = EVERY, cols: Index = EVERY, *, full: bool = False, trace: Recorder = SILENT
) -> Tile:
    """Return the scores of `rows` and `cols`: scale, softcap, bias, mask, in this order.

    Parameters
    ----------
    full : bool
        The mask is known to allow all of the block, so it need not be asked.
    """
    xp, grid = p.grid.xp, p.grid
    with np.errstate(invalid="ignore", over="ignore"):  # of what hidden keys hold
        seen = None if p.mask is None or full else p.mask.allows(grid, rows, cols)
        bias = None if p.bias is None else p.bias.tile(grid, rows, cols)
        if p.bias is not None and p.bias.hides:
            shown = bias != -xp.inf
            seen = shown if seen is None else xp.logical_and(seen, shown)

        q = take(p.q, rows, -2)
        k = without_hidden(for_each_query_head(take(p.k, cols, -2), heads(p.q)), seen)
        scores = trace("scores", q @ xp.matrix_transpose(k) * p.scale, "... H T S")
        capped = biased = scores
        if p.softcap is not None:
            capped = biased = trace("capped", p.softcap * xp.tanh(scores / p.softcap), "... H T S")
        if bias is not None:
            biased = capped + within(bias, capped.dtype)
        if seen is not None:
            biased = xp.where(seen, biased, -xp.inf)
        if bias is not None or seen is not None:
            biased = trace("biased", biased, "... H T S")
    return Tile(scores, capped, biased, seen)


def weighted_sum(weights: Array, x: Array, seen: Array | None) -> tuple[Array, Array | None]:
    """Return weights · x, in which what is not seen does not count, be it NaN or infinity.

    0 · NaN is NaN, so a hidden NaN would poison every row: the finite values are summed, and the infinities and NaN
    that a row does see are told beside, for `with_infinities` to put in.

    Parameters
    ----------
    weights : array, ``... R C``
    x : array, ``... C F``
    seen : boolean array that broadcasts to the weights, or None for everywhere

    Returns
    -------
    total : array, ``... R F``
    marks : boolean array, ``... R 3F``, or None
        Which rows see +inf, −inf and NaN in each feature; None if there are none.
    """
    xp = namespace(weights, x)
    if is_finite(x):
        return weights @ x, None
    ones = xp.ones_like(weights) if seen is None else xp.astype(xp.broadcast_to(seen, weights.shape), weights.dtype)
    kinds = xp.concat([x == xp.inf, x == -xp.inf, xp.isnan(x)], axis=-1)
    marks = ones @ xp.astype(kinds, weights.dtype) > 0
    return weights @ xp.where(xp.isfinite(x), x, xp.zeros_like(x)), marks


def with_infinities(total: Array, marks: Array | None) -> Array:
    """Return `total` with the infinities and NaN that `weighted_sum` told of."""
    if marks is None:
        return total
    xp, width = namespace(total), total.shape[-1]
    plus, minus, nan = (marks[..., i * width : (i + 1) * width] for i in range(3))
    unclear = xp.logical_or(xp.logical_or(nan, xp.isnan(total)), xp.logical_and(plus, minus))
    return xp.where(unclear, xp.nan, xp.where(plus, xp.inf, xp.where(minus, -xp.inf, total)))


def without_hidden(x: Array, seen: Array | None) -> Array:
    """Return ``... H C F`` with 0 for the vectors that no query sees and that hold anything that is not finite.

    What is left of NaN then reaches only scores that are hidden one by one. A derivative, which multiplies a hidden
    score's 0 with the key, needs more than that.
    """
    if seen is None or is_finite(x):
        return x
    xp = namespace(x, seen)
    finite = xp.all(xp.isfinite(x), axis=-1, keepdims=True)
    return xp.where(xp.logical_or(xp.any(seen, axis=-2)[..., None], finite), x, xp.zeros_like(x))


def within(x: Array, dtype: object) -> Array:
    """Return `x` as `dtype`, the finite numbers that are too large for it as its largest."""
    xp = namespace(x)
    if x.dtype == dtype:
        return x
    largest = float(xp.finfo(dtype).max)
    if float(xp.finfo(x.dtype).max) > largest:
        x = xp.where(xp.isfinite(x), xp.clip(x, -largest, largest), x)
    return xp.astype(x, dtype)
