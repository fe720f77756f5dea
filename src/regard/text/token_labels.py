"""Tokens as they are read, in place of how a vocabulary spells them."""

from __future__ import annotations

from collections import Counter

from regard.text.encoding import Encoding
from regard.text.token_bytes import END_OF_WORD, token_bytes


def token_labels(encoding: Encoding) -> tuple[str, ...]:
    r"""Return a label for each token: its vocabulary spelling, decoded if it is byte-level.

    Byte-level vocabularies (GPT-2, Llama 3, SmolLM2) spell `` café`` as ``ĠcafÃ©``, and that of CLIP as ``cafÃ©</w>``.
    The bytes of an incomplete character are shown as ``\xf0``.
    """
    text = encoding.text
    return tuple(
        token if special else _decode(token, text[start:end])
        for token, special, (start, end) in zip(
            encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True
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


def _decode(token: str, spanned: str) -> str:
    if token != END_OF_WORD and not spanned.endswith(END_OF_WORD):
        token = token.removesuffix(END_OF_WORD)
    spelled = None if token.lower() == spanned.lower() else token_bytes(token)
    # Bytes that belong to no character are U+FFFD in a text.
    if spelled is None or (spelled.strip() not in spanned.encode("utf-8", "surrogatepass") and "\ufffd" not in spanned):
        return token
    # The leading space belongs to the vocabulary's spelling, not to the word.
    return spelled.decode("utf-8", "backslashreplace").strip(" ") or " "
