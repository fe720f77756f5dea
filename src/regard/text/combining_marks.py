"""Combining marks, and parts of one character, which belong to the word before them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_JOINER = "\u200d"  # of zero width: of emoji, and within words as the next one
_JOINERS = f"\u200c{_JOINER}"  # within words of Persian and of the scripts of India
_SKIN_TONES = range(0x1F3FB, 0x1F400)

_CHINESE = (  # of BERT's tokenizer: the blocks of CJK ideographs, without kana and hangul
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def is_mark(letter: str) -> bool:
    """Tell whether a character is a combining mark, a zero-width joiner or non-joiner, or the skin tone of an emoji."""
    return letter in _JOINERS or ord(letter) in _SKIN_TONES or unicodedata.category(letter)[0] == "M"


def is_chinese(letter: str) -> bool:
    """Tell whether a character is a Chinese one, which BERT's tokenizer takes as a word of its own."""
    return any(first <= ord(letter) <= last for first, last in _CHINESE)


def continues_by_mark(text: str, at: int, *, letters: bool = True) -> bool:
    """Tell whether `text[at]` continues the word before it because of a mark: is one, or is a letter after a letter's.

    So does an emoji that a joiner joins to another. A mark after white space continues no word, nor does a Chinese
    character or what follows one. `letters`: whether a letter may.
    """
    if not 0 < at < len(text):
        return False
    if is_mark(text[at]):
        return not text[at - 1].isspace()
    base = at - 1
    while base and is_mark(text[base]):
        base -= 1
    pair = text[base], text[at]
    if text[at - 1] == _JOINER and all(unicodedata.category(each)[0] == "S" for each in pair):
        return True
    return letters and base < at - 1 and all(map(str.isalpha, pair)) and not any(map(is_chinese, pair))


def join_at_marks(
    text: str, word_ids: Sequence[int | None], offsets: Sequence[tuple[int, int]], *, byte_level: bool
) -> tuple[int | None, ...]:
    r"""Return the words of tokens with those joined that a combining mark separates.

    A mark belongs to the word before it. A letter after it does too where the tokenizer is `byte_level`: the
    expressions of these take ``\p{L}+`` as a word, and so cut ``मैं`` before its vowel sign, and
    ``naïve`` twice if its accent is a character of its own. What follows in the same piece and is not a letter, as the
    comma after a decomposed ``café``, is a word of its own.
    """
    if text.isascii() or not any(map(is_mark, text)):
        return tuple(word_ids)
    starts: list[int | None] = [start if start < stop else None for start, stop in offsets]
    for i in reversed(range(len(starts) - 1)):  # a space that the text does not have begins where its word does
        if starts[i] is None and word_ids[i] == word_ids[i + 1]:
            starts[i] = starts[i + 1]
    joined: list[int | None] = []
    count, end, previous = 0, 0, None  # of words; where the token before ends; its word in `word_ids`
    in_marks = False  # whether the word began with a mark in `word_ids`, and nothing else has come yet
    for word, start, (_, stop) in zip(word_ids, starts, offsets, strict=True):
        if word is not None:
            is_first = word != previous
            leaves_marks = in_marks and start is not None and end <= start and not is_mark(text[start])
            if is_first or leaves_marks:
                at = -1 if previous is None or start is None else start
                joins = continues_by_mark(text, at, letters=byte_level)
                in_marks = joins and is_first and is_mark(text[at])
                count += not joins
        joined.append(None if word is None else count - 1)
        end, previous = max(end, stop), word
    return tuple(joined)


def join_within_characters(
    word_ids: Sequence[int | None], offsets: Sequence[tuple[int, int]]
) -> tuple[int | None, ...]:
    """Return the words of tokens with those joined that are parts of one character.

    Some characters become several words when a text is normalised: ``ﷺ`` those of a sentence, ``½`` three.
    """
    joined: list[int | None] = []
    removed, end, previous = 0, 0, None  # joined words; where the token before ends, and its word
    for word, (start, stop) in zip(word_ids, offsets, strict=True):
        removed += word is not None and previous is not None and word != previous and start < end
        joined.append(None if word is None else word - removed)
        end, previous = stop, word
    return tuple(joined)
