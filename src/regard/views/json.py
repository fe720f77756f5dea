"""A view of attention as plain data for other programs."""

from __future__ import annotations

from typing import Any

from regard.views.selection import AttentionView, strongest


def to_json(view: AttentionView, *, top: int = 3) -> dict[str, Any]:
    """Return what a view shows as numbers, strings, lists and dicts.

    Parameters
    ----------
    view : AttentionView
    top : int
        How many keys to name for each query under ``strongest``.

    Returns
    -------
    dict
        ``model``, ``layer`` and ``head`` (None: the mean), ``layers`` and ``heads`` to choose from, ``queries``
        (T), ``keys`` (S), ``weights`` (T rows of S), ``hidden`` (T), ``hidden_keys`` and ``strongest`` (for each
        query a list of ``key`` (its index), ``token`` and ``weight``).
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
        "hidden": view.hidden.tolist(),
        "hidden_keys": list(view.hidden_keys),
        "strongest": [
            [{"key": key, "token": view.keys[key], "weight": weight} for key, weight in row]
            for row in strongest(view, top)
        ],
    }
