"""The most likely next tokens of a language model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard._utils.errors import RegardError
from regard.functional import softmax


class TokenProbability(NamedTuple):
    """A token, as spelled by the tokenizer, and the probability that it comes next; see `escape` before printing."""

    id: int
    text: str
    probability: float


def likely_tokens(logits: np.ndarray, tokenizer: Any, *, top: int) -> tuple[TokenProbability, ...]:
    """Return the tokens that are most likely by logits, ``V``, the most likely first."""
    shares = softmax(np.asarray(logits, np.float64))
    order = np.argsort(-shares, kind="stable")[:top]
    return tuple(TokenProbability(int(i), token_name(tokenizer, int(i)), float(shares[i])) for i in order)


def token_name(tokenizer: Any, token: int) -> str:
    """Return a token as spelled by the tokenizer; ``⟨ID⟩`` for an embedding row without a token."""
    try:
        spelled: str = tokenizer.decode([token], skip_special_tokens=False)
        return spelled or tokenizer.from_ids([token]).tokens[0]
    except RegardError:
        return f"⟨{token}⟩"
