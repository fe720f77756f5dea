"""Value-weighted norms: the length of the weighted, transformed value vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from regard._utils.errors import RegardError
from regard.metrics.layer_maps import LayerMap, chosen_rows, layers_of
from regard.nn import parameters
from regard.nn.layer import before_residual
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
    """Return ‖α v W_O‖, the norm of the vector that each token adds to another; α is the weight.

    A large weight may multiply a vector close to zero, as for the separators of BERT.

    Parameters
    ----------
    model
        The model of the run, for the output projection of its layer.
    trace : Trace
        Of its run, with the ``weights`` and the values ``v`` of the layer.
    layer : int
        From 0; negative ones count from the last.
    heads : {"each", "together"}
        For each head, or for the sum over heads.
    rows, batch
        As in `rollout`.

    Returns
    -------
    array of float64, ``H R T``, or ``R T`` for the heads together

    Raises
    ------
    RegardError
        There is no such layer, sequence or token; the values were not recorded; or the layer has no output projection.

    References
    ----------
    Kobayashi et al. (2020), "Attention is not only a weight: analyzing transformers with vector norms",
    https://arxiv.org/abs/2004.10102. Values include their bias; the bias of W_O belongs to no token.
    """
    if heads not in ("each", "together"):
        raise RegardError(f"heads must be each or together, got {heads!r}")
    layers = layers_of(trace, batch)
    if not -len(layers) <= layer < len(layers):
        raise RegardError(f"layer {layer} is out of range for {len(layers)}")
    layer_map = layers[layer]
    projection = output_projection(model, layer_map)
    if has_output_gate(model, layer_map):
        raise RegardError(
            f"{layer_map.name} multiplies what a head has read by a gate of the query: no length is that of a value"
        )
    if projection is None:
        name = layer_map.step("o_proj.weight")
        raise RegardError(f"the model has no {name}: without an output projection the norms are those of the values")
    if layer_map.step("v") not in trace:
        raise RegardError(f"the trace has no {layer_map.step('v')}: record it with Trace(maps=True, only='*')")
    weights = layer_map.rows(chosen_rows(rows, layer_map.length))
    if heads == "each":
        return np.asarray(weights * value_lengths(projection, trace, layer_map, batch)[:, None, :])
    # ‖Σ α f‖² = Σ Σ α α' f·f' over pairs of heads, which needs no vector for each pair of tokens
    values = np.stack(list(transformed_values(projection, trace, layer_map, batch)), axis=1)  # S H E
    products = values @ values.swapaxes(-1, -2)  # S H H
    squared = np.einsum("hrs,shg,grs->rs", weights, products, weights, optimize=True)
    return np.asarray(np.sqrt(np.maximum(squared, 0)))


def has_output_gate(model: Any, layer: LayerMap) -> bool:
    """Return whether a layer multiplies what its heads have read by a gate."""
    return layer.step("gate_proj.weight") in parameters(model)


def output_projection(model: Any, layer: LayerMap) -> ArrayLike | None:
    """Return W_O of a layer, ``(H Dv) E``, times the factor of `before_residual`; None where there is no W_O."""
    projection = parameters(model).get(layer.step("o_proj.weight"))
    if projection is None:
        return None
    _, factor = before_residual(model, layer.name)
    return projection if np.all(factor == 1) else np.asarray(projection, np.float64) * factor


def value_lengths(projection: ArrayLike, trace: Trace, layer: LayerMap, batch: int) -> np.ndarray:
    """Return ‖v W_O‖ of each token in each head, float64 ``H S``; `projection` is the whole W_O, ``(H Dv) E``."""
    return np.stack(
        [np.linalg.norm(vectors, axis=-1) for vectors in transformed_values(projection, trace, layer, batch)]
    )


def transformed_values(projection: ArrayLike, trace: Trace, layer: LayerMap, batch: int) -> Iterator[np.ndarray]:
    """Yield the transformed value vectors of each head, v W_O, ``S E``."""
    v, count = layer.values(trace, batch), len(layer.heads)
    split = np.asarray(projection, np.float64).reshape(count, v.shape[-1], -1)  # H Dv E
    for head in range(count):
        yield v[layer.kv_head(head)] @ split[head]
