"""The display modes of a map: raw weights, rollout, and weights scaled by the norms of their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.explorer import answers
from regard.metrics.layer_maps import CancelCheck, LayerMap
from regard.metrics.rollout import residual_attention_blocks
from regard.metrics.value_norms import has_output_gate
from regard.nn import parameters
from regard.trace import Trace

MAX_WHOLE_TOKENS = 2048
"""For longer texts no map is held whole: only raw weights are shown, and metrics are sampled from some rows."""

DISPLAY_MODES: tuple[answers.Explanation, ...] = (
    {
        "key": "raw",
        "title": "Weights",
        "description": "The attention of the token of a row to each column. A row sums to 1, less the weight of the "
        "model's own sink if it has one.",
        "caveat": "A weight does not tell how much is passed on: a column with a large weight may have a short value.",
        "source": "Vaswani et al. 2017, arXiv:1706.03762",
    },
    {
        "key": "rollout",
        "title": "Rollout",
        "description": "The share of each input token in a token's vector after this layer, if every layer only mixed "
        "vectors: the mean of its heads and the residual, in equal parts.",
        "caveat": "Rollout ignores values, feed-forward layers and signs, and is the same for all heads of a layer.",
        "source": "Abnar and Zuidema 2020, arXiv:2005.00928",
    },
    {
        "key": "norms",
        "title": "Weights × values",
        "description": "The length of the vector that a column adds to a row: ‖weight · v · W_O‖.",
        "caveat": "Long vectors of several heads may cancel, and a row does not sum to 1.",
        "source": "Kobayashi et al. 2020, arXiv:2004.10102",
    },
)


def rollouts(layers: Sequence[LayerMap], check: CancelCheck, ablated: Sequence[tuple[int, int]] = ()) -> np.ndarray:
    """Return rollout up to each layer, ``L T T``: Â of that layer · … · Â of the first, with Â = (mean + I) / 2.

    Ablated heads, (layer, head), mix nothing in.
    """
    product = np.eye(layers[0].length)
    maps = np.empty((len(layers), *product.shape), np.float32)
    for number, layer in enumerate(layers):
        check()
        without = [head for at, head in ablated if at == number]
        product = np.concatenate([mixed for _, mixed in residual_attention_blocks(layer, without)]) @ product
        maps[number] = product
    return maps


def has_value_norms(model: Any, trace: Trace, layers: Sequence[LayerMap]) -> bool:
    """Tell whether ‖v W_O‖ is known for every layer."""
    weights = {} if model is None else parameters(model)
    return all(
        layer.step("o_proj.weight") in weights and layer.step("v") in trace and not has_output_gate(model, layer)
        for layer in layers
    )
