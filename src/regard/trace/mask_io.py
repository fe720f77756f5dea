"""The inputs of an attention map, with its mask and bias, to arrays and JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number, truncate
from regard.functional import native
from regard.functional.arrays import Array
from regard.functional.biases.base import Bias
from regard.functional.inputs import AttentionInputs
from regard.functional.masks.base import Mask
from regard.functional.part_inputs import is_head_slice
from regard.functional.rules import RULE_NAMES, RULES, is_declared
from regard.functional.scores.layout import ScoreLayout, broadcasts
from regard.functional.variable import Variable

_ABSENT = type(None)
_OPTIONS: dict[str, tuple[type, ...]] = {  # with the types of each
    "scale": (int, float, _ABSENT),
    "softcap": (int, float, _ABSENT),
    "sinks": (np.ndarray, _ABSENT),
    "mask": (Mask, _ABSENT),
    "bias": (Bias, _ABSENT),
}
_OFFSET = {"query_offset": (int, np.ndarray, _ABSENT)}
_MAX_DEPTH = 50  # of masks in masks


def inputs_to_arrays(p: AttentionInputs, prefix: str = "") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return queries, keys, mask, bias and options as arrays, whose names begin with `prefix`, and JSON."""
    arrays, fields = rules_to_arrays(p, prefix)
    return {f"{prefix}q": to_numpy(p.q), f"{prefix}k": to_numpy(p.k), **arrays}, fields


def rules_to_arrays(p: AttentionInputs, prefix: str = "") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the same without queries and keys."""
    if is_head_slice(p):
        raise RegardError("some heads of a map cannot be saved; save the whole map")
    arrays: dict[str, np.ndarray] = {}
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
    values = {name: from_json(name, fields[name], types, arrays) for name, types in (_OFFSET | _OPTIONS).items()}
    shape, dtype = tuple(fields["shape"]), np.dtype(str(fields["dtype"]))
    if len(shape) < 2 or not all(type(length) is int and length >= 0 for length in shape):
        raise RegardError(f"the shape of a map is a list of lengths, got {truncate(fields['shape'])}")
    layout = ScoreLayout(np, None, shape, values.pop("query_offset"))
    layout.check_per_sequence(layout.query_offset, "query_offset")
    fits = broadcasts(q.shape[:-1], shape[:-1]) and shape[-2:] == (q.shape[-2], k.shape[-2])
    if not fits or q.shape[-1] != k.shape[-1] or q.dtype != k.dtype or {q.dtype.kind, dtype.kind} != {"f"}:
        raise RegardError(f"q {q.shape} {q.dtype} and k {k.shape} {k.dtype} do not fit a map of {shape} {dtype}")
    finite_number("scale", values["scale"])
    if values["softcap"] is not None:
        finite_number("softcap", values["softcap"], positive=True)
    for mask_or_bias in (values["mask"], values["bias"]):
        if mask_or_bias is not None:
            mask_or_bias.check(layout)
    sinks = values["sinks"]
    if sinks is not None and not (sinks.dtype.kind == "f" and broadcasts(sinks.shape, (*shape[:-2], 1, 1))):
        raise RegardError(f"sinks {sinks.shape} {sinks.dtype} do not fit a map of {shape}")
    return AttentionInputs(q=q, k=k, v=None, layout=layout, dtype=dtype, dropout=None, implementation="auto", **values)


def to_json(value: Any, arrays: dict[str, np.ndarray], name: str) -> Any:
    """Return a mask, a bias, an array or a plain value as JSON; arrays go to `arrays`, under `name` and a path.

    An error if the mask or bias is of a user's own class.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.integer):
        return int(value)
    if hasattr(value, "dtype") or isinstance(value, list | tuple):
        arrays[name] = to_numpy(value)
        return {"array": name}
    kind = type(value).__name__
    if not is_declared(value):
        raise RegardError(f"{kind} is not a mask or bias of regard, so it cannot be saved; pass a boolean mask")
    names = [field.name for field in value.rule_fields]
    return {"kind": kind, **{x: to_json(getattr(value, x), arrays, f"{name}.{x}") for x in names}}


def from_json(name: str, value: Any, types: tuple[type, ...], arrays: Mapping[str, np.ndarray], depth: int = 0) -> Any:
    """Return the value of an option or field that `to_json` wrote; it is of one of these types.

    Raises
    ------
    RegardError, KeyError, TypeError
        The JSON is damaged.
    """
    if depth > _MAX_DEPTH:
        raise RegardError(f"masks are combined more than {_MAX_DEPTH} deep")
    decoded = value
    if isinstance(value, dict) and "kind" in value:
        values = dict(value)
        kind = RULE_NAMES[values.pop("kind")]
        allowed = {field.name: field.types for field in RULES[kind]}
        decoded = kind(**{name: from_json(name, x, allowed[name], arrays, depth + 1) for name, x in values.items()})
    elif isinstance(value, dict):
        decoded = arrays[value["array"]]
    if not isinstance(decoded, types) or (isinstance(decoded, bool) and bool not in types):
        raise RegardError(f"{name} of a map cannot be {truncate(value)}")
    return decoded


def to_numpy(value: Array) -> np.ndarray:
    """Return a copy of an array of any library; bfloat16, which NumPy lacks, becomes float32."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return native.pooled_copy(value)
    if type(value) is Variable:
        value = value.value
    if hasattr(value, "detach"):  # PyTorch: without a gradient, on the CPU
        value = value.detach().cpu()
    if "bfloat16" in str(getattr(value, "dtype", "")):
        value = value.float() if hasattr(value, "float") else value.astype(np.float32)
    return np.array(np.asarray(value))
