"""What a map may show beside the weights of a head: where vectors come from, and what is handed on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from regard.metrics.layer_maps import CancelCheck, LayerMap
from regard.metrics.rollout import residual_attention_blocks
from regard.metrics.value_norms import value_lengths
from regard.nn import parameters
from regard.trace import Trace

LONGEST = 2048
"""Of longer texts no map is held whole: they are looked at raw, and measured from some of their rows."""

WAYS = (
    {
        "key": "raw",
        "title": "Weights",
        "says": "How the token of a row shares out its attention among the columns: each row sums to 1, or to what a "
        "sink of the model's own leaves of it.",
        "not": "A weight does not say how much is handed over: a token that gets much may have little to give.",
        "source": "Vaswani et al. 2017, arXiv:1706.03762",
    },
    {
        "key": "rollout",
        "title": "Rollout",
        "says": "How much of a token's vector after this layer comes from each token of the text, if every layer only "
        "mixed vectors: the mean of its heads and what stays, in equal parts.",
        "not": "It knows no values, no feed-forward layers and no signs, and is the same for all heads of a layer.",
        "source": "Abnar and Zuidema 2020, arXiv:2005.00928",
    },
    {
        "key": "norms",
        "title": "Weights × values",
        "says": "How long the vector is that a column hands to a row: ‖weight · v · W_O‖.",
        "not": "Long vectors of several heads may cancel, and a row does not sum to 1.",
        "source": "Kobayashi et al. 2020, arXiv:2004.10102",
    },
)


def rollouts(layers: Sequence[LayerMap], check: CancelCheck, off: Sequence[tuple[int, int]] = ()) -> np.ndarray:
    """Return rollout up to each layer, ``L T T``: Â of that layer · … · Â of the first, with Â = (mean + I) / 2.

    Heads that are `off`, (layer, head), mix nothing in.
    """
    reached = np.eye(layers[0].length)
    found = np.empty((len(layers), *reached.shape), np.float32)
    for number, layer in enumerate(layers):
        check()
        its = [head for at, head in off if at == number]
        reached = np.concatenate([mixed for _, mixed in residual_attention_blocks(layer, its)]) @ reached
        found[number] = reached
    return found


def hands_over(model: Any, trace: Trace, layers: Sequence[LayerMap]) -> bool:
    """Tell whether `norms` has an answer for every layer."""
    known = parameters(model)
    return all(layer.step("o_proj.weight") in known and layer.step("v") in trace for layer in layers)


def norms(model: Any, trace: Trace, layer: LayerMap, batch: int) -> np.ndarray:
    """Return ‖v W_O‖ of each token in each head, ``H S``."""
    return value_lengths(parameters(model)[layer.step("o_proj.weight")], trace, layer, batch)


def heads_of(layer: LayerMap, head: int | Literal["mean"]) -> Sequence[int]:
    """Return the heads that are seen: one, or for their mean all."""
    return range(len(layer.heads)) if head == "mean" else [head]


def heads_together(layer: LayerMap, head: int | Literal["mean"], lengths: np.ndarray, check: CancelCheck) -> np.ndarray:
    """Return a head's weights, each times the length of what its column hands on; "mean" is over heads."""
    heads = heads_of(layer, head)
    total = np.zeros((layer.length, layer.length))
    for each in heads:
        check()
        total += layer.tile(each, None, None) * lengths[each]
    return np.asarray(total / len(heads), dtype=np.float32)
