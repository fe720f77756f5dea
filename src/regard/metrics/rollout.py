"""Attention rollout: the product of the attention of all layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from regard.metrics.layer_maps import LayerMap, chosen_rows, every_layer_of
from regard.trace import Trace


def rollout(trace: Trace, *, rows: int | Sequence[int] | None = None, batch: int = 0) -> np.ndarray:
    """Return how much each token's last vector takes from each input token, if layers only averaged vectors.

    A is the mean of a layer's heads, and Â = (A + I) / 2 adds the residual connection, rows normalized to sum to 1.
    Rollout is Â of the last layer · … · Â of the first.

    Parameters
    ----------
    trace : Trace
        For a run, with the weights of every layer.
    rows : int or sequence of int, optional
        Of these tokens only; memory then grows with ``R T``, not with ``T²``.
    batch : int
        Which sequence of the batch.

    Returns
    -------
    array of float64, ``R T``
        Rows sum to 1.

    Raises
    ------
    RegardError
        The trace has no such weights, sequence or token.

    References
    ----------
    Abnar and Zuidema (2020), "Quantifying attention flow in transformers", section 3,
    https://arxiv.org/abs/2005.00928.
    """
    layers = every_layer_of(trace, batch, "rollout")
    index = chosen_rows(rows, layers[0].length)
    product = np.zeros((len(index), layers[0].length))
    product[np.arange(len(index)), index] = 1  # rows of the identity
    for layer in reversed(layers):
        above, product = product, np.zeros_like(product)
        for at, block in residual_attention_blocks(layer):
            product += above[:, at] @ block
    return product


def residual_attention_blocks(layer: LayerMap, ablated: Sequence[int] = ()) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield some rows, and of Â, the mean of the heads and the residual connection in equal parts, ``R T``.

    Ablated heads add nothing, as a sink adds nothing; rows are normalized to sum to 1.
    """
    for at, weights in layer.row_blocks():
        block = np.delete(weights, ablated, axis=0).sum(0) / len(weights)
        block[np.arange(len(block)), at] += 1
        yield at, block / block.sum(-1, keepdims=True)
