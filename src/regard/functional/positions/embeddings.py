"""Positional encodings and relative-position helpers."""

from __future__ import annotations

import math

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.functional.arrays import Array, as_array, integers, is_floating, namespace, widest_float


def sinusoidal_positions(length: int, embed_dim: int, *, base: float = 10_000.0) -> Array:
    """Return the fixed position embeddings of the Transformer paper.

    Position p has sin(p / base^(2i/E)) at feature 2i and the cosine of the same angle at feature 2i + 1, from high
    frequencies to low: near positions have similar vectors, and every shift is a rotation.

    Parameters
    ----------
    length : int
        Number of positions ``T``.
    embed_dim : int
        Number of features ``E``; an odd number ends with a sine.
    base : float
        The longest wavelength is about 2π · base positions.

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


def learned_positions(table: Array, length: int, *, offset: int = 0) -> Array:
    """Return rows `offset` to `offset + length` of a table of position embeddings.

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
        The table has too few rows: a model has no embedding for positions beyond those it learned.
    """
    table = as_array(table, "table")
    length, offset = whole_number("length", length, 0), whole_number("offset", offset, 0)
    if table.ndim != 2:
        raise RegardError(f"the position table needs two axes, P E, got {tuple(table.shape)}")
    if offset + length > table.shape[0]:
        raise RegardError(
            f"the position table has {table.shape[0]} rows, too few for positions {offset} to {offset + length - 1}; "
            f"shorten the sequence to {table.shape[0]} tokens or give a longer table"
        )
    return table[offset : offset + length]


def alibi_slopes(num_heads: int) -> Array:
    """Return the slope of each head: by how much its scores fall for each token of distance.

    For a power of two the slopes are 2^(−8/H), 2^(−16/H), … 2^−8. For other numbers of heads they are those of the
    power of two below, then every second one of the power of two above.

    Parameters
    ----------
    num_heads : int
        ``H``.

    Returns
    -------
    float64 array, ``H``

    References
    ----------
    Press, Smith and Lewis (2022), "Train short, test long", https://arxiv.org/abs/2108.12409, and its code for
    other numbers of heads than powers of two.

    Examples
    --------
    >>> alibi_slopes(4)
    array([0.25      , 0.0625    , 0.015625  , 0.00390625])
    """
    num_heads = whole_number("num_heads", num_heads, 1)
    below = 2 ** int(math.log2(num_heads))
    steps = np.arange(1, below + 1) / below
    between = np.arange(1, 2 * (num_heads - below), 2) / (2 * below)
    return 2.0 ** (-8 * np.concatenate([steps, between]))


def relative_position_buckets(
    relative: Array, *, bidirectional: bool = True, num_buckets: int = 32, max_distance: int = 128
) -> Array:
    """Return the T5 bucket of each distance: one for each near distance, logarithmically wider ones far away.

    Parameters
    ----------
    relative : integer array, any shape
        Key position − query position.
    bidirectional : bool
        Half of the buckets are for keys after the query; otherwise those keys are all in bucket 0.
    num_buckets : int
    max_distance : int
        All distances from here on are in the last bucket.

    Returns
    -------
    integer array, shape of `relative`; of the usual integer dtype, however narrow that of `relative` is

    Raises
    ------
    RegardError
        `relative` is not of integers, or the numbers of buckets and distances do not fit.

    References
    ----------
    Raffel et al. (2020), "Exploring the limits of transfer learning", https://arxiv.org/abs/1910.10683.

    Examples
    --------
    >>> import numpy as np
    >>> relative_position_buckets(np.array([-200, -20, -3, 0, 3, 20, 200]))
    array([15, 10,  3,  0, 19, 26, 31])
    """
    relative = as_array(relative, "relative")
    xp = namespace(relative)
    num_buckets = whole_number("num_buckets", num_buckets, 2)
    max_distance = whole_number("max_distance", max_distance, 1)
    if bidirectional:
        num_buckets //= 2
    exact = num_buckets // 2  # the number of near distances with a bucket each
    if exact < 1 or max_distance <= exact:
        raise RegardError(f"max_distance {max_distance} must exceed the exact buckets, {exact}, at least one")
    if is_floating(relative) or not xp.isdtype(relative.dtype, "integral"):
        raise RegardError(f"relative must be an array of integers, got {relative.dtype}")
    kind = xp.iinfo(relative.dtype)  # distances are cut before they are widened: none is too large for the usual dtype
    relative = integers(xp.clip(relative, max(kind.min, -max_distance), min(kind.max, max_distance)))
    distance = xp.abs(relative) if bidirectional else xp.where(relative < 0, -relative, 0)
    wide = xp.astype(xp.where(distance < exact, exact, distance), widest_float(xp, getattr(relative, "device", None)))
    # In float64 bucket ends are exact; the float32 of the original code rounds some of them up.
    far = exact + xp.astype(
        xp.log(wide / exact) / math.log(max_distance / exact) * (num_buckets - exact), relative.dtype
    )
    bucket = xp.where(distance < exact, distance, xp.where(far < num_buckets, far, num_buckets - 1))
    return bucket + num_buckets * xp.astype(relative > 0, bucket.dtype) if bidirectional else bucket
