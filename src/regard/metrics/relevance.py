"""Attention relevance: weights times their gradients, carried from layer to layer (Chefer, Gur and Wolf 2021)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.models.encoder_decoder import EncoderDecoder
from regard.text.encoding import Encoding
from regard.trace import Trace


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
    gradient_run = model.gradients([encoding], compute, at="*.weights")
    if not isinstance(model, EncoderDecoder):
        return gradient_run.value, _rolled(gradient_run.values, gradient_run.gradients, gradient_run.values.names())
    names = gradient_run.values.names()
    memory = _rolled(
        gradient_run.values, gradient_run.gradients, [name for name in names if name.startswith("encoder.")]
    )
    length = gradient_run.values[next(name for name in names if name.startswith("decoder."))].shape[-2]
    target, cross = np.eye(length), np.zeros((length, len(memory)))
    for name in names:
        if not name.startswith("decoder."):
            continue
        weights = _positive_part(gradient_run.values, gradient_run.gradients, name)
        if "cross_attn" in name:
            cross = cross + _normalized(target).T @ weights @ _normalized(memory)
        else:
            target, cross = target + weights @ target, cross + weights @ cross
    return gradient_run.value, cross


def _rolled(values: Trace, gradients: Trace, names: Any) -> np.ndarray:
    """Return R after the layers whose weights have these names."""
    relevance: np.ndarray = np.eye(values[names[0]].shape[-1])
    for name in names:
        relevance = relevance + _positive_part(values, gradients, name) @ relevance
    return relevance


def _positive_part(values: Trace, gradients: Trace, name: str) -> np.ndarray:
    """Return Ā of a layer, ``T S``."""
    product = values[name][0].astype(np.float64) * gradients[name][0]
    return np.asarray(np.maximum(product, 0).mean(0))


def _normalized(relevance: np.ndarray) -> np.ndarray:
    """Return R̄: the identity, and R − I with rows of sum 1 where they are not 0."""
    rest = relevance - np.eye(len(relevance))
    total = rest.sum(-1, keepdims=True)
    return np.asarray(np.eye(len(rest)) + rest / np.where(total > 0, total, 1))
