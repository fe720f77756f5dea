"""Grouped-query attention: several query heads share one key/value head.

References
----------
Ainslie et al. (2023), "GQA: Training generalized multi-query transformer models", https://arxiv.org/abs/2305.13245.
"""

from __future__ import annotations

from regard._utils.typing import Array
from regard.functional.arrays import namespace
from regard.functional.biases import sum_to_shape


def count_heads(x: Array) -> int:
    """Return the number of heads of ``... H T D``; a plain ``T D`` is one."""
    return int(x.shape[-3]) if x.ndim > 2 else 1


def repeat_kv(x: Array, num_heads: int) -> Array:
    """Return ``... G S D`` as ``... H S D``: each key/value head repeated for the H/G query heads that share it."""
    if x.ndim < 3 or x.shape[-3] in (1, num_heads) or num_heads == 1:
        return x  # a single head broadcasts
    return namespace(x).repeat(x, num_heads // x.shape[-3], axis=-3)


def sum_over_query_groups(x: Array, shape: tuple[int, ...]) -> Array:
    """Return ``... H S D`` summed to `shape`, ``... G S D``: over the query heads of a group and broadcast axes."""
    groups = shape[-3] if len(shape) > 2 else 1
    if x.ndim > 2 and groups not in (1, x.shape[-3]):
        xp = namespace(x)
        x = xp.sum(xp.reshape(x, (*x.shape[:-3], groups, x.shape[-3] // groups, *x.shape[-2:])), axis=-3)
    return sum_to_shape(x, shape)
