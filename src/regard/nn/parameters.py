"""The arrays of a layer by their dotted names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def parameters(layer: Any) -> dict[str, np.ndarray]:
    """Return every array of `layer` by its path: ``blocks.3.attn.q_proj.weight``.

    Parameters
    ----------
    layer
        A layer, or a model made of layers.

    Examples
    --------
    >>> import numpy as np
    >>> from regard.nn import LayerNorm, parameters
    >>> list(parameters(LayerNorm.init(3)))
    ['weight', 'bias']
    """
    return dict(_walk(layer, ""))


def _walk(value: Any, name: str) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(value, np.ndarray):
        yield name, value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _walk(getattr(value, field.name), f"{name}.{field.name}" if name else field.name)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _walk(item, f"{name}.{index}")
