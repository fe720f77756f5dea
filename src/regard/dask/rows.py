"""Rows of a corpus as tokens, each with the reason why it cannot be run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from regard._utils.errors import RegardError
from regard.models.base import TextModel
from regard.models.sentence import SentenceReader
from regard.text.encoding import Encoding

Reader: TypeAlias = TextModel | SentenceReader
"""What makes tokens of texts, and says how many of them a text may have."""

_CHARACTERS = 64  # of a token, at most, in a text of words


def encode_row(reader: Reader, value: Any, *, truncate: bool) -> Encoding | str:
    """Return the value of a row as tokens, or in words why it cannot be run."""
    if _is_null(value):
        return "null"
    if isinstance(value, bytes):
        return "not UTF-8, not JSON, or a key twice"
    if not isinstance(value, str):
        return f"no text but {type(value).__name__}"
    if not value.strip():
        return "empty"
    try:
        encoding, is_whole = _encode(reader, value)
    except RegardError as error:  # a lone surrogate
        return str(error)
    if not len(encoding):
        return "no tokens"
    if len(encoding) <= reader.max_length:
        return encoding
    if truncate:
        return encoding.truncated(reader.max_length)
    more = "" if is_whole else "more than "
    return f"{more}{len(encoding):,} tokens, but {reader.name} accepts at most {reader.max_length:,}"


def _encode(reader: Reader, text: str) -> tuple[Encoding, bool]:
    """Return a text as tokens, and True; or the beginning of one that is much too long, and False.

    A text of megabytes would take gigabytes as tokens. Its beginning has at least twice the tokens that are used, and
    ends at a space where it has one, so that those tokens are the ones of the whole text.
    """
    most = _CHARACTERS * reader.max_length
    if len(text) > 2 * most:
        beginning = text[:most]
        encoding = reader.tokenizer(beginning[: beginning.rfind(" ")] if " " in beginning else beginning)
        if len(encoding) > 2 * reader.max_length:
            return encoding, False
    return reader.tokenizer(text), True


def encode_rows(
    reader: Reader, values: Sequence[Any], *, truncate: bool
) -> tuple[dict[int, Encoding], list[str | None]]:
    """Return the texts as tokens, by the index of the row, and the error of each row, None where there is none."""
    encoded = [encode_row(reader, value, truncate=truncate) for value in values]
    encodings = {i: each for i, each in enumerate(encoded) if isinstance(each, Encoding)}
    return encodings, [each if isinstance(each, str) else None for each in encoded]


def _is_null(value: Any) -> bool:
    """Tell whether a value is None, NaN or the missing value of pandas."""
    return (
        value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")
    )
