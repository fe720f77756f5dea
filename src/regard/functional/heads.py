"""Split features into heads, merge and count heads, and sum over those query heads that share a key/value head."""

from __future__ import annotations

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.functional.arrays import Array, as_array, namespace
from regard.functional.biases.base import sum_to_shape


def split_heads(x: Array, num_heads: int) -> Array:
    """Return ``... T (H D)`` as ``... H T D``: head h takes features h·D to (h+1)·D of every token.

    Raises
    ------
    RegardError
        `num_heads` does not divide the number of features, or x has fewer than the two axes ``T (H D)``.
    """
    x = _with_axes(x, "T (H D)", 2)
    *lead, length, width = x.shape
    if width % whole_number("num_heads", num_heads, 1):
        raise RegardError(f"{width} features do not split into {num_heads} heads of equal size")
    return _swap_heads(_reshape(x, (*lead, length, num_heads, width // num_heads)))


def merge_heads(x: Array) -> Array:
    """Return ``... H T D`` as ``... T (H D)``: concatenated heads, the inverse of `split_heads`."""
    x = _with_axes(x, "H T D", 3)
    *lead, num_heads, length, head_dim = x.shape
    return _reshape(_swap_heads(x), (*lead, length, num_heads * head_dim))


def count_heads(x: Array) -> int:
    """Return the number of heads of ``... H T D``; a plain ``T D`` is one."""
    return int(x.shape[-3]) if x.ndim > 2 else 1


def sum_over_query_groups(x: Array, shape: tuple[int, ...]) -> Array:
    """Return ``... H S D`` summed to `shape`, ``... G S D``: the transpose of `reference.repeat_kv`."""
    groups = shape[-3] if len(shape) > 2 else 1
    if x.ndim > 2 and groups not in (1, x.shape[-3]):
        xp = namespace(x)
        x = xp.sum(xp.reshape(x, (*x.shape[:-3], groups, x.shape[-3] // groups, *x.shape[-2:])), axis=-3)
    return sum_to_shape(x, shape)


def _reshape(x: Array, shape: tuple[int, ...]) -> Array:
    return x.reshape(shape) if type(x) is np.ndarray else namespace(x).reshape(x, shape)  # the method is faster


def _swap_heads(x: Array) -> Array:
    """Return ``... A B D`` as ``... B A D``."""
    if type(x) is np.ndarray:
        return x.swapaxes(-2, -3)
    return namespace(x).permute_dims(x, (*range(x.ndim - 3), x.ndim - 2, x.ndim - 3, x.ndim - 1))


def _with_axes(x: Array, axes: str, least: int) -> Array:
    x = as_array(x, "x")
    if x.ndim < least:
        raise RegardError(
            f"x {tuple(x.shape)} needs at least {least} axes, {axes}; a single token is a sequence of length 1"
        )
    return x
