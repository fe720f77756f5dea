"""Word vectors drawn at random, as the lessons do before anything is learned."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from regard._errors import RegardError


def random_embeddings(
    size: int, embed_dim: int, *, rng: np.random.Generator | int | None = None, dtype: DTypeLike = np.float32
) -> NDArray[Any]:
    """Draw a table of embeddings from the standard normal distribution.

    Parameters
    ----------
    size
        Number of rows, one for each word of a vocabulary.
    embed_dim
        Numbers in a row.
    rng
        A generator, or a seed for one; None draws differently every time. The same seed gives the same
        numbers in every `dtype`, up to rounding.
    dtype
        The floating type of the result.

    Returns
    -------
    Array of shape ``V E``.

    Raises
    ------
    RegardError
        A size is negative or no whole number, `embed_dim` is 0, or `rng` is neither a generator nor a seed.
    """
    try:
        size, embed_dim = index(size), index(embed_dim)
    except TypeError as error:
        raise RegardError(f"embeddings need whole numbers, got {size!r} and {embed_dim!r}") from error
    if size < 0 or embed_dim < 1:
        raise RegardError(f"embeddings need size >= 0 and embed_dim >= 1, got {size} and {embed_dim}")
    if not np.issubdtype(dtype, np.floating):
        raise RegardError(f"embeddings need a floating type, got {np.dtype(dtype)}")
    try:
        generator = np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise RegardError(f"rng must be a numpy Generator, a seed >= 0 or None, got {rng!r}") from error
    return generator.standard_normal((size, embed_dim)).astype(dtype)
