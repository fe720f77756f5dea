"""The base of all layers, and the arrays of a layer by their dotted names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from regard.nn.quantized import QuantizedWeight

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


def parameters(layer: Any) -> dict[str, np.ndarray | QuantizedWeight]:
    """Return every array of `layer` by its path: ``blocks.3.attn.q_proj.weight``.

    Parameters
    ----------
    layer
        A layer, a model made of layers, or a dict of arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from regard.nn import LayerNorm, parameters
    >>> list(parameters(LayerNorm.init(3)))
    ['weight', 'bias']
    """
    if isinstance(layer, dict):
        return {name: x for key, value in layer.items() for name, x in _walk(value, key)}
    return dict(_walk(layer, ""))


def _walk(value: Any, name: str) -> Iterator[tuple[str, np.ndarray | QuantizedWeight]]:
    if isinstance(value, np.ndarray | QuantizedWeight):
        yield name, value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _walk(getattr(value, field.name), f"{name}.{field.name}" if name else field.name)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _walk(item, f"{name}.{index}")
