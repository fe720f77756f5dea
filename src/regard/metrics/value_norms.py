"""Weights together with what they carry: the norm of the weighted and projected values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from regard._utils.errors import RegardError
from regard.metrics.layer_maps import LayerMap, chosen_rows, layers_of
from regard.nn import parameters
from regard.trace import Trace


def value_norms(
    model: Any,
    trace: Trace,
    layer: int,
    *,
    heads: Literal["each", "together"] = "each",
    rows: int | Sequence[int] | None = None,
    batch: int = 0,
) -> np.ndarray:
    """Return ‖α v W_O‖: how long the vector is that a token hands to another, which its weight α alone does not tell.

    A token that gets much weight may have next to nothing to give, as the separators of BERT do.

    Parameters
    ----------
    model
        The model that ran, for the output projection of its layer.
    trace : Trace
        Of its run, with the ``weights`` and the values ``v`` of the layer.
    layer : int
        From 0; a negative one counts from the last.
    heads : {"each", "together"}
        For each head, or of the sum of what all heads hand over.
    rows : int or sequence of int, optional
        Only what these tokens receive.
    batch : int
        Which text of the batch.

    Returns
    -------
    array of float64, ``H R T``, or ``R T`` for the heads together

    Raises
    ------
    RegardError
        There is no such layer, text or token; the values were not recorded; or the layer has no output projection.

    References
    ----------
    Kobayashi et al. (2020), "Attention is not only a weight: analyzing transformers with vector norms",
    https://arxiv.org/abs/2004.10102. The bias of the values is part of them; that of W_O belongs to no token.
    """
    if heads not in ("each", "together"):
        raise RegardError(f"heads are taken each or together, got {heads!r}")
    layers = layers_of(trace, batch)
    if not -len(layers) <= layer < len(layers):
        raise RegardError(f"there is no layer {layer} among {len(layers)}")
    look = layers[layer]
    named = look.step("o_proj.weight")
    projection = parameters(model).get(named)
    if projection is None:
        raise RegardError(f"the model has no {named}: without an output projection the values are what is handed over")
    if look.step("v") not in trace:
        raise RegardError(f"the trace has no {look.step('v')}: record it too, Trace(maps=True)")
    weights = look.rows(chosen_rows(rows, look.length))
    if heads == "each":
        return np.asarray(weights * value_lengths(projection, trace, look, batch)[:, None, :])
    # ‖Σ α f‖² = Σ Σ α α' f·f' over pairs of heads, so that no vector is held for each pair of tokens
    values = np.stack(list(transformed_values(projection, trace, look, batch)), axis=1)  # S H E
    products = values @ values.swapaxes(-1, -2)  # S H H
    squared = np.einsum("hrs,shg,grs->rs", weights, products, weights, optimize=True)
    return np.asarray(np.sqrt(np.maximum(squared, 0)))


def value_lengths(projection: np.ndarray, trace: Trace, layer: LayerMap, batch: int) -> np.ndarray:
    """Return ‖v W_O‖ of each token in each head, float64 ``H S``, of the whole W_O, ``(H Dv) E``."""
    return np.stack(
        [np.linalg.norm(vectors, axis=-1) for vectors in transformed_values(projection, trace, layer, batch)]
    )


def transformed_values(projection: np.ndarray, trace: Trace, layer: LayerMap, batch: int) -> Iterator[np.ndarray]:
    """Yield of each head what its tokens hand over with a weight of 1, v W_O, ``S E``."""
    v, count = layer.values(trace, batch), len(layer.heads)
    split = projection.astype(np.float64).reshape(count, v.shape[-1], -1)  # H Dv E
    for head in range(count):
        yield v[layer.kv_head(head)] @ split[head]
