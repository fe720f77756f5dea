"""Pooling: from the vectors of tokens to one vector of a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError


def _weighted_mean(hidden: np.ndarray, first: int) -> Any:
    weights = np.arange(first + 1, len(hidden) + 1, dtype=hidden.dtype)
    return weights @ hidden[first:] / weights.sum()


MODES: Mapping[str, Callable[[np.ndarray, int], Any]] = MappingProxyType(
    {
        "cls": lambda hidden, first: hidden[first],
        "max": lambda hidden, first: hidden[first:].max(0),
        "mean": lambda hidden, first: hidden[first:].mean(0),
        "mean_sqrt_len": lambda hidden, first: hidden[first:].sum(0) / (len(hidden) - first) ** 0.5,
        "weightedmean": _weighted_mean,
        "lasttoken": lambda hidden, _: hidden[-1],
    }
)
"""Functions from ``T E`` to ``E`` of the tokens from `first` on, by their names in sentence-transformers.
``mean_sqrt_len`` divides the sum by the root of the length; ``weightedmean``
gives token i the weight i + 1."""

DENSE_ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {"Identity": lambda x: x, "Tanh": np.tanh, "ReLU": F.relu, "GELU": F.gelu, "SiLU": F.silu}
)
"""By the names of their classes in PyTorch."""


class DenseLayer:
    """A linear map of the pooled vector: the module of this name of sentence-transformers.

    Its arrays are not parameters of the model, which is trained without it.

    Parameters
    ----------
    weight : array, ``E F``
    bias : array, ``F``, optional
    activation : str
        A name in `DENSE_ACTIVATIONS`.
    """

    def __init__(self, weight: np.ndarray, bias: np.ndarray | None = None, activation: str = "Identity") -> None:
        self.weight, self.bias, self.activation = weight, bias, activation

    def __call__(self, vector: Any) -> Any:
        """Return ``F`` features for ``E``; an error for another number."""
        if vector.shape[-1] != len(self.weight):
            raise RegardError(
                f"the pooled vector has {vector.shape[-1]} features, and a Dense layer of the sentence model takes "
                f"{len(self.weight)}: its pooling, or the layer, is that of another model"
            )
        product = vector @ self.weight
        return DENSE_ACTIVATIONS[self.activation](product if self.bias is None else product + self.bias)


@dataclass(frozen=True)
class Pooling:
    """How a sentence model makes one vector of those of its tokens.

    Parameters
    ----------
    modes : tuple of str
        Names in `MODES`; the results of several are concatenated in this order.
    normalize : bool
        Whether vectors are scaled to length 1, at the end.
    dense : tuple of DenseLayer
        Linear maps that are applied to the pooled vector, one after the other.
    include_prompt : bool
        Whether the tokens of a prompt are pooled with the others.
    truncate_dim : int, optional
        How many features are kept, the first.
    """

    modes: tuple[str, ...]
    normalize: bool = True
    dense: tuple[DenseLayer, ...] = ()
    include_prompt: bool = True
    truncate_dim: int | None = None

    def __post_init__(self) -> None:
        unknown = [mode for mode in self.modes if mode not in MODES]
        if unknown or not self.modes:
            raise RegardError(f"pooling must be one or more of {', '.join(MODES)}, got {', '.join(unknown) or 'none'}")

    def __call__(self, hidden: np.ndarray, first: int = 0) -> np.ndarray:
        """Return the vector of a text from ``T E`` without padding, of the tokens from `first` on.

        It has ``E`` features for each mode, or those of the last linear map, of which `truncate_dim` are kept.
        """
        vector = np.concatenate([MODES[mode](hidden, first) for mode in self.modes])
        for dense in self.dense:
            vector = dense(vector)
        if self.normalize and (length := np.linalg.norm(vector)):
            vector = vector / length
        return vector[: self.truncate_dim]
