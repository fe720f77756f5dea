"""A view of attention, and the steps of a head, as JSON data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.views.head_steps import HeadSteps
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


def head_to_json(steps: HeadSteps, rows: Sequence[int] | None = None) -> dict[str, Any]:
    """Return the steps of a head as numbers, strings, lists and dicts; the score of a masked key is None.

    Parameters
    ----------
    steps : HeadSteps
    rows : sequence of int, optional
        The positions of queries, whose arithmetic is returned in place of the steps.

    Returns
    -------
    dict
        ``layer``, ``head``, ``kv_head``, ``tokens`` (T), ``scale``, the factor of q · k, and ``steps``, each with its
        ``name``, ``formula`` and ``values``: a row for each token. With `rows`, in place of ``steps``, ``rows``: each
        has ``query``, its position, ``token``, ``q``, ``context`` and ``keys``, those that it may attend to, with
        ``key``, the position, ``token``, ``k``, ``product`` (q · k), ``score`` (product times scale), ``final_score``
        (the input of the softmax), ``weight`` and ``v``.
    """
    shown: dict[str, Any] = {
        "layer": steps.layer,
        "head": steps.head,
        "kv_head": steps.kv_head,
        "tokens": list(steps.tokens),
        "scale": steps.scale,
    }
    if rows is not None:
        return shown | {"rows": [_row(steps, row) for row in rows]}
    each = [{"name": step.name, "formula": step.formula, "values": _finite(step.values)} for step in steps]
    return shown | {"steps": each}


def _row(steps: HeadSteps, row: int) -> dict[str, Any]:
    q = steps.q[row]
    return {
        "query": row,
        "token": steps.tokens[row],
        "q": _finite(q),
        "keys": [
            {
                "key": key,
                "token": steps.tokens[key],
                "k": _finite(steps.k[key]),
                "product": _finite(steps.product(row, key)),
                "score": _finite(steps.scores[row, key]),
                "final_score": _finite(steps.final_scores[row, key]),
                "weight": _finite(steps.weights[row, key]),
                "v": _finite(steps.v[key]),
            }
            for key in steps.allowed_keys(row)
        ],
        "context": _finite(steps.context[row]),
    }


def _finite(values: Any) -> Any:
    """Return a number, or an array as lists of numbers, with None for what JSON has no number for."""
    if np.ndim(values):
        return [_finite(part) for part in values]
    return float(values) if math.isfinite(values) else None
