"""Validation of texts and words, and splitting at whitespace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set

from regard._utils.errors import RegardError


def check_text(text: str) -> str:
    """Return `text`; raise `RegardError` unless it is a string that UTF-8 can encode."""
    if not isinstance(text, str):
        raise RegardError(f"a text must be a str, got {type(text).__name__}; give one text at a time")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RegardError(
            f"the text has a lone surrogate (U+{ord(text[error.start]):04X}) at character {error.start}, which "
            "UTF-8 cannot encode; replace it, for example with text.encode('utf-8', 'replace').decode()"
        ) from None
    return text


def check_texts(texts: str | Iterable[str]) -> list[str]:
    """Return one text or several as a list; raise `RegardError` for another type."""
    if not isinstance(texts, str | Iterable):
        raise RegardError(f"expected a text or a sequence of texts, got {type(texts).__name__}")
    if isinstance(texts, Mapping):
        raise RegardError("a mapping is not a text; give a list of texts")
    check_no_set_or_table(texts)
    return [check_text(text) for text in ([texts] if isinstance(texts, str) else texts)]


def check_no_set_or_table(texts: object) -> None:
    """Raise `RegardError` for a set, and for a table, such as a DataFrame, which gives the names of its columns."""
    if isinstance(texts, Set):
        raise RegardError("a set has no order; give a list of texts")
    if hasattr(texts, "columns"):
        raise RegardError("a table is not a text; give its column of texts, table[NAME]")


def check_words(words: Iterable[str]) -> tuple[str, ...]:
    """Return `words` as a tuple; raise `RegardError` for a single str or an entry of another type."""
    if isinstance(words, str):
        raise RegardError(f"expected a sequence of words, got one str {words[:40]!r}; split it first")
    words = tuple(words)
    if invalid := [word for word in words if not isinstance(word, str)]:
        raise RegardError(f"a word must be a str, got {', '.join(map(repr, invalid))}")
    return words


def join_names(names: Iterable[str], most: int = 10) -> str:
    """Return the distinct names joined by commas: the first `most`, and the number of the others."""
    distinct = list(dict.fromkeys(names))
    shown = ", ".join(distinct[:most])
    return shown if len(distinct) <= most else f"{shown} and {len(distinct) - most} more"


def split_words(text: str, *, lowercase: bool) -> list[tuple[str, tuple[int, int]]]:
    """Split at whitespace as ``str.split`` does; return each word with its offsets in `text`.

    Lower-casing comes after the split, so the offsets refer to `text` even if it changes the length of a word (``"İ"``
    becomes two characters).
    """
    return [
        (match.group().lower() if lowercase else match.group(), match.span())
        for match in re.finditer(r"\S+", check_text(text))
    ]


def find_tokens(
    text: str, tokens: Sequence[str], special_tokens_mask: Sequence[int], added: Set[str]
) -> list[tuple[int, int]]:
    """Return where tokens start and end in a text that spells them in this order, with other characters among them.

    Those of `added` have no other character within. Special tokens around the text are at ``(0, 0)``.
    """
    offsets, end = [], 0
    for token, special in zip(tokens, special_tokens_mask, strict=True):
        if special:
            offsets.append((0, 0))
            continue
        start = -1
        for part in [token] if token in added else token:
            at = text.index(part, end)
            start, end = (at if start < 0 else start), at + len(part)
        offsets.append((start, end))
    return offsets
