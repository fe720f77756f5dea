"""Removal of the spaces that a tokenizer of words puts before punctuation, as ``clean_up_tokenization_spaces`` asks."""

from __future__ import annotations

import re

_REPLACED = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" 's", "'s"),
    (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip
# What may be the beginning of one of these, or of several into which one turns another: " n ' t".
_OPEN = re.compile(r" [ .?!,'nmstver]*$")


def clean_up(text: str) -> str:
    """Return a text without spaces before punctuation and English contractions, as transformers returns it."""
    for spaced, joined in _REPLACED:
        text = text.replace(spaced, joined)
    return text


class StreamingCleanUp:
    """Applies `clean_up` to a text that comes in pieces; a space is held back until it is known whether it stays."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, piece: str) -> str:
        """Return what is certain of the text after another piece."""
        text = self._held + piece
        match = _OPEN.search(text)
        end = len(text) if match is None else match.start()
        self._held = text[end:]
        return clean_up(text[:end])

    def flush(self) -> str:
        """Return the rest."""
        text, self._held = self._held, ""
        return clean_up(text)
