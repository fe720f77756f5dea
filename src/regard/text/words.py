"""What may be called a text and where its words are. Knows no vocabulary."""

from __future__ import annotations

import re
from collections.abc import Iterable

from regard._utils.errors import RegardError


def check_text(text: str) -> str:
    """Return `text` if it is a string that can be written as UTF-8; raise `RegardError` otherwise."""
    if not isinstance(text, str):
        raise RegardError(f"a text must be a str, got {type(text).__name__}; give one text at a time")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RegardError(
            f"the text has a lone surrogate (U+{ord(text[error.start]):04X}) at character {error.start}, which is "
            "no character; replace it, for example with text.encode('utf-8', 'replace').decode()"
        ) from None
    return text


def check_texts(texts: str | Iterable[str]) -> list[str]:
    """Return one text or several as a list; raise `RegardError` for what is neither."""
    if not isinstance(texts, str | Iterable):
        raise RegardError(f"expected a text or a sequence of texts, got {type(texts).__name__}")
    return [check_text(text) for text in ([texts] if isinstance(texts, str) else texts)]


def check_words(words: Iterable[str]) -> tuple[str, ...]:
    """Return `words` as a tuple; raise `RegardError` for a text in their place or for an entry that is no str."""
    if isinstance(words, str):
        raise RegardError(f"expected a sequence of words, got one str {words[:40]!r}; split it first")
    words = tuple(words)
    if strangers := [word for word in words if not isinstance(word, str)]:
        raise RegardError(f"a word must be a str, got {', '.join(map(repr, strangers))}")
    return words


def join_names(words: Iterable[str], most: int = 10) -> str:
    """Return different words as an enumeration: the first few, and how many there are where there are more."""
    different = list(dict.fromkeys(words))
    shown = ", ".join(different[:most])
    return shown if len(different) <= most else f"{shown} and {len(different) - most} more"


def split_words(text: str, *, lowercase: bool) -> list[tuple[str, tuple[int, int]]]:
    """Split at whitespace as ``str.split`` does; return each word with its span of characters in `text`.

    Lower-casing comes after the split, so the spans hold for `text` even where it changes the length of a
    word (``"İ"`` becomes two characters).
    """
    return [
        (match.group().lower() if lowercase else match.group(), match.span())
        for match in re.finditer(r"\S+", check_text(text))
    ]
