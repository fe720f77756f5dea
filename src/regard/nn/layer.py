"""The base of all layers, and the arrays of a layer by their dotted names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from regard.nn.quantized import QuantizedWeight

REQUIRED: Any = None
"""The default of a required field: `__post_init__` then raises a RegardError that says how to make the layer."""

_ARRAYS = (np.ndarray, QuantizedWeight)


class Layer:
    """A frozen dataclass of arrays and other layers, whose repr shows shapes instead of numbers."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: a copy has other arrays, so it makes its own packed weights."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def before_residual(self, part: str) -> tuple[Any, Any]:  # noqa: ARG002
        """Return what the output of a sublayer of a block, ``"attn"`` or ``"mlp"``, goes through before it is added.

        A norm or None, and then a factor: a number, or one for each feature, ``E``. A block that adds an output as it
        is has neither.
        """
        return None, 1.0

    def packed_together(self) -> tuple[Any, ...]:
        """Return its linear maps of the same x, whose weights `regard.nn.fast_paths` packs as one."""
        return ()

    def __repr__(self) -> str:
        shown = (f"{f.name}={_short(getattr(self, f.name))}" for f in fields(self) if f.repr)  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(shown)})"


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{' '.join(map(str, value.shape))}]"
    if isinstance(value, tuple) and len(value) > 1 and isinstance(value[0], Layer):
        return f"{len(value)} × {value[0]!r}"
    return repr(value)


def before_residual(model: Any, sublayer: str) -> tuple[Any, Any]:
    """Return `Layer.before_residual` of a sublayer by its path, ``blocks.3.attn``; of one in no block nothing."""
    *path, part = sublayer.split(".")
    if not path or not hasattr(model, path[0]):
        return None, 1.0
    for each in path:
        model = model[int(each)] if each.isdigit() else getattr(model, each)
    block: Layer = model
    return block.before_residual(part)


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
    return {name: value for name, value, _ in _leaves(layer, "") if isinstance(value, _ARRAYS)}


def settings(layer: Any) -> dict[str, Any]:
    """Return what the layers in `layer` have besides arrays, by its path: ``blocks.3.attn.num_heads``.

    Examples
    --------
    >>> from regard.nn import LayerNorm
    >>> settings(LayerNorm.init(3))
    {'eps': 1e-05}
    """
    return {
        name: value
        for name, value, owner in _leaves(layer, "")
        if isinstance(owner, Layer) and not isinstance(value, _ARRAYS)
    }


def _leaves(value: Any, name: str, owner: Any = None) -> Iterator[tuple[str, Any, Any]]:
    """Yield each value that is not made of others, with its path and the object that has it."""
    parts: Iterable[tuple[Any, Any]] | None = None
    if isinstance(value, dict) and not name:
        parts = value.items()
    elif is_dataclass(value):
        parts, owner = ((field.name, getattr(value, field.name)) for field in fields(value)), value
    elif isinstance(value, tuple):
        parts = enumerate(value)
    if parts is None:
        yield name, value, owner
        return
    for key, part in parts:
        yield from _leaves(part, f"{name}.{key}" if name else str(key), owner)
