"""What an edit changes: the vectors of tokens, or the tokens that a language model expects next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.functional import softmax
from regard.views.similarity import cosine


@dataclass(frozen=True)
class Change:
    """What became of one token.

    Parameters
    ----------
    token : str
        As the tokenizer spells it; not yet safe to print.
    before, after : float
        The probability that it comes next.
    """

    token: str
    before: float
    after: float


def changed_vectors(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the cosine of each token's vector in one run and in another, ``T``, for ``T E`` and ``T E``."""
    if before.shape != after.shape or before.ndim != 2:
        raise RegardError(f"vectors of two runs need one shape T E, got {before.shape} and {after.shape}")
    return np.array([cosine(one, other) for one, other in zip(before, after, strict=True)])


def changed_predictions(before: np.ndarray, after: np.ndarray, tokenizer: Any, *, top: int) -> tuple[Change, ...]:
    """Return the tokens whose probability of coming next changes most, the largest change first.

    Parameters
    ----------
    before, after : array, ``V``
        The logits of a language model in two runs.
    tokenizer
        Names the tokens.
    top : int
        How many.
    """
    if before.shape != after.shape or before.ndim != 1:
        raise RegardError(f"logits of two runs need one shape V, got {before.shape} and {after.shape}")
    one, other = _probabilities(before), _probabilities(after)
    order = np.argsort(-np.abs(other - one), kind="stable")[:top]
    return tuple(Change(_named(tokenizer, int(i)), float(one[i]), float(other[i])) for i in order)


def _probabilities(logits: np.ndarray) -> np.ndarray:
    probabilities: np.ndarray = softmax(logits.astype(np.float64))
    return probabilities


def _named(tokenizer: Any, token: int) -> str:
    try:
        spelled: str = tokenizer.decode([token], skip_special_tokens=False)
        return spelled or tokenizer.from_ids([token]).tokens[0]
    except RegardError:
        return f"⟨{token}⟩"  # a row of the embeddings that no token has
