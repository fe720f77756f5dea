"""Random embeddings, as in the lessons."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from regard._utils.errors import RegardError
from regard._utils.validation import float_dtype, whole_number


def random_embeddings(
    size: int, embed_dim: int, *, rng: np.random.Generator | int | None = None, dtype: DTypeLike = np.float32
) -> NDArray[Any]:
    """Draw an embedding matrix from the standard normal distribution.

    `regard.nn.Embedding.init` draws the same numbers for a layer, from a generator that layers share; here a seed is
    enough.

    Parameters
    ----------
    size
        Number of rows, one for each word of a vocabulary.
    embed_dim
        Numbers in a row.
    rng
        A generator or a seed; None draws differently each time. The same seed gives the same numbers in every `dtype`,
        up to rounding.
    dtype
        The floating type of the result.

    Returns
    -------
    Array of shape ``V E``.

    Raises
    ------
    RegardError
        A size is negative or not a whole number, `embed_dim` is 0, or `rng` is neither a generator nor a seed.
    """
    shape = whole_number("size", size, 0), whole_number("embed_dim", embed_dim, 1)
    dtype = float_dtype(dtype)
    try:
        generator = np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise RegardError(f"rng must be a numpy Generator, a seed >= 0 or None, got {rng!r}") from error
    return generator.standard_normal(shape).astype(dtype)
