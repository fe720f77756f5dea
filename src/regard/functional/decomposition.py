"""Sums of parts through attention: a score as pairs of parts, and a norm whose scale is held.

A residual stream is a sum of what was written into it. Queries and keys are linear in it once the scale by which a norm
divides is held at its value, and a score is bilinear in both, so it is a sum over pairs of parts.

References
----------
Elhage et al. (2021), "A mathematical framework for transformer circuits",
https://transformer-circuits.pub/2021/framework.
"""

from __future__ import annotations

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, as_array, compute_dtype, namespace


def score_pairs(q_parts: Array, k_parts: Array, *, scale: float) -> Array:
    """Return q · k × scale of each part of a query and each part of a key, whose sum is the score.

    Parameters
    ----------
    q_parts : array, ``... N D``
        Parts whose sum over N is the query.
    k_parts : array, ``... M D``
        Parts whose sum over M is the key.
    scale : float
        Of the scores.

    Returns
    -------
    array, ``... N M``

    Raises
    ------
    RegardError
        A part does not have two axes, or they differ in their numbers of features.

    Examples
    --------
    >>> import numpy as np
    >>> pairs = score_pairs(np.array([[1.0, 0.0], [2.0, 1.0]]), np.array([[3.0, 4.0]]), scale=0.5)
    >>> pairs.tolist(), float(pairs.sum())  # of the query (3, 1) and the key (3, 4)
    ([[1.5], [5.0]], 6.5)
    """
    q_parts, k_parts = as_array(q_parts, "q_parts"), as_array(k_parts, "k_parts")
    if q_parts.ndim < 2 or k_parts.ndim < 2 or q_parts.shape[-1] != k_parts.shape[-1]:
        raise RegardError(
            f"parts of a query {tuple(q_parts.shape)} and of a key {tuple(k_parts.shape)} need the shapes N D and M D"
        )
    return q_parts @ k_parts.mT * scale


def norm_parts(parts: Array, scale: Array, weight: Array | None = None, *, centered: bool) -> Array:
    """Return parts of x after a norm whose scale is held: their sum, and the norm's bias, is the norm of x.

    Parameters
    ----------
    parts : array, ``N ... E``
        Parts whose sum over N is x.
    scale : array that broadcasts to ``... 1``
        √(mean of x² + eps), of centered x in a layer norm, as `normalize` returns it for x.
    weight : array, ``E``, optional
    centered : bool
        Whether the norm takes out the mean over the features: a layer norm does.

    Returns
    -------
    array, ``N ... E``

    Examples
    --------
    >>> import numpy as np
    >>> from regard.functional import normalize, rms_norm
    >>> parts = np.array([[1.0, 4.0], [0.0, 3.0]])
    >>> _, scale = normalize(parts.sum(0), eps=0.0, centered=False)
    >>> norm_parts(parts, scale, centered=False).sum(0).round(9), rms_norm(parts.sum(0), eps=0.0)
    (array([0.2, 1.4]), array([0.2, 1.4]))
    """
    parts = as_array(parts, "parts")
    xp = namespace(parts)
    parts = xp.astype(parts, compute_dtype(xp, parts.dtype), copy=False)
    if centered:
        parts = parts - xp.mean(parts, axis=-1, keepdims=True)
    parts = parts / scale
    return parts if weight is None else parts * weight
