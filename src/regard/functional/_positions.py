"""Where a token stands, as a vector that is added to its embedding."""

from __future__ import annotations

import math

import numpy as np

from regard._checks import whole_number
from regard._errors import RegardError
from regard._typing import Array
from regard.functional._arrays import as_array


def sinusoidal_positions(length: int, embed_dim: int, *, base: float = 10_000.0) -> Array:
    """Return the fixed position embeddings of the Transformer paper.

    Position p has sin(p / base^(2i/E)) at feature 2i and the cosine of the same angle at feature 2i + 1:
    waves from fast to slow, so that near positions look alike and every shift is a rotation.

    Parameters
    ----------
    length : int
        Number of positions ``T``.
    embed_dim : int
        Number of features ``E``; an odd number ends with a sine.
    base : float
        The slowest wave is about 2π · base positions long.

    Returns
    -------
    float64 array, ``T E``

    References
    ----------
    Vaswani et al. (2017), "Attention is all you need", section 3.5, https://arxiv.org/abs/1706.03762.

    Examples
    --------
    >>> sinusoidal_positions(2, 4).round(3)
    array([[0.   , 1.   , 0.   , 1.   ],
           [0.841, 0.54 , 0.01 , 1.   ]])
    """
    length, embed_dim = whole_number("length", length, 0), whole_number("embed_dim", embed_dim, 1)
    if not 0 < base < math.inf:
        raise RegardError(f"base must be a finite number above 0, got {base}")
    wave = np.arange(embed_dim) // 2  # features 2i and 2i + 1 share wave i
    angle = np.arange(length)[:, None] / base ** (2 * wave / embed_dim)  # T E
    return np.where(np.arange(embed_dim) % 2 == 0, np.sin(angle), np.cos(angle))


def table_positions(table: Array, length: int, *, offset: int = 0) -> Array:
    """Return rows `offset` to `offset + length` of a table of position embeddings, learned or given.

    Parameters
    ----------
    table : array, ``P E``
    length : int
        Number of positions ``T``.
    offset : int
        The first position.

    Returns
    -------
    array, ``T E``

    Raises
    ------
    RegardError
        The table has too few rows: what a model learned for P positions says nothing about the next one.
    """
    table = as_array(table, "table")
    length, offset = whole_number("length", length, 0), whole_number("offset", offset, 0)
    if table.ndim != 2:
        raise RegardError(f"the position table needs two axes, P E, got {tuple(table.shape)}")
    if offset + length > table.shape[0]:
        raise RegardError(
            f"the position table has {table.shape[0]} rows, but positions {offset} to {offset + length - 1} "
            f"were asked for; shorten the text to {table.shape[0]} tokens or give a longer table"
        )
    return table[offset : offset + length]
