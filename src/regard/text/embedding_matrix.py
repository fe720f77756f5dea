"""Validation of an embedding matrix, one row for each word."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard._utils.errors import RegardError


def as_embedding_matrix(vectors: ArrayLike, count: int) -> NDArray[Any]:
    """Return `vectors` as a floating-point array, ``V E`` with V = `count`; integers become float64.

    An error if they are not finite real numbers, or not of shape ``V E``.
    """
    try:
        matrix = np.asarray(vectors)
    except ValueError as error:
        raise RegardError(f"vectors must have rows of one length: {error}") from error
    if matrix.ndim != 2 or len(matrix) != count or matrix.shape[1] == 0:
        raise RegardError(f"{count} words need vectors of shape ({count}, embed_dim), got {matrix.shape}")
    if matrix.dtype.kind in "iu":
        matrix = matrix.astype(np.float64)
    if matrix.dtype.kind != "f" or not np.isfinite(matrix).all():
        raise RegardError(f"vectors must be finite real numbers, these ({matrix.dtype}) are not; leave out the others")
    return matrix
