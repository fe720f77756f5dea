"""Rotary position embedding of a model: its configuration, and the angles at given positions (Su et al. 2021).

https://arxiv.org/abs/2104.09864
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard.functional.positions.rotary import scaling_parameters
from regard.models.checkpoint.config import ConfigReader
from regard.nn import CosSin

MAX_HEAD_DIM = 2**16
MAX_POSITIONS = 2**29
_WITH_ORIGINAL = ("yarn", "llama3")  # scalings of a model that was trained on fewer positions
_EVEN_ONLY = ("dynamic", "yarn")  # scalings in which the number of rotated features counts for more than the base
_NEWER, _OLDER = "rope_parameters", "rope_scaling"
# Keys that transformers reads whatever the type is, by code of a model or as the rotation of a type of layer.
_READ = ("partial_rotary_factor", "full_attention", "sliding_attention")
_READ_OF_SCALINGS = ("mscale_all_dim",)  # by DeepSeek-V3 of all types but the default one
_DIFFERENT = "rope_parameters and rope_scaling are both present and differ; remove one"


@dataclass(frozen=True)
class Rope:
    """How queries and keys are rotated by their position."""

    dim: int  # the features of a head that are rotated, in pairs; those from there on are not
    base: float
    scaling: Mapping[str, Any] | None = None  # as `regard.functional.rotary_frequencies` takes it

    def __call__(self, positions: np.ndarray, dtype: Any) -> CosSin:
        """Return cosine and sine for positions ``T`` or ``B T``, of shape ``T D/2`` or ``B 1 T D/2``."""
        frequencies, magnitude = self._unscaled_by_length
        if self._kind == "dynamic":  # the frequencies depend on the length of each sequence
            lengths = positions.max(-1, keepdims=True) + 1
            frequencies = np.stack([self._frequencies(int(length))[0] for length in lengths.flat])
            frequencies = frequencies[0] if positions.ndim == 1 else frequencies[:, None]
        angles = positions[..., None] * frequencies  # T D/2 or B T D/2
        cos, sin = ((f(angles) * magnitude).astype(dtype) for f in (np.cos, np.sin))
        return (cos, sin) if positions.ndim == 1 else (cos[:, None], sin[:, None])

    def max_context(self, max_positions: int) -> int:
        """Return `max_positions`, or the number of positions that the scaling extends the original ones to.

        Llama 3 checkpoints state the extended number, which is less than the factor times the original one.
        """
        scaling = self.scaling or {}
        if self._kind == "llama3":
            return max_positions
        original = scaling.get("original_max_position_embeddings", max_positions)
        return max(max_positions, int(min(original * scaling.get("factor", 1), MAX_POSITIONS)))

    @property
    def _kind(self) -> Any:
        return None if self.scaling is None else self.scaling["rope_type"]

    @functools.cached_property
    def _unscaled_by_length(self) -> tuple[np.ndarray, float]:
        return self._frequencies(1)

    def _frequencies(self, length: int) -> tuple[np.ndarray, float]:
        return F.rotary_frequencies(self.dim, base=self.base, scaling=self.scaling, length=length)


def read_rope(
    reader: ConfigReader,
    sizes: Mapping[str, Any],
    *,
    base: float = 10_000.0,
    scaling: Mapping[str, Any] | None = None,
    partial: float | None = None,
    base_name: str = "rope_theta",
    partial_name: str = "partial_rotary_factor",
) -> Rope:
    """Read ``rope_parameters``, or ``rope_theta`` and ``rope_scaling`` of older files.

    `base`, `scaling` and `partial`, the share of each head that is rotated, are the defaults of the family; with None
    for `partial` it has no such field. `base_name` and `partial_name` are the names of the fields in older files.
    """
    base = reader.positive(base_name, base)
    share = None if partial is None else reader.positive(partial_name, partial)
    newer, older = reader.take(_NEWER), reader.take(_OLDER) or None
    original = reader.take("original_max_position_embeddings")
    named = {name: fields for name, fields in ((_NEWER, newer), (_OLDER, older)) if fields is not None}
    scalings = (named or {_NEWER: scaling}).items()
    ropes = [_rope(reader, sizes, name, _with_original(fields, original), base, share) for name, fields in scalings]
    reader.require(ropes[0] == ropes[-1], _DIFFERENT)
    return ropes[0]


def read_ropes_by_type(
    reader: ConfigReader,
    sizes: Mapping[str, Any],
    bases: Mapping[str, tuple[str | None, float]],
    *,
    scaled: Collection[str],
    head_dims: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Rope]:
    """Read ``rope_parameters`` with an entry for each type of layer.

    `bases` has for each type the name of its base in older files and the default; without a name there were none, and
    the base must stand in the entry: transformers has no default for it. The
    ``rope_scaling`` of older files is that of the types in `scaled`; `head_dims` are those of types with other heads.
    """
    newer, older = reader.take(_NEWER), (reader.take(_OLDER) or None) if scaled else None
    is_by_type = newer is None or (isinstance(newer, dict) and newer.keys() <= bases.keys())
    reader.require(is_by_type, f"rope_parameters must have entries for {', '.join(bases)}, got {newer!r}")
    if newer is None and isinstance(older, dict) and "rope_type" not in older:
        reader.require(
            older.get("type", "default") == "default",
            f"rope_scaling has type {older.get('type')!r}, which transformers ignores in this family: rename it to "
            f"rope_type if the model was trained with this scaling, else remove rope_scaling",
        )
    ropes = {}
    for kind, (name, default) in bases.items():
        base = default if name is None else reader.positive(name, default)
        of_newer = newer.get(kind) if newer and is_by_type else None
        has_base = not is_by_type or name is not None or (isinstance(of_newer, dict) and "rope_theta" in of_newer)
        reader.require(has_base, f"{_NEWER} must have the rope_theta of {kind}, got {newer!r}")
        of_kind = {**sizes, "head_dim": head_dims.get(kind, sizes["head_dim"])}
        named = {f"{_NEWER}.{kind}": of_newer, _OLDER: older if kind in scaled else None}
        scalings = {key: fields for key, fields in named.items() if fields is not None} or {_NEWER: None}
        each = [_rope(reader, of_kind, key, fields, base, None) for key, fields in scalings.items()]
        reader.require(each[0] == each[-1], _DIFFERENT)
        ropes[kind] = each[0]
    return ropes


def peek_kind(reader: ConfigReader) -> Any:
    """Return the kind of rotation that a configuration names, without reading it."""
    fields = reader.peek(_NEWER) or reader.peek(_OLDER)
    return _kind(fields) if isinstance(fields, dict) else "default"


def _with_original(fields: Any, original: Any) -> Any:
    """Return the fields of a rotation, with the original length that stands beside them, which takes precedence."""
    if original is None or not isinstance(fields, dict) or _kind(fields) not in _WITH_ORIGINAL:
        return fields
    return {**fields, "original_max_position_embeddings": original}


def _kind(fields: Mapping[str, Any]) -> Any:
    return fields.get("rope_type", fields.get("type", "default"))


def _rope(
    reader: ConfigReader, sizes: Mapping[str, Any], name: str, fields: Any, base: float, share: float | None
) -> Rope:
    """Return the rotation that the object `name` describes; `share` is the part of each head, None for the whole."""
    if fields is not None and not isinstance(fields, dict):
        reader.require(False, f"{name} must be an object, got {fields!r}")
        fields = None
    dim = sizes["head_dim"]
    if share is not None:
        dim = _rotated(reader, dim, (fields or {}).get("partial_rotary_factor", share))
        fields = None if fields is None else {k: v for k, v in fields.items() if k != "partial_rotary_factor"}
    if fields is None:
        return _even(dim, base, None)
    kind = _kind(fields)
    theta = _theta(reader, name, fields, base)
    without_effect = _without_effect(kind, fields)
    for key in without_effect:
        reader.put(f"{name}.{key}", fields[key])  # an unknown field
    numbers = {
        key: value
        for key, value in fields.items()
        if key not in ("rope_type", "type", "rope_theta", *without_effect) and value is not None
    }
    if kind in _WITH_ORIGINAL:
        numbers.setdefault("original_max_position_embeddings", sizes["max_positions"])
    elif kind == "dynamic":
        original = numbers.setdefault("original_max_position_embeddings", sizes["max_positions"])
        reader.require(
            original == sizes["max_positions"],
            f"dynamic rope scaling begins at max_position_embeddings {sizes['max_positions']}, not at {original!r}",
        )
    scaling = None if kind == "default" and not numbers else {"rope_type": kind, **numbers}
    reader.require(
        dim % 2 == 0 or kind not in _EVEN_ONLY, f"{kind} rope scaling of {dim} features, which is not an even number"
    )
    rope = Rope(dim, theta, scaling)
    try:
        rope = _even(dim, theta, scaling)
        with np.errstate(all="ignore"):
            frequencies, _ = F.rotary_frequencies(
                min(rope.dim + rope.dim % 2, MAX_HEAD_DIM), base=rope.base, scaling=rope.scaling, length=1
            )
        reader.require(bool(np.isfinite(frequencies).all()), f"{name}={fields!r} give angles that are not finite")
    except (RegardError, ArithmeticError, ValueError) as error:
        reader.require(False, f"{name}={fields!r}: {error}")
    return rope


def _theta(reader: ConfigReader, name: str, fields: Mapping[str, Any], base: float) -> float:
    """Read the base that stands in the object `name`, else `base`."""
    if "rope_theta" not in fields:
        return base
    reader.put(f"{name}.rope_theta", fields["rope_theta"])
    return reader.positive(f"{name}.rope_theta", base)


def _without_effect(kind: Any, fields: Mapping[str, Any]) -> list[str]:
    """Return the keys of a rotation that transformers does not read for this type."""
    if kind != "default" and not scaling_parameters(kind):
        return []  # an unknown type, an error
    read = {"rope_type", "type", "rope_theta", *_READ, *scaling_parameters(kind)}
    read |= set(_READ_OF_SCALINGS) if kind != "default" else set()
    return [key for key in fields if key not in read]


def _even(dim: int, base: float, scaling: Mapping[str, Any] | None) -> Rope:
    """Return the rotation of `dim` features; of an odd number one more is rotated, by the angles of the odd number."""
    return Rope(dim + 1, base ** ((dim + 1) / dim), scaling) if dim % 2 else Rope(dim, base, scaling)


def _rotated(reader: ConfigReader, head_dim: int, share: Any) -> int:
    """Return how many features of a head are rotated."""
    is_share = isinstance(share, int | float) and not isinstance(share, bool) and 0 < share <= 1
    reader.require(is_share, f"partial_rotary_factor must be a number above 0 and at most 1, got {share!r}")
    dim = int(head_dim * share) if is_share else head_dim
    reader.require(
        1 < dim + dim % 2 <= head_dim,
        f"partial_rotary_factor {share!r} of {head_dim} features is {dim}, too few or too many to rotate in pairs",
    )
    return dim if 1 < dim + dim % 2 <= head_dim else 2
