"""Attention relevance: weights times their gradients, carried from layer to layer (Chefer, Gur and Wolf 2021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from regard.models.encoder_decoder import EncoderDecoder
from regard.text.encoding import Encoding


def relevance_of_run(model: Any, encoding: Encoding, compute: Callable[[Any], Any]) -> tuple[float, np.ndarray]:
    """Return a number computed from the output, and the relevance of each token of the text for it.

    Ā is the mean over heads of (A ⊙ ∇A)⁺, the weights times their gradients where that is positive. R begins as the
    identity; each layer adds Ā R to it. For an encoder-decoder this is the relevance in its encoder, then carried
    through cross-attention to each token of the target: R_qi += R̄_qqᵀ Ā R̄_ii, where R̄ is R with the rows of R − I
    scaled to a sum of 1.

    Returns
    -------
    float, array of float64, ``T S``
        For a target of an encoder-decoder on the text, otherwise of the text on itself.
    """
    run = model.gradients([encoding], compute, at="*.weights")
    products = ((name, run.values[name][0].astype(np.float64) * run.gradients[name][0]) for name in run.values.names())
    weights = {name: np.maximum(product, 0).mean(0) for name, product in products}  # Ā of each layer
    if not isinstance(model, EncoderDecoder):
        return run.value, _rolled(list(weights.values()))
    memory = _rolled([each for name, each in weights.items() if name.startswith("encoder.")])
    decoder = {name: each for name, each in weights.items() if name.startswith("decoder.")}
    target = np.eye(next(iter(decoder.values())).shape[0])
    cross = np.zeros((len(target), len(memory)))
    for name, each in decoder.items():
        if "cross_attn" in name:
            cross = cross + _normalized(target).T @ each @ _normalized(memory)
        else:
            target, cross = target + each @ target, cross + each @ cross
    return run.value, cross


def _rolled(weights: Sequence[np.ndarray]) -> np.ndarray:
    """Return R after layers, from their Ā."""
    relevance: np.ndarray = np.eye(weights[0].shape[-1])
    for each in weights:
        relevance = relevance + each @ relevance
    return relevance


def _normalized(relevance: np.ndarray) -> np.ndarray:
    """Return R̄: the identity, and R − I with rows of sum 1 where they are not 0."""
    rest = relevance - np.eye(len(relevance))
    total = rest.sum(-1, keepdims=True)
    return np.asarray(np.eye(len(rest)) + rest / np.where(total > 0, total, 1))
