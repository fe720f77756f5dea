"""ASCII for the signs that an encoding lacks: one character each, so that columns stay aligned."""

from __future__ import annotations

import codecs

ERRORS = "regard.signs"
"""The name of the handler, as `io.TextIOWrapper` takes it for ``errors``."""

_SIGNS = {
    "−": "-", "–": "-", "·": ".", "×": "x", "÷": "/", "…": "~", "→": ">", "←": "<", "⟨": "<", "⟩": ">", "‖": "|",
    "“": '"', "”": '"', "’": "'", "²": "2", "³": "3", "∞": "@", "␣": "_", "◌": "o",
    "░": ".", "▒": ":", "▓": "+", "█": "#",
    "─": "-", "│": "|", "┌": "+", "┐": "+", "└": "+", "┘": "+", "├": "+", "┤": "+", "┬": "+", "┴": "+", "┼": "+",
    "━": "-", "┃": "|", "╸": "-", "╺": "-",
}  # fmt: skip


def register() -> None:
    """Make the handler known: a sign becomes that of ASCII which is like it, any other character a question mark."""
    codecs.register_error(ERRORS, _replace)


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_SIGNS.get(letter, "?") for letter in text), error.end
