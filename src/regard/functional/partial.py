"""Attention over a subset of the keys, and the merge of such partial results."""

from __future__ import annotations

import functools
from typing import NamedTuple, Unpack

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import (
    Array,
    compute_dtype,
    device,
    is_finite,
    namespace,
    narrowed,
    result_dtype,
    widest_float,
)
from regard.functional.blockwise import blockwise
from regard.functional.dispatch import choose_implementation
from regard.functional.frameworks import uncompiled
from regard.functional.inputs import AttentionInputs, Options, validate_inputs, widened
from regard.functional.native.attention import native_forward_with_stats
from regard.functional.nonfinite import nonzero, zero_neginf
from regard.functional.scores.layout import broadcasts


class Partial(NamedTuple):
    """Attention over a subset of the keys, with the log-sum-exp needed to merge it.

    Parameters
    ----------
    output : array, ``... H T Dv``
        Attention over these keys alone, in float32 at least: parts merge without the rounding of half precision.
    lse : array, ``... H T``
        log Σ exp(score) over these keys (and the sink, if there is one), in float64 where the library has it;
        −inf where a query attends to none of them.
    """

    output: Array
    lse: Array


@uncompiled
def attention_partial(q: Array, k: Array, v: Array, **options: Unpack[Options]) -> Partial:
    """Return attention over a subset of the keys, for `merge_partials`.

    The arguments are those of `attention`, with positions counted from the first of these keys: of keys a to b of a
    sequence, query i is at position i + query_offset − a. Give sinks to one part only. `dropout` numbers the weights of
    each part from its first key.

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
    return compute_partial(validate_inputs(q, k, v, **options))


def compute_partial(p: AttentionInputs) -> Partial:
    """Return attention over the keys of validated inputs, for `merge_partials`."""
    is_valid = False
    if choose_implementation(p)[0] == "native":
        context, stats, is_valid = native_forward_with_stats(p, p.compute_dtype)
    if not is_valid:
        context, stats = blockwise(widened(p))
    return Partial(narrowed(context, p.compute_dtype), stats.lse(p.layout.xp, p.layout.device))


def merge_partials(*partials: Partial) -> Partial:
    """Return attention over the keys of all parts together, whatever their order and grouping.

    A part with no key to attend to (output 0, lse −inf) changes nothing. Parts from elsewhere are of any precision; the
    result is computed, and returned, in float32 at least, so that it may be merged again. Convert the last one.

    Raises
    ------
    RegardError
        No part is given, or the shapes differ.

    References
    ----------
    The merging of blocks in Dao et al. (2023), "FlashAttention-2", https://arxiv.org/abs/2307.08691.
    """
    if not partials or not all(isinstance(part, Partial) for part in partials):
        raise RegardError(
            "merge_partials takes parts, merge_partials(one, other): results of attention_partial, at least one"
        )
    shape = tuple(partials[0].output.shape)
    if not all(tuple(part.output.shape) == shape and broadcasts(part.lse.shape, shape[:-1]) for part in partials):
        shapes = ", ".join(f"output {tuple(part.output.shape)} with lse {tuple(part.lse.shape)}" for part in partials)
        raise RegardError(f"parts to merge must be of the same queries and heads: {shapes}")

    xp = namespace(*(array for part in partials for array in part))
    dtype = compute_dtype(xp, result_dtype(*(part.output for part in partials)))
    wide = widest_float(xp, device(partials[0].lse))
    partials = tuple(Partial(narrowed(part.output, dtype), narrowed(part.lse, wide)) for part in partials)
    if len(partials) == 1:
        return partials[0]
    row_max = functools.reduce(xp.maximum, (part.lse for part in partials))
    exponentials = [xp.exp(part.lse - zero_neginf(row_max, xp)) for part in partials]
    row_sum = functools.reduce(xp.add, exponentials)
    with np.errstate(invalid="ignore", over="ignore"):  # +inf of one part plus −inf of another is NaN, as over all keys
        output = functools.reduce(
            xp.add, [_scaled(part, x / nonzero(row_sum, xp)) for x, part in zip(exponentials, partials, strict=True)]
        )
        output = _not_overflowed(output, partials)
    return Partial(output, xp.where(row_sum == 0, -xp.inf, zero_neginf(row_max, xp) + xp.log(nonzero(row_sum, xp))))


def _not_overflowed(output: Array, partials: tuple[Partial, ...]) -> Array:
    """Return a mean of outputs within their bounds: rounding may move it past the largest float."""
    if is_finite(output):
        return output
    xp = namespace(output)
    largest = functools.reduce(xp.maximum, [xp.abs(part.output) for part in partials])
    return xp.where(xp.isinf(output) & xp.isfinite(largest), xp.sign(output) * largest, output)


def _scaled(part: Partial, weight: Array) -> Array:
    """Return weight × output, where NaN and infinities of the output stay however small the weight."""
    xp = namespace(*part)
    weight = xp.astype(weight, part.output.dtype)[..., None]
    if is_finite(part.output):
        return weight * part.output
    return xp.where(xp.isfinite(part.output), weight * part.output, part.output)
