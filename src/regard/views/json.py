"""A view of attention as JSON data."""

from __future__ import annotations

from typing import Any

from regard.views.selection import AttentionView, top_k


def to_json(view: AttentionView, *, top: int = 3) -> dict[str, Any]:
    """Return a view as numbers, strings, lists and dicts.

    Parameters
    ----------
    view : AttentionView
    top : int
        The number of keys for each query under ``top_keys``.

    Returns
    -------
    dict
        ``model``, ``layer`` and ``head`` (None: the mean), ``layers`` and ``heads`` to choose from, ``queries``
        (T), ``keys`` (S), ``weights`` (T rows of S), ``masked`` (T rows of S; None: nothing is), ``special_mass`` (T),
        ``special_tokens`` and ``top_keys`` (for each query a list of ``key``, its index, ``token`` and ``weight``).
    """
    return {
        "model": view.model,
        "layer": view.layer,
        "layers": list(view.layers),
        "head": view.head,
        "heads": view.heads,
        "queries": list(view.queries),
        "keys": list(view.keys),
        "weights": view.weights.tolist(),
        "masked": view.masked.tolist() if view.masked.any() else None,
        "special_mass": view.special_mass.tolist(),
        "special_tokens": list(view.special_tokens),
        "top_keys": [
            [{"key": key, "token": view.keys[key], "weight": weight} for key, weight in row] for row in top_k(view, top)
        ],
    }
