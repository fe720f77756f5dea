"""The rotary embedding of one query and one key: pairs of dimensions, each turned by its own angle a token."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np

from regard.explorer import answers

_PAIRS_SHOWN = 4
_MIN_POSITIONS = 2  # from which the angle of a token is read


class RotatedPair(TypedDict):
    """A pair of dimensions of a query and a key, before and after the rotation; ``angle`` is that of one token."""

    dims: list[int]
    angle: float
    q: list[list[float]]
    k: list[list[float]]
    product: float


class RotatedPairs(TypedDict):
    """The pairs of dimensions with the largest products."""

    i: int
    j: int
    distance: int
    pairs: list[RotatedPair]


def rotates(model: Any, block: int) -> bool | None:
    """Tell whether a block of a model rotates queries and keys; None without a model, or where it does not tell how."""
    if model is None or (_has_rope(model) and not hasattr(model, "rotation")):
        return None
    return _rotation_of(model, block, _MIN_POSITIONS) is not None


def rotated_pairs(
    model: Any, block: int, length: int, q: answers.Vector, k: answers.Vector, i: int, j: int
) -> RotatedPairs | None:
    """Return the ``pairs`` of dimensions whose product is largest, of a query and a key after the rotation, ``D`` each.

    With the positions ``i`` and ``j`` and their ``distance``. For each pair ``dims``, the ``angle`` of a token in
    radians, ``q`` and ``k`` before and after, and the ``product`` of both after it, which depends on i − j alone. None
    where the block rotates nothing, or where they are not known.
    """
    rotation = None if model is None else _rotation_of(model, block, max(length, _MIN_POSITIONS))
    if rotation is None or q is None or k is None or None in (*q, *k):
        return None
    turns = rotation[0] + 1j * rotation[1]  # T P
    width = 2 * turns.shape[-1]
    pairs = model.blocks[block].attn.rotated_pairs(width)  # P 2
    after = {name: x[pairs[:, 0]] + 1j * x[pairs[:, 1]] for name, x in (("q", np.array(q)), ("k", np.array(k)))}
    before = {name: after[name] / turns[at] for name, at in (("q", i), ("k", j))}
    products = (after["q"] * after["k"].conj()).real
    angles = np.angle(turns[1] / turns[0])
    largest = np.argsort(-np.abs(products), kind="stable")[:_PAIRS_SHOWN]
    described: list[RotatedPair] = [
        {
            "dims": pairs[pair].tolist(),
            "angle": float(angles[pair]),
            "product": float(products[pair]),
            "q": [_point(before["q"][pair]), _point(after["q"][pair])],
            "k": [_point(before["k"][pair]), _point(after["k"][pair])],
        }
        for pair in largest
    ]
    return {"i": i, "j": j, "distance": i - j, "pairs": described}


def _rotation_of(model: Any, block: int, length: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return cosines and sines of the positions of a text, ``T P`` in float64."""
    if not _has_rope(model) or not hasattr(model, "rotation"):
        return None
    if model.blocks[block].attn.rotated_pairs(_MIN_POSITIONS) is None:  # Llama 4: what is there scales queries
        return None
    rotation = model.rotation(np.arange(length), np.float64)
    cos_sin: tuple[np.ndarray, np.ndarray] | None = rotation[block] if isinstance(rotation, list) else rotation
    return cos_sin


def _has_rope(model: Any) -> bool:
    return getattr(model.config, "rope", None) is not None


def _point(x: complex) -> list[float]:
    return [float(x.real), float(x.imag)]
