"""Attention flow: the maximum flow through the attention of all layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard._utils.errors import RegardError
from regard.metrics.layer_maps import chosen_rows, every_layer_of
from regard.metrics.rollout import residual_attention_blocks
from regard.trace import Trace

MAX_TOKENS = 128
"""The maximum length of a sequence: the work for each row grows with its cube."""

_EPS = 1e-13  # capacities and excesses below it, of at most 1, are rounding errors


def flow(trace: Trace, *, rows: int | Sequence[int] | None = None, batch: int = 0) -> np.ndarray:
    """Return the maximum flow from each token's last vector to each input token.

    The layers are a flow network: the edge from token i of a layer to token j of the layer below has capacity Â_ij (see
    `rollout`). A path carries its smallest capacity, not the product of all.

    Parameters
    ----------
    trace : Trace
        For a run on at most 128 tokens, with the weights of every layer.
    rows, batch
        As in `rollout`.

    Returns
    -------
    array of float64, ``R T``
        At most 1 each; rows do not sum to 1, because flows share edges.

    Raises
    ------
    RegardError
        The sequence is too long; the trace has no such weights, sequence or token.

    References
    ----------
    Abnar and Zuidema (2020), "Quantifying attention flow in transformers", section 3,
    https://arxiv.org/abs/2005.00928. Goldberg and Tarjan (1988), "A new approach to the maximum-flow problem",
    https://doi.org/10.1145/48014.61051 (push-relabel), here for all input tokens at once.
    """
    layers = every_layer_of(trace, batch, "attention flow")
    length = layers[0].length
    if length > MAX_TOKENS:
        raise RegardError(
            f"flow takes at most {MAX_TOKENS} tokens, got {length}: its work grows with the fourth power; use rollout"
        )
    capacities = [np.concatenate([block for _, block in residual_attention_blocks(layer)]) for layer in layers]
    index = chosen_rows(rows, length)
    return np.stack([_flows(capacities, i) for i in index]) if len(index) else np.zeros((0, length))


def _flows(capacities: Sequence[np.ndarray], start: int) -> np.ndarray:
    """Return the maximum flow from one token above the last layer to each token below the first: push-relabel.

    `capacities` are those of the layers from the first up, each ``T T`` from the layer's output to its input.
    """
    length = len(capacities[0])
    if len(capacities) == 1:
        return np.array(capacities[0][start])
    # There are L - 1 levels of nodes between the layers. Axes: sink (the input token), level, tokens.
    levels = len(capacities) - 1
    down = [np.broadcast_to(c, (length, length, length)).copy() for c in capacities[1:-1]]  # residual, level f + 1 to f
    up = [np.zeros_like(residual) for residual in down]  # residual, level f to f + 1: [.., f + 1, f]
    to_sink = capacities[0].T.copy()  # sink, tokens of the lowest level
    excess = np.zeros((length, levels, length))
    excess[:, -1] = capacities[-1][start]
    flows = np.zeros(length)
    while True:
        heights = _heights(down, up, to_sink, levels)
        active = (excess > _EPS) & np.isfinite(heights)
        if not active.any():
            return flows
        pushed = np.where(active, excess, 0)
        left = pushed.copy()
        # to the sink, where its height is 1
        step = np.where(heights[:, 0] == 1, np.minimum(left[:, 0], to_sink), 0)
        to_sink -= step
        left[:, 0] -= step
        flows += step.sum(-1)
        gained = np.zeros_like(excess)
        for f in range(levels - 1):
            above, below = heights[:, f + 1, :, None], heights[:, f, None, :]
            step = _pushed(left[:, f + 1], np.where(above == below + 1, down[f], 0))
            back = _pushed(left[:, f], np.where(below == above + 1, up[f], 0).swapaxes(-1, -2)).swapaxes(-1, -2)
            down[f] += back - step
            up[f] += step - back
            left[:, f + 1] -= step.sum(-1)
            left[:, f] -= back.sum(-2)
            gained[:, f] += step.sum(-2)
            gained[:, f + 1] += back.sum(-1)
        excess += gained - (pushed - left)


def _pushed(excess: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """Return how an excess ``... T`` fills residual capacities ``... T T``, one after the other until it is used up."""
    before = np.cumsum(residual, axis=-1) - residual
    return np.asarray(np.clip(excess[..., None] - before, 0, residual))


def _heights(down: list[np.ndarray], up: list[np.ndarray], to_sink: np.ndarray, levels: int) -> np.ndarray:
    """Return the distance of each node to the sink in edges with residual capacity; infinity if it is unreachable."""
    heights = np.full((len(to_sink), levels, to_sink.shape[-1]), np.inf)
    heights[:, 0][to_sink > _EPS] = 1
    while True:
        before = heights.copy()
        for f in range(levels - 1):
            paths = np.where(down[f] > _EPS, heights[:, f, None, :], np.inf)
            heights[:, f + 1] = np.minimum(heights[:, f + 1], paths.min(-1) + 1)
        for f in reversed(range(levels - 1)):
            paths = np.where(up[f] > _EPS, heights[:, f + 1, :, None], np.inf)
            heights[:, f] = np.minimum(heights[:, f], paths.min(-2) + 1)
        if np.array_equal(heights, before):
            return heights
