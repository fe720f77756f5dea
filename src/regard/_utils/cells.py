"""The columns that a text takes in a terminal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from unicodedata import category, east_asian_width


def _cell_len(text: str) -> int:
    """Return the number of columns: two for a wide character of East Asia, none for a mark.

    rich counts some four hundred characters otherwise: vowels of Hangul alone, and signs that it takes for emoji.
    """
    zero = ("Mn", "Me", "Mc", "Cf", "Cc", "Zl", "Zp")
    return sum(0 if category(sign) in zero else 1 + (east_asian_width(sign) in "WF") for sign in text)


cell_len: Callable[[str], int] = _cell_len
"""Returns the number of columns that a text takes in a terminal, as rich has it where it is installed."""

with suppress(ModuleNotFoundError):
    from rich import cells

    cell_len = cells.cell_len
