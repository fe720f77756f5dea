"""Which query may look at which key."""

from __future__ import annotations

import operator
from typing import Any

from regard._errors import RegardError
from regard._typing import Array
from regard.functional._arrays import as_array, is_boolean, is_floating, namespace


def causal_mask(xp: Any, queries: int, keys: int, query_offset: int | Array | None, device: Any = None) -> Array:
    """Return the boolean mask, True = may look, in which no query sees a later key.

    Query i stands at position i + `query_offset` of the keys and sees keys 0 to there.

    Parameters
    ----------
    xp
        The array API namespace of the result.
    queries, keys : int
        ``T`` and ``S``.
    query_offset : int, or integer array ``B``, or None
        None is S − T: the queries are the last T of the S positions, as in decoding with a cache.

    Returns
    -------
    boolean array, ``T S``, or ``B 1 T S`` for an offset for each batch entry
    """
    offset: Any = keys - queries if query_offset is None else query_offset
    if not isinstance(offset, int):
        try:
            offset = operator.index(offset)
        except TypeError:
            offset = as_array(offset, "query_offset")
            if offset.ndim != 1 or not xp.isdtype(offset.dtype, "integral"):
                raise RegardError(
                    f"query_offset must be an integer or an integer array with one entry for each batch entry, "
                    f"got {offset.dtype} of shape {tuple(offset.shape)}"
                ) from None
            offset = offset[:, None, None, None]
    query = xp.arange(queries, device=device)[:, None]
    key = xp.arange(keys, device=device)[None, :]
    return key <= query + offset


def check_mask(mask: Array, shape: tuple[int, ...]) -> Array:
    """Return `mask` as an array; complain unless it is boolean and broadcasts to `shape`, ``... H T S``."""
    mask = as_array(mask, "mask")
    if not is_boolean(mask):
        raise RegardError(
            f"mask must be boolean with True = may look, got {mask.dtype}; to add numbers to the scores use bias="
        )
    _check_broadcast(mask, "mask", shape)
    return mask


def check_bias(bias: Array, shape: tuple[int, ...]) -> Array:
    """Return `bias` as an array; complain unless it is floating and broadcasts to `shape`, ``... H T S``."""
    bias = as_array(bias, "bias")
    if is_boolean(bias):
        raise RegardError("bias is boolean, but it is added to the scores; to hide keys use mask=")
    if not is_floating(bias):
        raise RegardError(f"bias must be floating, got {bias.dtype}; convert it, or use mask= to hide keys")
    _check_broadcast(bias, "bias", shape)
    return bias


def combine(*masks: Array | None) -> Array | None:
    """Return where all of the masks that are given allow a look; None when none is given."""
    seen = None
    for mask in masks:
        if mask is not None:
            seen = mask if seen is None else namespace(mask).logical_and(seen, mask)
    return seen


def _check_broadcast(array: Array, name: str, shape: tuple[int, ...]) -> None:
    fits = array.ndim <= len(shape) and all(
        have in (1, want) for have, want in zip(reversed(array.shape), reversed(shape), strict=False)
    )
    if not fits:
        raise RegardError(
            f"{name} {tuple(array.shape)} does not broadcast to the scores {shape} (... heads, queries, keys)"
        )
