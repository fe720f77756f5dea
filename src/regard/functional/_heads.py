"""From one wide vector for each token to one narrow vector for each head, and back."""

from __future__ import annotations

from regard._checks import whole_number
from regard._errors import RegardError
from regard._typing import Array
from regard.functional._arrays import as_array, namespace


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
    heads = namespace(x).reshape(x, (*lead, length, num_heads, width // num_heads))  # ... T H D
    return _swapped(heads)


def merge_heads(x: Array) -> Array:
    """Return ``... H T D`` as ``... T (H D)``: the heads' vectors side by side, the inverse of `split_heads`."""
    x = _with_axes(x, "H T D", 3)
    *lead, num_heads, length, head_dim = x.shape
    return namespace(x).reshape(_swapped(x), (*lead, length, num_heads * head_dim))


def _swapped(x: Array) -> Array:
    """Return ``... A B D`` as ``... B A D``."""
    return namespace(x).permute_dims(x, (*range(x.ndim - 3), x.ndim - 2, x.ndim - 3, x.ndim - 1))


def _with_axes(x: Array, axes: str, least: int) -> Array:
    x = as_array(x, "x")
    if x.ndim < least:
        raise RegardError(
            f"x {tuple(x.shape)} needs at least {least} axes, {axes}; a single token is a text of length 1"
        )
    return x
