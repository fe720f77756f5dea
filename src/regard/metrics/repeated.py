"""Head metrics on repeated random tokens."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import truncate, whole_number
from regard.metrics.heads import HeadMetrics, head_metrics
from regard.trace import Trace


def repeated_tokens(model: Any, *, length: int = 64, seed: int = 0) -> HeadMetrics:
    """Return the metrics of every head on a sequence of random tokens, repeated once.

    Only the repetition can be predicted in such a text, so a head attends by position or by matching tokens. The
    induction heads of a language model show in ``induction``.

    Parameters
    ----------
    model
        A model of regard.
    length : int
        Tokens of the sequence, drawn from the vocabulary without the special ones.
    seed : int

    References
    ----------
    Olsson et al. (2022), "In-context learning and induction heads", https://arxiv.org/abs/2209.11895.
    """
    rng = np.random.default_rng(whole_number("seed", seed, 0))
    size = getattr(getattr(model, "config", None), "vocab_size", None)
    if size is None:
        raise RegardError(f"{getattr(model, 'name', None) or truncate(model)} has no vocabulary to draw from")
    half = whole_number("length", length, 1)
    added = model.tokenizer("")  # the special tokens that the tokenizer adds: one before a text, the others after it
    most = getattr(model, "max_length", sys.maxsize)
    if 2 * half + len(added) > most:
        raise RegardError(
            f"{model.name} accepts at most {most} tokens: repeat at most {(most - len(added)) // 2}, got {half}"
        )
    drawn: list[int] = []
    for _ in range(100):
        ids = rng.integers(0, size, 2 * half).tolist()
        drawn += [i for i in ids if not _is_special(model.tokenizer, i)]
        if len(drawn) >= half:
            break
    else:
        raise RegardError(f"almost every token in the vocabulary of {model.name} is a special one")
    trace = Trace(maps=True, only="*attn.weights")
    model(np.array([*added.ids[:1], *drawn[:half], *drawn[:half], *added.ids[1:]]), trace=trace)
    return head_metrics(trace)


def _is_special(tokenizer: Any, token: int) -> bool:
    try:
        return any(tokenizer.from_ids([token]).special_tokens_mask)
    except RegardError:  # a row of the embeddings without a token
        return True
