"""The `tokenizers` library, or what stands in for it."""

from __future__ import annotations

from typing import Any


def library() -> Any:
    """Return the module `tokenizers`; where it is not installed, that part of it which is written in Python."""
    try:
        import tokenizers
    except ModuleNotFoundError:
        from regard.text import plain_tokenizers

        return plain_tokenizers
    return tokenizers
