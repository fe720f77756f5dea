"""Many texts to one vector each."""

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
    """Return one vector for each text, ``N E``; see `TextModel.embed`. `label` says what a text is called."""
    batch_size = whole_number("batch_size", batch_size, 1)
    pooling = model.pooling if pooling is None else pooling
    if pooling is None:
        raise RegardError(
            f"{model.name} does not say how the vectors of its tokens become one: it has no modules.json and no "
            f"1_Pooling; name it (pooling), one of {', '.join(MODES)}"
        )
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise RegardError("embed takes a sequence of texts, one str for each")
    encodings = [model.tokenizer(text) for text in texts]
    long = [i for i, encoding in enumerate(encodings) if len(encoding) > model.max_length]
    if long and not truncate:
        more = f", and {len(long) - 1} more" if len(long) > 1 else ""
        raise RegardError(
            f"{label(long[0])} has {len(encodings[long[0]])} tokens, more than the {model.max_length} that {model.name} "
            f"looks at at once{more}; shorten it, or let it be cut (truncate)"
        )
    if empty := [i for i, encoding in enumerate(encodings) if not len(encoding)]:
        raise RegardError(f"{label(empty[0])} has no tokens: leave it out")
    for i in long:
        encodings[i] = _cut(encodings[i], model.max_length)

    vectors: np.ndarray | None = None
    done = 0
    order = sorted(range(len(encodings)), key=lambda i: -len(encodings[i]))  # those of a length together: no padding
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        with np.errstate(all="ignore"):
            hidden = model([encodings[i] for i in chosen]).hidden
        if hidden.shape[:2] != (len(chosen), len(encodings[chosen[0]])):
            raise RegardError(f"{model.name} returns vectors of another text than it is given: it has none to pool")
        with np.errstate(all="ignore"):
            found = [pooling(row[: len(encodings[i])]) for row, i in zip(hidden, chosen, strict=True)]
        for i, vector in zip(chosen, found, strict=True):
            if not np.isfinite(vector).all():
                raise RegardError(f"the vector of {label(i)} leaves the range of {hidden.dtype}")
            if vectors is None:
                vectors = np.empty((len(texts), len(vector)), vector.dtype)
            vectors[i] = vector
        done += len(chosen)
        if progress is not None:
            progress(done, len(order))
    if vectors is None:
        raise RegardError("there is no text to embed: give at least one")
    return vectors


def _cut(encoding: Encoding, limit: int) -> Encoding:
    """Return the first tokens of a text and the special ones behind it, `limit` together."""
    behind = 0
    while behind < limit and encoding.special_tokens_mask[len(encoding) - 1 - behind]:
        behind += 1
    kept = [*range(limit - behind), *range(len(encoding) - behind, len(encoding))]
    return Encoding(
        encoding.text,
        *(
            tuple(getattr(encoding, name)[i] for i in kept)
            for name in ("ids", "tokens", "special_tokens_mask", "word_ids", "offsets")
        ),
    )
