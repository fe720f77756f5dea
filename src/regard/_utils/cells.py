"""The columns that a text takes in a terminal."""

from __future__ import annotations

__all__ = ["cell_len"]

try:
    from rich.cells import cell_len
except ModuleNotFoundError:  # as rich counts them, but for a few signs
    from unicodedata import category, east_asian_width

    _ZERO = ("Mn", "Me", "Mc", "Cf", "Cc", "Zl", "Zp")

    def cell_len(text: str) -> int:
        """Return the number of columns: two for a wide character of East Asia, none for a mark."""
        return sum(0 if category(sign) in _ZERO else 1 + (east_asian_width(sign) in "WF") for sign in text)
