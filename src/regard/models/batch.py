"""Texts, encodings or ids as one padded batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard.text.encoding import Encoding

Text: TypeAlias = "str | Encoding | Sequence[str] | Sequence[Encoding] | Sequence[int] | np.ndarray"
"""One text or a batch of them, as strings, as encodings, or as ids (``T`` or ``B T``)."""


class Tokenizer(Protocol):
    """The part of a tokenizer that a model needs."""

    @property
    def pad_id(self) -> int | None:
        """The id that pads the shorter texts of a batch."""

    def __call__(self, text: str) -> Encoding:
        """Return `text` as tokens."""

    def from_ids(self, ids: Sequence[int]) -> Encoding:
        """Return the encoding that has these ids."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Texts as one array.

    Parameters
    ----------
    ids : integer array, ``B T``
    mask : boolean array, ``B 1 1 T``, or None
        True where there is text, False at padding; None when no text is padded.
    encodings : tuple of Encoding
    """

    ids: np.ndarray
    mask: np.ndarray | None
    encodings: tuple[Encoding, ...]


def make_batch(text: Text, tokenizer: Tokenizer, *, max_length: int, name: str) -> Batch:
    """Return `text` as a batch; shorter texts are padded on the right.

    Raises
    ------
    RegardError
        There is no token, the type is wrong, or a text has more than `max_length` tokens.
    """
    encodings = _encodings(text, tokenizer)
    lengths = [len(encoding) for encoding in encodings]
    if not lengths or not all(lengths):
        raise RegardError("the text is empty; give at least one token")
    longest = max(lengths)
    if longest > max_length:
        num_special = sum(encodings[lengths.index(longest)].special_tokens_mask)
        of_which = f" ({num_special} of them special tokens)" if num_special else ""
        raise RegardError(
            f"the text has {longest} tokens{of_which}, but {name} accepts at most {max_length}; "
            f"shorten it by {longest - max_length} or split it"
        )
    pad = tokenizer.pad_id or 0
    ids = np.array([(*e.ids, *[pad] * (longest - len(e))) for e in encodings], dtype=np.int64)  # B T
    mask = None
    if min(lengths) < longest:
        mask = (np.arange(longest) < np.array(lengths)[:, None])[:, None, None, :]  # B 1 1 T
    return Batch(ids, mask, encodings)


def _encodings(text: Text, tokenizer: Tokenizer) -> tuple[Encoding, ...]:
    if isinstance(text, str):
        return (tokenizer(text),)
    if isinstance(text, Encoding):
        return (text,)
    if isinstance(text, Iterable) and not isinstance(text, np.ndarray):
        encodings = [tokenizer(item) if isinstance(item, str) else item for item in text]
        if all(isinstance(encoding, Encoding) for encoding in encodings):
            return tuple(encodings)  # type: ignore[arg-type]
    try:
        ids = np.asarray(text)
    except ValueError as error:
        raise RegardError(f"a batch of ids must have rows of one length: {error}; give texts or encodings") from error
    if not np.issubdtype(ids.dtype, np.integer) or ids.ndim not in (1, 2):
        raise RegardError(
            f"a text must be a str, an Encoding or integer ids of shape T or B T, got {ids.dtype} of shape {ids.shape}"
        )
    return tuple(tokenizer.from_ids([int(i) for i in row]) for row in np.atleast_2d(ids))
