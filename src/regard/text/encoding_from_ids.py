"""Encodings of ids that come without a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index

from regard._utils.errors import RegardError
from regard.text.encoding import Encoding


def check_ids(ids: Iterable[int], is_known: Callable[[int], bool], size: int) -> list[int]:
    """Return `ids` as plain integers; raise `RegardError` for one that is none, or for those that are not known."""
    try:
        checked = [index(i) for i in ids]
    except TypeError as error:
        raise RegardError(f"ids must be a flat sequence of integers: {error}") from error
    if unknown := [i for i in dict.fromkeys(checked) if not is_known(i)]:
        raise RegardError(f"not among the {size} ids of the vocabulary: {', '.join(map(str, unknown))}")
    return checked


def encode_tokens(ids: Sequence[int], tokens: Sequence[str], special: Sequence[bool]) -> Encoding:
    """Return an encoding whose text is the tokens themselves, separated by spaces; each is a word of its own."""
    spans = []
    words: list[int | None] = []
    text: list[str] = []
    end = -1
    for token, is_special in zip(tokens, special, strict=True):
        if is_special:
            spans.append((0, 0))
            words.append(None)
        else:
            start, end = end + 1, end + 1 + len(token)
            spans.append((start, end))
            words.append(len(text))
            text.append(token)
    return Encoding(" ".join(text), tuple(ids), tuple(tokens), tuple(special), tuple(words), tuple(spans))
