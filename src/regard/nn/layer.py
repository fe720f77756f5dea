"""What all layers share: how they are shown, and what stands for a part that is missing."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

NOT_GIVEN: Any = None
"""The default of a part that every layer of its kind needs: `__post_init__` says then how such a layer is made."""


class Layer:
    """A frozen dataclass of arrays and other layers that is shown by its shapes instead of its numbers."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: what else a layer keeps is found out anew by its copies, whose arrays are others."""
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
