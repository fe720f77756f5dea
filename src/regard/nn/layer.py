"""The base of all layers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

REQUIRED: Any = None
"""The default of a required field: `__post_init__` then raises a RegardError that says how to make the layer."""


class Layer:
    """A frozen dataclass of arrays and other layers, whose repr shows shapes instead of numbers."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: a copy has other arrays, so it makes its own packed weights."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def __repr__(self) -> str:
        shown = (f"{f.name}={_short(getattr(self, f.name))}" for f in fields(self) if f.repr)  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(shown)})"


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{' '.join(map(str, value.shape))}]"
    if isinstance(value, tuple) and len(value) > 1 and isinstance(value[0], Layer):
        return f"{len(value)} × {value[0]!r}"
    return repr(value)
