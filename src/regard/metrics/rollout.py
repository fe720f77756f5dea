"""Attention through all layers at once: rollout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from regard.metrics.layer_maps import LayerMap, chosen_rows, layers_of
from regard.trace import Trace


def rollout(trace: Trace, *, rows: int | Sequence[int] | None = None, batch: int = 0) -> np.ndarray:
    """Return how much of each token's last vector comes from each token of the text, if vectors only mixed.

    In every layer the heads' weights are averaged, A, and the residual connection counts as much as the attention:
    Â = (A + I) / 2, rows brought back to a sum of 1. Rollout is Â of the last layer · … · Â of the first.

    Parameters
    ----------
    trace : Trace
        Of a run, with the weights of every layer.
    rows : int or sequence of int, optional
        Only for these tokens; memory then grows with ``R T`` and not with the square of the text.
    batch : int
        Which text of the batch.

    Returns
    -------
    array of float64, ``R T``
        Rows sum to 1.

    Raises
    ------
    RegardError
        The trace has no such weights, or no such text or token.

    References
    ----------
    Abnar and Zuidema (2020), "Quantifying attention flow in transformers", section 3,
    https://arxiv.org/abs/2005.00928.
    """
    layers = layers_of(trace, batch)
    index = chosen_rows(rows, layers[0].length)
    reached = np.zeros((len(index), layers[0].length))
    reached[np.arange(len(index)), index] = 1
    for layer in reversed(layers):
        before = np.zeros_like(reached)
        for at, mixed in residual_attention_blocks(layer):
            before += reached[:, at] @ mixed
        reached = before
    return reached


def residual_attention_blocks(layer: LayerMap, off: Sequence[int] = ()) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield some rows, and of Â, the mean of the heads and the residual connection in equal parts, ``R T``.

    Heads that are `off` mix nothing in, as a head's own sink does not: rows are brought back to a sum of 1.
    """
    for at, weights in layer.row_blocks():
        mixed = np.delete(weights, off, axis=0).sum(0) / len(weights)
        mixed[np.arange(len(mixed)), at] += 1
        yield at, mixed / mixed.sum(-1, keepdims=True)
