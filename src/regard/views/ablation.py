"""What an edit changes: token vectors, or the next-token probabilities of a language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.functional import softmax
from regard.views.next_tokens import token_name
from regard.views.similarity import cosine


@dataclass(frozen=True)
class ProbabilityChange:
    """The probability that one token comes next, in two runs.

    Parameters
    ----------
    token : str
        As spelled by the tokenizer; see `escape` before printing it.
    before, after : float
    """

    token: str
    before: float
    after: float


def token_similarities(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the cosine similarity of each token's vectors in two runs, ``T`` from ``T E`` and ``T E``."""
    if before.shape != after.shape or before.ndim != 2:
        raise RegardError(f"vectors of two runs must have one shape T E, got {before.shape} and {after.shape}")
    return np.array([cosine(one, other) for one, other in zip(before, after, strict=True)])


def changed_predictions(
    before: np.ndarray, after: np.ndarray, tokenizer: Any, *, top: int
) -> tuple[ProbabilityChange, ...]:
    """Return the tokens whose next-token probability changes most, largest change first.

    Parameters
    ----------
    before, after : array, ``V``
        The logits of a language model in two runs.
    tokenizer
        For the names of the tokens.
    top : int
        The number of tokens.
    """
    if before.shape != after.shape or before.ndim != 1:
        raise RegardError(f"logits of two runs must have one shape V, got {before.shape} and {after.shape}")
    before, after = softmax(before.astype(np.float64)), softmax(after.astype(np.float64))
    order = np.argsort(-np.abs(after - before), kind="stable")[:top]
    return tuple(ProbabilityChange(token_name(tokenizer, int(i)), float(before[i]), float(after[i])) for i in order)
