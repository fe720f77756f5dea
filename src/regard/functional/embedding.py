"""Embedding: the row of each token in a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, as_array
from regard.functional.variable import Pullback, is_recorded, record_vjp


def embedding(table: Any, ids: Array) -> Any:
    """Return the rows of a table, ``... E``, for integer ids ``...``.

    Parameters
    ----------
    table : array, ``V E``
        Anything with a shape that an array of integers indexes.
    ids : integer array, ``...``

    Raises
    ------
    RegardError
        An id is not an integer from 0 to V − 1 (NumPy would count a negative one from the end); or the table is not of
        numbers, or is one number.

    Examples
    --------
    >>> import numpy as np
    >>> embedding(np.array([[0.0, 1.0], [2.0, 3.0]]), [1, 0, 1])
    array([[2., 3.],
           [0., 1.],
           [2., 3.]])
    """
    ids = np.asarray(as_array(ids, "ids"))
    if ids.size == 0:
        ids = ids.astype(np.intp)
    if not np.issubdtype(ids.dtype, np.integer):
        raise RegardError(f"ids must be integers, got {ids.dtype}")
    table = _as_table(table)
    size = len(table)
    outside = ids[(ids < 0) | (ids >= size)]
    if outside.size:
        raise RegardError(f"id {outside.flat[0]} is outside the vocabulary, which has ids 0 to {size - 1}")
    return record_vjp(embedding_vjp, table, ids) if is_recorded(table) else table[ids]


def embedding_vjp(table: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, Pullback]:
    """Return `embedding` and its vector-Jacobian product: each row of d_table is the sum of the d of its token.

    The pullback returns the gradient of the table, ``V E``, and None for the ids. Rows are summed in the order of the
    tokens.
    """
    table = _as_table(table)

    def pullback(d: np.ndarray) -> tuple[np.ndarray, None]:
        d_table = np.zeros(table.shape, d.dtype)
        if ids.size:
            order = np.argsort(ids, axis=None, kind="stable")
            rows, starts = np.unique(ids.ravel()[order], return_index=True)
            d_table[rows] = np.add.reduceat(d.reshape(-1, table.shape[1])[order], starts, axis=0)
        return d_table, None

    return embedding(table, ids), pullback


def _as_table(table: Any) -> Any:
    """Return a table that has a shape as it is, else as an array; an error if it has no rows."""
    if not getattr(table, "shape", ()):
        table = as_array(table, "table")
    if not table.shape:
        raise RegardError(f"table must have the axes V E, got one number, {table}")
    return table
