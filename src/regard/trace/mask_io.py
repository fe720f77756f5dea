"""The inputs of an attention map, with its mask and bias, to arrays and JSON and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number
from regard.functional import native
from regard.functional.arrays import Array
from regard.functional.biases import ALiBi, DenseBias, DistanceBias, RelativePositionBias
from regard.functional.head_slice import is_head_slice
from regard.functional.inputs import AttentionInputs
from regard.functional.mask_rules import Causal, KeyLengths, KeyRangeMask, PrefixLM, SegmentMask, SlidingWindow
from regard.functional.masks import DenseMask, LogicalAnd, LogicalOr
from regard.functional.score_layout import ScoreLayout, broadcasts

_OPTIONS = ("scale", "softcap", "sinks", "mask", "bias")
_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(Causal, SlidingWindow, KeyLengths, PrefixLM, SegmentMask, KeyRangeMask, DenseMask, LogicalAnd, LogicalOr),
        *(ALiBi, RelativePositionBias, DistanceBias, DenseBias),
    )
}


def inputs_to_arrays(p: AttentionInputs, prefix: str = "") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return queries, keys, mask, bias and options as arrays, whose names begin with `prefix`, and JSON."""
    if is_head_slice(p):
        raise RegardError("some heads of a map cannot be saved; save the whole map")
    arrays = {f"{prefix}q": to_numpy(p.q), f"{prefix}k": to_numpy(p.k)}
    values = {"query_offset": p.layout.query_offset, **{name: getattr(p, name) for name in _OPTIONS}}
    fields = {name: to_json(value, arrays, f"{prefix}{name}") for name, value in values.items()}
    dtype = str(p.dtype).split(".")[-1]
    return arrays, fields | {
        "shape": list(p.layout.shape),
        "dtype": "float32" if dtype == "bfloat16" else dtype,  # NumPy has no bfloat16
    }


def inputs_from_arrays(
    arrays: Mapping[str, np.ndarray], fields: Mapping[str, Any], prefix: str = ""
) -> AttentionInputs:
    """Return the inputs that `inputs_to_arrays` wrote; raise RegardError unless they fit together."""
    q, k = arrays[f"{prefix}q"], arrays[f"{prefix}k"]
    values = {name: from_json(fields[name], arrays) for name in ("query_offset", *_OPTIONS)}
    shape, dtype = tuple(fields["shape"]), np.dtype(fields["dtype"])
    layout = ScoreLayout(np, None, shape, values.pop("query_offset"))
    fits = broadcasts(q.shape[:-1], shape[:-1]) and shape[-2:] == (q.shape[-2], k.shape[-2])
    if not fits or q.shape[-1] != k.shape[-1] or q.dtype != k.dtype or {q.dtype.kind, dtype.kind} != {"f"}:
        raise RegardError(f"q {q.shape} {q.dtype} and k {k.shape} {k.dtype} do not fit a map of {shape} {dtype}")
    finite_number("scale", values["scale"])
    if values["softcap"] is not None:
        finite_number("softcap", values["softcap"], positive=True)
    for mask_or_bias in (values["mask"], values["bias"]):
        if mask_or_bias is not None:
            mask_or_bias.check(layout)
    if values["sinks"] is not None and not broadcasts(values["sinks"].shape, (*shape[:-2], 1, 1)):
        raise RegardError(f"sinks {values['sinks'].shape} do not fit a map of {shape}")
    return AttentionInputs(q=q, k=k, v=None, layout=layout, dtype=dtype, dropout=None, implementation="auto", **values)


def to_json(value: Any, arrays: dict[str, np.ndarray], name: str) -> Any:
    """Return a mask, a bias, an array or a plain value as JSON; arrays go to `arrays`, under `name` and a path.

    Raises
    ------
    RegardError
        The mask or bias is of a user's own class.
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
        raise RegardError(f"{kind} is not a mask or bias of regard, so it cannot be saved; pass a boolean mask")
    fields = {
        field.name: to_json(getattr(value, field.name), arrays, f"{name}.{field.name}")
        for field in dataclasses.fields(value)
    }
    return {"kind": kind, **fields}


def from_json(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the value that `to_json` wrote. Damaged JSON raises KeyError, TypeError or RegardError."""
    if not isinstance(value, dict):
        return value
    if "kind" not in value:
        return arrays[value["array"]]
    fields = dict(value)
    kind = _KINDS[fields.pop("kind")]
    return kind(**{name: from_json(field, arrays) for name, field in fields.items()})


def to_numpy(value: Array) -> np.ndarray:
    """Return a copy of an array of any library; bfloat16, which NumPy lacks, becomes float32."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return native.pooled_copy(value)
    if hasattr(value, "detach"):  # PyTorch: without a gradient, on the CPU
        value = value.detach().cpu()
    if "bfloat16" in str(getattr(value, "dtype", "")):
        value = value.float() if hasattr(value, "float") else value.astype(np.float32)
    return np.array(np.asarray(value))
