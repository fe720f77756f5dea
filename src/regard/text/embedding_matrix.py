"""What may be called a table with a vector for each word."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard._utils.errors import RegardError


def as_table(vectors: ArrayLike, count: int) -> NDArray[Any]:
    """Return `vectors` as an array of floating-point numbers, ``V E`` with V = `count`; integers become float64.

    Raises
    ------
    RegardError
        They are no finite real numbers, have not two axes, or not one row for each of `count` words.
    """
    try:
        table = np.asarray(vectors)
    except ValueError as error:
        raise RegardError(f"vectors need rows of one length: {error}") from error
    if table.ndim != 2 or len(table) != count or table.shape[1] == 0:
        raise RegardError(f"{count} words need vectors of shape ({count}, embed_dim), got {table.shape}")
    if table.dtype.kind in "iu":
        table = table.astype(np.float64)
    if table.dtype.kind != "f" or not np.isfinite(table).all():
        raise RegardError(f"vectors are finite real numbers, these ({table.dtype}) are not; leave the others out")
    return table
