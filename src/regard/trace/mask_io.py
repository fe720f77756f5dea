"""Masks and biases as JSON and arrays, so that a map can be kept in a file, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.functional import native
from regard.functional.biases import ALiBi, DenseBias, DistanceBias, RelativePositionBias
from regard.functional.masks import (
    Causal,
    DenseMask,
    KeyLengths,
    KeyRangeMask,
    LogicalAnd,
    LogicalOr,
    PrefixLM,
    SegmentMask,
    SlidingWindow,
)

_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(Causal, SlidingWindow, KeyLengths, PrefixLM, SegmentMask, KeyRangeMask, DenseMask, LogicalAnd, LogicalOr),
        *(ALiBi, RelativePositionBias, DistanceBias, DenseBias),
    )
}


def stored(value: Any, arrays: dict[str, np.ndarray], name: str) -> Any:
    """Return a rule, an array or a plain value as JSON; arrays are put into `arrays` under `name` and a path.

    Raises
    ------
    RegardError
        The rule is of a kind that is not regard's own.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.integer):
        return int(value)
    if hasattr(value, "dtype") or isinstance(value, list | tuple):
        arrays[name] = to_numpy(value)
        return {"array": name}
    kind = type(value).__name__
    if _KINDS.get(kind) is not type(value):
        raise RegardError(f"a rule of your own, {kind}, cannot be kept in a file; give its boolean array as mask")
    fields = {
        field.name: stored(getattr(value, field.name), arrays, f"{name}.{field.name}")
        for field in dataclasses.fields(value)
    }
    return {"kind": kind, **fields}


def restored(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return what `stored` made JSON of. A damaged one raises KeyError, TypeError or RegardError."""
    if not isinstance(value, dict):
        return value
    if "kind" not in value:
        return arrays[value["array"]]
    fields = dict(value)
    kind = _KINDS[fields.pop("kind")]
    return kind(**{name: restored(field, arrays) for name, field in fields.items()})


def to_numpy(value: Array) -> np.ndarray:
    """Return a copy of an array of any library; bfloat16, which NumPy does not know, becomes float32."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return native.pooled_copy(value)
    if hasattr(value, "detach"):  # PyTorch: away from the gradient and the accelerator
        value = value.detach().cpu()
    if "bfloat16" in str(getattr(value, "dtype", "")):
        value = value.float() if hasattr(value, "float") else value.astype(np.float32)
    return np.array(np.asarray(value))
