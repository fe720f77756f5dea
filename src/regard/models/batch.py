"""Texts, encodings or ids as one padded batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import truncate
from regard.models.tokenized_inputs import TokenizedInputs
from regard.text.encoding import Encoding
from regard.text.words import check_no_set_or_table
from regard.trace.text_layout import TextLayout

OneText: TypeAlias = "str | Encoding | Sequence[int] | np.ndarray"
"""One text, as a string, as an encoding, or as ids, ``T``."""

Text: TypeAlias = "OneText | Sequence[str | Encoding] | Sequence[Sequence[int]] | Mapping[str, Any]"
"""One text or a batch of them, as strings, as encodings, as ids (``T``, ``B T``, or a list for each text), or as the
mapping that a tokenizer of transformers returns, with ``input_ids`` and optionally ``attention_mask``."""


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
    """Texts as one array."""

    ids: np.ndarray  # B T
    mask: np.ndarray | None  # B 1 1 T, True where there is text, False at padding; None when no text is padded
    encodings: tuple[Encoding, ...]

    @property
    def layout(self) -> TextLayout:
        """Where the texts stand in it."""
        return TextLayout.from_shape(self.ids.shape, None if self.mask is None else self.mask[:, 0, 0])


def as_encoding(text: Any, tokenizer: Tokenizer) -> Encoding | None:
    """Return one text as tokens; None for what is not a text."""
    if isinstance(text, str):
        return tokenizer(text)
    if isinstance(text, list | tuple):
        is_ids = bool(text) and all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in text)
    else:
        is_ids = isinstance(text, np.ndarray) and text.ndim == 1 and text.dtype.kind in "iu"
    if is_ids:
        return tokenizer.from_ids([int(i) for i in text])
    return text if isinstance(text, Encoding) else None


def check_tokens(encodings: Sequence[Encoding], name: str) -> None:
    """Raise `RegardError` if there is no text, or one without tokens."""
    if not encodings or not all(map(len, encodings)):
        if lost := next((each.text for each in encodings if not len(each) and each.text.strip()), None):
            raise RegardError(f"nothing of the text {truncate(lost)} has a token in {name}: it knows other characters")
        raise RegardError("the text is empty; give at least one token")


def make_batch(text: Text, tokenizer: Tokenizer, *, max_length: int, name: str) -> Batch:
    """Return `text` as a batch; shorter texts are padded on the right.

    The ids of a mapping stay where they are. Padding before a text begins its encoding, as special tokens. An error if
    there is no token, if the type is wrong, or if a text has more than `max_length` tokens.
    """
    starts = None
    if isinstance(text, Mapping):
        inputs = TokenizedInputs.read(text)
        encodings, longest = _padded_encodings(inputs, tokenizer), max(map(len, inputs.rows), default=0)
        starts = np.array([[part.start] for part in inputs.texts])  # B 1
    else:
        encodings = _encodings(text, tokenizer)
        longest = max(map(len, encodings), default=0)
    lengths = [len(encoding) for encoding in encodings]
    check_tokens(encodings, name)
    if longest > max_length:
        encoding = encodings[lengths.index(max(lengths))]
        raise too_long(encoding, max_length, name, f"shorten it by {longest - max_length} or split it")
    pad = tokenizer.pad_id or 0
    ids = np.array([(*e.ids, *[pad] * (longest - len(e))) for e in encodings], dtype=np.int64)  # B T
    positions = np.arange(longest)
    mask = positions < np.array(lengths)[:, None]  # B T
    if starts is not None:
        mask &= positions >= starts
    return Batch(ids, None if mask.all() else mask[:, None, None, :], encodings)


def too_long(encoding: Encoding, max_length: int, name: str, how: str) -> RegardError:
    """Return the error that a text has more tokens than the model of a name accepts; `how` says what to do."""
    num_special = sum(encoding.special_tokens_mask)
    of_which = f" ({num_special} of them special tokens)" if num_special else ""
    return RegardError(f"the text has {len(encoding)} tokens{of_which}, but {name} accepts at most {max_length}; {how}")


def remove_padding(fields: Mapping[str, Any], tokenizer: Tokenizer, *, left: bool = False) -> list[Encoding]:
    """Return the texts of a mapping as encodings without padding.

    Raises
    ------
    RegardError
        There is padding before a text, where positions may begin with it in transformers, and not `left`.
    """
    inputs = TokenizedInputs.read(fields)
    if inputs.is_left_padded and not left:
        raise RegardError("padding on the left is for model(...) alone: here pad on the right, or give the texts")
    rows = zip(inputs.rows, inputs.texts, strict=True)
    return [tokenizer.from_ids(row[part].tolist()) for row, part in rows]


def _padded_encodings(inputs: TokenizedInputs, tokenizer: Tokenizer) -> tuple[Encoding, ...]:
    """Return each row up to the end of its text."""
    encodings = []
    for row, part in zip(inputs.rows, inputs.texts, strict=True):
        encoding, count = tokenizer.from_ids(row[part].tolist()), part.start
        if count:
            padding = tokenizer.from_ids(row[:count].tolist())
            encoding = encoding.prepend_special(padding.ids, padding.tokens)
        encodings.append(encoding)
    return tuple(encodings)


def _encodings(text: Text, tokenizer: Tokenizer) -> tuple[Encoding, ...]:
    check_no_set_or_table(text)
    if isinstance(text, str):
        return (tokenizer(text),)
    if isinstance(text, Encoding):
        return (text,)
    if isinstance(text, bytes | bytearray | memoryview):
        raise RegardError(f"a text is a str, got {type(text).__name__}: decode it first, text.decode()")
    if isinstance(text, Iterable) and not isinstance(text, np.ndarray):
        text = list(text)  # type: ignore[assignment]
        encodings = [encoding for item in text if (encoding := as_encoding(item, tokenizer)) is not None]
        if len(encodings) == len(text):
            return tuple(encodings)
    if text is None:
        raise RegardError("a text must be a str, an Encoding or integer ids, got None")
    try:
        ids = np.asarray(text)
    except ValueError as error:
        raise RegardError(f"a batch has a str, an Encoding or ids for each text, got others: {error}") from error
    if not ids.size:
        return ()
    if ids.dtype.kind in "UST":
        raise RegardError("a batch is a list of str, got a NumPy array of strings: array.tolist()")
    if not np.issubdtype(ids.dtype, np.integer) or ids.ndim not in (1, 2):
        raise RegardError(
            f"a text must be a str, an Encoding or integer ids of shape T or B T, got {ids.dtype} of shape {ids.shape}"
        )
    return tuple(tokenizer.from_ids([int(i) for i in row]) for row in np.atleast_2d(ids))
