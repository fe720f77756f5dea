"""Short reprs: shapes in place of numbers, and the beginning of what is long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

_ITEMS, _CHARACTERS = 4, 60


def fields_repr(self: Any) -> str:
    """Return the repr of a dataclass; a class takes it as its `__repr__`."""
    names = [field.name for field in fields(self) if field.repr]
    return f"{type(self).__name__}({', '.join(f'{name}={short_repr(getattr(self, name))}' for name in names)})"


def short_repr(value: Any) -> str:
    """Return the repr of a value, short."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}[{' '.join(map(str, value.shape))}]" if value.shape else str(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= _CHARACTERS else f"{value[:_CHARACTERS]!r}…"
    if type(value) in (tuple, list):
        shown = [short_repr(item) for item in value[:_ITEMS]]
        shown += [f"… {len(value)} in all"] if len(value) > _ITEMS else []
        inside = ", ".join(shown) + ("," if type(value) is tuple and len(value) == 1 else "")
        return f"({inside})" if type(value) is tuple else f"[{inside}]"
    if isinstance(value, Mapping):
        pairs = [f"{name!r}: {short_repr(item)}" for name, item in list(value.items())[:_ITEMS]]
        pairs += [f"… {len(value)} in all"] if len(value) > _ITEMS else []
        return f"{{{', '.join(pairs)}}}"
    return repr(value)
