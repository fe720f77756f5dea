"""Tokens as they are read, in place of how a vocabulary spells them."""

from __future__ import annotations

import unicodedata
from collections import Counter
from itertools import chain, pairwise

from regard.text.combining_marks import is_mark
from regard.text.encoding import Encoding
from regard.text.token_bytes import END_OF_WORD, SPACE, is_byte, piece_bytes, token_bytes

_MAX_MARKS = 30  # after a letter: as many as normalised text has in Unicode's stream-safe format (UAX #15)


def token_labels(encoding: Encoding) -> tuple[str, ...]:
    r"""Return a label for each token: its vocabulary spelling, decoded where that has signs of its own.

    Byte-level vocabularies (GPT-2, Llama 3, SmolLM2) spell `` café`` as ``ĠcafÃ©``, that of CLIP as ``cafÃ©</w>``, and
    SentencePiece (Llama 2, Gemma, T5) as ``▁café``. The bytes of an incomplete character are shown as ``\xf0``.
    """
    text, parts = encoding.text, _parts_of_characters(encoding)
    return tuple(
        token if special else _decode(token, text, start, end, is_part=number in parts)
        for number, (token, special, (start, end)) in enumerate(
            zip(encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True)
        )
    )


def numbered_labels(encoding: Encoding) -> tuple[str, ...]:
    """Return a label for each token; those that a text has several times, in any case, are numbered: ``John:2``."""
    labels = token_labels(encoding)
    keys = [label.strip().casefold() for label in labels]
    total, seen = Counter(keys), Counter[str]()
    numbered = []
    for label, key in zip(labels, keys, strict=True):
        seen[key] += 1
        numbered.append(f"{label}:{seen[key]}" if total[key] > 1 else label)
    return tuple(numbered)


def _parts_of_characters(encoding: Encoding) -> set[int]:
    """Return the tokens that share a character with a token beside them, where both may spell bytes."""
    spans = [
        span if not special and token_bytes(token.removesuffix(END_OF_WORD)) else (0, 0)
        for token, special, span in zip(encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True)
    ]
    pairs = enumerate(pairwise(spans))
    return {at for i, ((start, end), (begin, stop)) in pairs if max(start, begin) < min(end, stop) for at in (i, i + 1)}


def _decode(token: str, text: str, start: int, end: int, *, is_part: bool) -> str:
    spanned = text[start:end]
    if token != END_OF_WORD and not spanned.endswith(END_OF_WORD):
        token = token.removesuffix(END_OF_WORD)
    if token.lower() == spanned.lower() and not (is_part and not token.isascii()):
        return token
    if SPACE in token and SPACE not in spanned:
        return token.replace(SPACE, " ").strip(" ") or " "
    spelled = piece_bytes(token) if is_byte(token) else token_bytes(token)
    if spelled is None or not _is_in(spelled.strip(), text, start, end):
        return token
    # The leading space belongs to the vocabulary's spelling, not to the word.
    return spelled.decode("utf-8", "backslashreplace").strip(" ") or " "


def _with_marks(text: str, start: int, end: int) -> str:
    """Return a part of a text with the letters and marks that may be one character of it when it is normalised."""
    least, most = max(0, start - _MAX_MARKS), min(len(text), end + _MAX_MARKS)
    while least < start < len(text) and is_mark(text[start]):
        start -= 1
    while end < most and is_mark(text[end]):
        end += 1
    return text[start:end]


def _is_in(spelled: bytes, text: str, start: int, end: int) -> bool:
    """Tell whether these bytes are in a part of a text, as it is or as a tokenizer may normalise it."""
    if spelled in text[start:end].encode("utf-8", "surrogatepass"):
        return True
    wide = _with_marks(text, start, end)
    if "\ufffd" in wide:  # bytes that belong to no character
        return True
    normalized = (unicodedata.normalize(form, wide) for form in ("NFC", "NFD", "NFKC", "NFKD"))  # few labels need one
    forms = (form for x in chain([wide], normalized) for form in (x, x.lower()))
    return any(spelled in form.encode("utf-8", "surrogatepass") for form in forms)
