"""Validation of texts and words, and splitting at whitespace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set

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
    if isinstance(texts, Mapping | Set):
        kind = "a mapping is not a text" if isinstance(texts, Mapping) else "a set has no order"
        raise RegardError(f"{kind}; give a list of texts")
    return [check_text(text) for text in ([texts] if isinstance(texts, str) else texts)]


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
