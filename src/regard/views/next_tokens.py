"""The most likely next tokens of a language model."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.models.predictions import Prediction, likeliest


def likely_tokens(logits: np.ndarray, tokenizer: Any, *, top: int) -> tuple[Prediction, ...]:
    """Return the tokens that are most likely by logits, ``V``, the most likely first; see `escape` before printing."""
    return likeliest(logits, top, partial(token_name, tokenizer))


def token_name(tokenizer: Any, token: int) -> str:
    """Return a token as spelled by the tokenizer; ``⟨ID⟩`` for an embedding row without a token."""
    try:
        spelled: str = tokenizer.decode([token], skip_special_tokens=False)
        return spelled or tokenizer.from_ids([token]).tokens[0]
    except RegardError:
        return f"⟨{token}⟩"
