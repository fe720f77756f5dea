"""Attention through all layers at once: flow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard._utils.errors import RegardError
from regard.metrics.layer_maps import chosen_rows, layers_of
from regard.metrics.rollout import residual_attention_blocks
from regard.trace import Trace

LONGEST = 128
"""The most tokens of a text; the work for each row grows with the cube of their number."""

_LEAST = 1e-13  # of a capacity or an excess of 1: what is smaller is rounding


def flow(trace: Trace, *, rows: int | Sequence[int] | None = None, batch: int = 0) -> np.ndarray:
    """Return how much could flow from each token of the text to each token's last vector: a maximum flow.

    The layers are a network of pipes: from token i of one layer to token j of the layer below runs one as wide as Â_ij
    (see `rollout`). The flow from the last vector of i to the token j at the bottom is the most that the network
    carries between the two; the narrowest place on a way counts, not the product of all.

    Parameters
    ----------
    trace : Trace
        Of a run, with the weights of every layer, of a text of at most 128 tokens.
    rows : int or sequence of int, optional
        Only for these tokens.
    batch : int
        Which text of the batch.

    Returns
    -------
    array of float64, ``R T``
        At most 1 each; rows do not sum to 1, for pipes are shared.

    Raises
    ------
    RegardError
        The text is too long; the trace has no such weights, or no such text or token.

    References
    ----------
    Abnar and Zuidema (2020), "Quantifying attention flow in transformers", section 3,
    https://arxiv.org/abs/2005.00928. Goldberg and Tarjan (1988), "A new approach to the maximum-flow problem",
    https://doi.org/10.1145/48014.61051, whose pushes are made here for all tokens at the bottom together.
    """
    layers = layers_of(trace, batch)
    length = layers[0].length
    if length > LONGEST:
        raise RegardError(
            f"the text has {length} tokens, and flow takes at most {LONGEST}: its work grows with the fourth power; "
            f"rollout has no such limit"
        )
    pipes = [np.concatenate([mixed for _, mixed in residual_attention_blocks(layer)]) for layer in layers]
    index = chosen_rows(rows, length)
    return np.stack([_flows(pipes, i) for i in index]) if len(index) else np.zeros((0, length))


def _flows(pipes: Sequence[np.ndarray], start: int) -> np.ndarray:
    """Return the maximum flow from one token above all layers to each token below them.

    `pipes` are those of the layers from the first up, each ``T T`` from above to below.
    """
    length = len(pipes[0])
    if len(pipes) == 1:
        return np.array(pipes[0][start])
    # Between the layers stand L - 1 floors of tokens. Axes: the token at the bottom, floor, tokens.
    floors = len(pipes) - 1
    down = [np.broadcast_to(p, (length, length, length)).copy() for p in pipes[1:-1]]  # room from floor f + 1 to f
    up = [np.zeros_like(room) for room in down]  # what has come down and could go back, from f to f + 1: [.., f+1, f]
    to_end = pipes[0].T.copy()  # bottom, tokens of the lowest floor
    excess = np.zeros((length, floors, length))
    excess[:, -1] = pipes[-1][start]
    reached = np.zeros(length)
    while True:
        heights = _heights(down, up, to_end, floors)
        active = (excess > _LEAST) & np.isfinite(heights)
        if not active.any():
            return reached
        pushed = np.where(active, excess, 0)
        left = pushed.copy()
        # down to the end, where that is one step away
        step = np.where(heights[:, 0] == 1, np.minimum(left[:, 0], to_end), 0)
        to_end -= step
        left[:, 0] -= step
        reached += step.sum(-1)
        gained = np.zeros_like(excess)
        for f in range(floors - 1):
            above, below = heights[:, f + 1, :, None], heights[:, f, None, :]
            step = _shared(left[:, f + 1], np.where(above == below + 1, down[f], 0))
            back = _shared(left[:, f], np.where(below == above + 1, up[f], 0).swapaxes(-1, -2)).swapaxes(-1, -2)
            down[f] += back - step
            up[f] += step - back
            left[:, f + 1] -= step.sum(-1)
            left[:, f] -= back.sum(-2)
            gained[:, f] += step.sum(-2)
            gained[:, f + 1] += back.sum(-1)
        excess += gained - (pushed - left)


def _shared(amount: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Return how an amount ``... T`` goes into pipes ``... T T``, one after the other until it is used up."""
    filled = np.cumsum(room, axis=-1)
    return np.asarray(np.clip(amount[..., None] - (filled - room), 0, room))


def _heights(down: list[np.ndarray], up: list[np.ndarray], to_end: np.ndarray, floors: int) -> np.ndarray:
    """Return how many pipes with room it takes from each token of each floor to the end; infinity where none lead."""
    heights = np.full((len(to_end), floors, to_end.shape[-1]), np.inf)
    heights[:, 0][to_end > _LEAST] = 1
    while True:
        before = heights.copy()
        for f in range(floors - 1):
            ways = np.where(down[f] > _LEAST, heights[:, f, None, :], np.inf)
            heights[:, f + 1] = np.minimum(heights[:, f + 1], ways.min(-1) + 1)
        for f in reversed(range(floors - 1)):
            ways = np.where(up[f] > _LEAST, heights[:, f + 1, :, None], np.inf)
            heights[:, f] = np.minimum(heights[:, f], ways.min(-2) + 1)
        if np.array_equal(heights, before):
            return heights
