"""Encodings of ids without a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index

from regard._utils.errors import RegardError
from regard.text.encoding import Encoding


def check_ids(ids: Iterable[int], is_known: Callable[[int], bool], size: int) -> list[int]:
    """Return `ids` as plain integers; raise `RegardError` for a value of another type, or for unknown ids."""
    try:
        checked = [index(i) for i in ids]
    except TypeError as error:
        raise RegardError(f"ids must be a flat sequence of integers: {error}") from error
    if unknown := [i for i in dict.fromkeys(checked) if not is_known(i)]:
        raise RegardError(f"not among the {size} ids of the vocabulary: {', '.join(map(str, unknown))}")
    return checked


def encode_tokens(ids: Sequence[int], tokens: Sequence[str], special_tokens_mask: Sequence[bool]) -> Encoding:
    """Return an encoding whose text is the tokens joined by spaces; each token is a word, unless it is special."""
    offsets = []
    word_ids: list[int | None] = []
    words: list[str] = []
    end = -1
    for token, special in zip(tokens, special_tokens_mask, strict=True):
        if special:
            offsets.append((0, 0))
            word_ids.append(None)
        else:
            start, end = end + 1, end + 1 + len(token)
            offsets.append((start, end))
            word_ids.append(len(words))
            words.append(token)
    mask = tuple(special_tokens_mask)
    return Encoding(" ".join(words), tuple(ids), tuple(tokens), mask, tuple(word_ids), tuple(offsets))
