"""Attention over a part of the keys, and parts put together: what caches and machines that share a text need."""

from __future__ import annotations

import functools
from typing import NamedTuple, Unpack

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.functional.arrays import is_finite, namespace
from regard.functional.blockwise import blockwise
from regard.functional.dispatch import choose_implementation
from regard.functional.inputs import Options, validate_inputs
from regard.functional.native.attention import native_forward_with_stats
from regard.functional.nonfinite import nonzero, zero_neginf
from regard.functional.score_layout import broadcasts


class Partial(NamedTuple):
    """What some of the keys say, and how much that counts beside other keys.

    Parameters
    ----------
    output : array, ``... H T Dv``
        Attention over these keys alone, in float32 at least.
    lse : array, ``... H T``
        log Σ exp(score) over these keys (and the sink, where there is one), in float64 where the library has it;
        −inf where a query sees none of them.
    """

    output: Array
    lse: Array


def attention_partial(q: Array, k: Array, v: Array, **options: Unpack[Options]) -> Partial:
    """Return attention over one part of the keys, to be merged with others.

    Takes the arguments of `attention`, which says what they mean, for this part: positions count from the first of
    these keys. If they are keys a to b of a text, query i stands at i + query_offset − a. Sinks are given to one
    part only; so is what is wanted of `dropout`, whose cells are numbered from this part's first.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 6, 4))
    >>> parts = [attention_partial(q, k[a:b], v[a:b]) for a, b in ((4, 6), (0, 4))]
    >>> whole = attention_partial(q, k, v)
    >>> bool(np.allclose(merge_partials(*parts).output, whole.output))
    True
    """
    p = validate_inputs(q, k, v, **options)
    context, normaliser = (
        native_forward_with_stats(p, p.compute_dtype)
        if choose_implementation(p)[0] == "native"
        else blockwise(p.to_compute_dtype())
    )
    return Partial(context, normaliser.lse(p.layout.xp, p.layout.device))


def merge_partials(*partials: Partial) -> Partial:
    """Return attention over the keys of all parts together, whatever their order and grouping.

    A part that sees nothing (output 0, lse −inf) changes nothing.

    Raises
    ------
    RegardError
        No part is given, or their shapes differ.

    References
    ----------
    The merging of blocks in Dao et al. (2023), "FlashAttention-2", https://arxiv.org/abs/2307.08691.
    """
    if not partials or not all(isinstance(part, Partial) for part in partials):
        raise RegardError(
            "merge_partials takes parts, merge_partials(one, other): what attention_partial returns, at least one"
        )
    if len(partials) == 1:
        return partials[0]
    try:
        shape = np.broadcast_shapes(*(tuple(part.output.shape) for part in partials))
        fits = all(broadcasts(part.lse.shape, shape[:-1]) for part in partials)
    except ValueError:
        fits = False
    if not fits:
        shapes = ", ".join(f"output {tuple(part.output.shape)} with lse {tuple(part.lse.shape)}" for part in partials)
        raise RegardError(f"parts to merge must be of the same queries and heads: {shapes}")

    xp = namespace(*(array for part in partials for array in part))
    row_max = functools.reduce(xp.maximum, (part.lse for part in partials))
    shares = [xp.exp(part.lse - zero_neginf(row_max)) for part in partials]
    total = functools.reduce(xp.add, shares)
    with np.errstate(invalid="ignore"):  # +inf of one part and −inf of another are NaN, as in the whole
        output = functools.reduce(
            xp.add, [_share_of(part, share / nonzero(total)) for share, part in zip(shares, partials, strict=True)]
        )
    return Partial(output, xp.where(total == 0, -xp.inf, zero_neginf(row_max) + xp.log(nonzero(total))))


def _share_of(part: Partial, share: Array) -> Array:
    """Return what a part gives to the sum: an infinity that it saw whole, however small its share."""
    xp = namespace(*part)
    share = xp.astype(share, part.output.dtype)[..., None]
    if is_finite(part.output):
        return share * part.output
    return xp.where(xp.isfinite(part.output), share * part.output, part.output)
