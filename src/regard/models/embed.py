"""Sentence embeddings: one vector for each of many texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.models.pooling import MODES, Pooling
from regard.text.encoding import Encoding

if TYPE_CHECKING:
    from regard.models.base import TextModel


def embed(
    model: TextModel,
    texts: Sequence[str],
    *,
    batch_size: int,
    pooling: Pooling | None,
    truncate: bool,
    progress: Callable[[int, int], None] | None,
    label: Callable[[int], str],
) -> np.ndarray:
    """Return one vector for each text, ``N E``; see `TextModel.embed`."""
    batch_size = whole_number("batch_size", batch_size, 1)
    pooling = model.pooling if pooling is None else pooling
    if pooling is None:
        raise RegardError(
            f"{model.name} has no default pooling: no modules.json and no 1_Pooling; give pooling, one of "
            f"{', '.join(MODES)}"
        )
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise RegardError("embed takes a sequence of str")
    encodings = [model.tokenizer(text) for text in texts]
    too_long = [i for i, encoding in enumerate(encodings) if len(encoding) > model.max_length]
    if too_long and not truncate:
        others = f" (and {len(too_long) - 1} more too long)" if len(too_long) > 1 else ""
        raise RegardError(
            f"{label(too_long[0])} has {len(encodings[too_long[0]])} tokens, but {model.name} accepts at most "
            f"{model.max_length}{others}; shorten it or truncate"
        )
    if empty := [i for i, encoding in enumerate(encodings) if not len(encoding)]:
        raise RegardError(f"{label(empty[0])} has no tokens; leave it out")
    for i in too_long:
        encodings[i] = _truncated(encodings[i], model.max_length)

    vectors: np.ndarray | None = None
    done = 0
    order = sorted(range(len(encodings)), key=lambda i: -len(encodings[i]))  # similar lengths together: little padding
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
        with np.errstate(all="ignore"):
            hidden = model([encodings[i] for i in indices]).hidden
        if hidden.shape[:2] != (len(indices), len(encodings[indices[0]])):
            raise RegardError(f"{model.name} cannot embed: its contextual vectors are not those of the input text")
        with np.errstate(all="ignore"):
            pooled = [pooling(row[: len(encodings[i])]) for row, i in zip(hidden, indices, strict=True)]
        for i, vector in zip(indices, pooled, strict=True):
            if not np.isfinite(vector).all():
                raise RegardError(f"the vector of {label(i)} is not finite in {hidden.dtype}")
            if vectors is None:
                vectors = np.empty((len(texts), len(vector)), vector.dtype)
            vectors[i] = vector
        done += len(indices)
        if progress is not None:
            progress(done, len(order))
    if vectors is None:
        raise RegardError("there is no text to embed; give at least one")
    return vectors


def _truncated(encoding: Encoding, max_length: int) -> Encoding:
    """Return the first tokens of a text and its final special tokens, `max_length` together."""
    num_final = 0
    while num_final < max_length and encoding.special_tokens_mask[len(encoding) - 1 - num_final]:
        num_final += 1
    kept = [*range(max_length - num_final), *range(len(encoding) - num_final, len(encoding))]
    return encoding.select(kept)
