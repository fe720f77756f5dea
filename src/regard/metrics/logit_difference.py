"""The logit difference of two next tokens, over many texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.metrics.attribution_target import encoding_of, next_token_id, predicts_at_each_token
from regard.models.batch import OneText
from regard.text.encoding import Encoding
from regard.text.words import check_no_set_or_table
from regard.trace import Edit


def logit_difference(
    model: Any,
    texts: Iterable[OneText],
    answers: Iterable[tuple[str | int, str | int]],
    *,
    edit: Mapping[str, Edit] | None = None,
    batch_size: int = 32,
) -> np.ndarray:
    """Return the logit of one next token minus that of another, for each of many texts, ``N``.

    It is the log of how many times as likely the one is as the other.

    Parameters
    ----------
    model : Decoder
    texts : iterable of str, encodings or ids
    answers : iterable of (str or int, str or int)
        For each text two next tokens, usually the right one and a wrong one.
    edit : mapping of str to function, optional
        Edits of each run: what is left of the difference without some heads.
    batch_size : int
        How many texts run together; they have the same number of tokens.

    Raises
    ------
    RegardError
        The model is not a decoder, there are not as many answers as texts, or an answer is not one token.

    References
    ----------
    Wang et al. (2022), "Interpretability in the wild: a circuit for indirect object identification in GPT-2 small",
    https://arxiv.org/abs/2211.00593.

    Examples
    --------
    >>> import regard
    >>> logit_difference(regard.load("induction"), ["qzkfqz", "abcab"], [("k", "f"), ("c", "b")]).round(1)
    array([15.8, 11.5])
    """
    if not predicts_at_each_token(model):
        raise RegardError(f"{model.name} is not a decoder: it predicts no next token")
    batch_size = whole_number("batch_size", batch_size, 1)
    check_no_set_or_table(texts)
    if isinstance(texts, str | Encoding):
        raise RegardError("texts is an iterable of texts, got one")
    encodings, pairs = [encoding_of(model, text) for text in texts], list(answers)
    if len(encodings) != len(pairs) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise RegardError(f"give two answers for each text, got {len(encodings)} texts and {len(pairs)} answers")
    ids = np.array(
        [[next_token_id(model, e, token) for token in pair] for e, pair in zip(encodings, pairs, strict=True)]
    )
    differences = np.empty(len(encodings))
    order = sorted(range(len(encodings)), key=lambda i: len(encodings[i]))
    for _, same in groupby(order, key=lambda i: len(encodings[i])):
        rows = list(same)
        for first in range(0, len(rows), batch_size):
            batch = rows[first : first + batch_size]
            hidden = model([encodings[i] for i in batch], edit=edit).hidden[:, -1]
            logits = np.take_along_axis(model.head(hidden), ids[batch], -1).astype(np.float64)
            differences[batch] = logits[:, 0] - logits[:, 1]
    return differences
