"""What the entry of a GGUF architecture is made of: names, steps that read more of a file, layouts to undo."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import truncate
from regard.formats.gguf import GgufFile
from regard.functional import rotary_frequencies

Fields: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Draft:
    """The configuration of a file as far as it is read.

    Parameters
    ----------
    fields : dict
        Those that are, by their Hugging Face names.
    stored : dict
        Metadata that have no name there yet, by their keys after the architecture. What is left is unknown, an error.
    file : GgufFile
    """

    fields: Fields
    stored: Fields
    file: GgufFile


Step: TypeAlias = Callable[[Draft], None]
"""Reads more of a file into the fields of a configuration."""
Conversion: TypeAlias = Callable[[np.ndarray, Mapping[str, Any]], np.ndarray]
"""From a tensor of the file, and the configuration, to the tensor of the Hugging Face checkpoint."""
Shape: TypeAlias = tuple[int, ...]

ROPE_FREQS = "rope_freqs.weight"
_ROPE_SCALING = {
    "type": "rope_type",
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
    "attn_factor": "attn_factor",  # of llama.cpp: a part of `attention_factor`
    "yarn_attn_factor": "attention_factor",
}


@dataclass(frozen=True)
class Joined:
    """A tensor of the checkpoint that the file stores as several, or in another layout of its axes.

    Parameters
    ----------
    parts : tuple of str
        Their names in the file, without those of a block.
    shape : function
        From their shapes to that of the tensor; None if they do not fit.
    join : function
        From the parts to the tensor.
    of_rows : bool
        Whether it puts the rows of the parts into another order, and does nothing else: rows of blocks stay as stored.
    """

    parts: tuple[str, ...]
    shape: Callable[[Sequence[Shape]], Shape | None]
    join: Callable[[Sequence[np.ndarray]], np.ndarray]
    of_rows: bool = False


@dataclass(frozen=True)
class Architecture:
    """The names and layouts of one architecture.

    Parameters
    ----------
    model_type : str
        The Hugging Face name.
    fields : mapping of str to str
        Hugging Face names, by the key in the file after the architecture.
    tensors : mapping of str to str
        Hugging Face names, by the name in the file without ``blk.i.`` and ``.weight`` or ``.bias``. ``{i}`` is the
        number of the block, ``{x}`` that of an expert: the file has those of all experts as one.
    constants : mapping
        Fields that are the same in all such models and not in the file, and what llama.cpp does without a key. A field
        whose default is a value is an error where it is in neither: defaults of transformers are those of one model.
    steps : tuple of function
        What else is read of a file, in this order.
    layer : str
        The Hugging Face prefix of a block.
    conversions : mapping of str to function
        Of tensors that are stored in another layout, by their names in the file without those of a block.
    joined : mapping of str to Joined
        Tensors of a block that are stored as several, by their Hugging Face names after the prefix.
    """

    model_type: str
    fields: Mapping[str, str]
    tensors: Mapping[str, str]
    constants: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    layer: str = "model.layers.{i}."
    conversions: Mapping[str, Conversion] = field(default_factory=dict)
    joined: Mapping[str, Joined] = field(default_factory=dict)


# Layouts.


def deinterleaved(heads: str) -> Conversion:
    """Undo the permutation of rows for interleaved rotary pairs: the two halves of each head alternate."""

    def convert(stored: np.ndarray, fields: Mapping[str, Any]) -> np.ndarray:
        pairs = _of_heads(stored, fields, heads, 2).reshape(fields[heads], -1, 2, *stored.shape[1:])
        return pairs.swapaxes(1, 2).reshape(stored.shape)

    return convert


def by_head(stored: np.ndarray, fields: Mapping[str, Any]) -> np.ndarray:
    """Put the queries, keys and values of a head next to each other, which are stored as all queries, keys, values."""
    heads = "num_attention_heads"
    parts = _of_heads(stored, fields, heads, 3).reshape(3, fields[heads], -1, *stored.shape[1:])
    return parts.swapaxes(0, 1).reshape(stored.shape)


def _of_heads(stored: np.ndarray, fields: Mapping[str, Any], heads: str, parts: int) -> np.ndarray:
    """Return a tensor, whose rows must split into `parts` of each head."""
    count = fields.get(heads)
    if not isinstance(count, int) or count < 1 or stored.shape[0] % (parts * count):
        halves = "two halves" if parts == 2 else f"{parts} parts"
        raise RegardError(f"{stored.shape[0]} rows do not split into {halves} for each of {count} heads ({heads})")
    return stored


def transposed(stored: np.ndarray, _: Mapping[str, Any]) -> np.ndarray:
    """Swap inputs and outputs of a linear map."""
    return stored.swapaxes(-1, -2)


def minus_one(stored: np.ndarray, _: Mapping[str, Any]) -> np.ndarray:
    """Take off the one that is added to the weights of a norm."""
    return stored - np.float32(1)


def alternating(*parts: str) -> Joined:
    """Return the linear map of all experts, X (inputs) outputs, whose outputs alternate between those of the parts."""

    def shape(shapes: Sequence[Shape]) -> Shape | None:
        if len({*shapes}) > 1 or not 2 <= len(shapes[0]) <= 3:
            return None
        experts, outputs, *inputs = shapes[0]
        return (experts, *inputs, len(parts) * outputs)

    def join(arrays: Sequence[np.ndarray]) -> np.ndarray:
        outputs_last = [each if each.ndim == 2 else each.swapaxes(1, 2) for each in arrays]
        joined = np.stack(outputs_last, axis=-1, dtype=np.float32)
        return joined.reshape(*outputs_last[0].shape[:-1], -1)

    return Joined(parts, shape, join)


def keys_and_values(keys: str, values: str) -> Joined:
    """Return the linear map from latents to keys and values by head, (H (N Dv)) C, of ``H C N`` and ``H Dv C``."""

    def shape(shapes: Sequence[Shape]) -> Shape | None:
        k, v = shapes
        if len(k) != 3 or len(v) != 3 or k[0] != v[0] or k[1] != v[2]:
            return None
        return (k[0] * (k[2] + v[1]), k[1])

    def join(arrays: Sequence[np.ndarray]) -> np.ndarray:
        k, v = arrays
        return np.concatenate([k.swapaxes(1, 2), v], axis=1, dtype=np.float32).reshape(-1, k.shape[1])

    return Joined((keys, values), shape, join)


def grouped(groups: int, *names: str) -> Joined:
    """Return a linear map whose rows alternate by group: some of q, of k and of v, stored as one, and of another."""

    def shape(shapes: Sequence[Shape]) -> Shape | None:
        (rows, *inputs), (others, *also) = shapes
        fits = (
            groups > 0 and inputs == also and rows > others and not (others % groups or (rows - others) % (2 * groups))
        )
        return (rows + others, *inputs) if fits else None

    def join(arrays: Sequence[np.ndarray]) -> np.ndarray:
        qkv, other = arrays
        keys = (len(qkv) - len(other)) // 2
        parts = (qkv[:keys], qkv[keys : 2 * keys], qkv[2 * keys :], other)
        by_group = [part.reshape(groups, -1, *part.shape[1:]) for part in parts]
        return np.concatenate(by_group, axis=1).reshape(-1, *qkv.shape[1:])

    return Joined(names, shape, join, of_rows=True)


def computed(name: str, shape: Callable[[Shape], Shape], compute: Callable[[np.ndarray], np.ndarray]) -> Joined:
    """Return a tensor that is computed from another one."""

    def join(arrays: Sequence[np.ndarray]) -> np.ndarray:
        with np.errstate(all="ignore"):  # what is not finite is refused when it is read
            return compute(arrays[0])

    return Joined((name,), lambda shapes: shape(shapes[0]), join)


def renamed(name: str) -> Joined:
    """Return a tensor that stands under another name, without ``.weight`` or ``.bias``."""
    return computed(name, lambda shape: shape, lambda x: x)


# Rotary positions.


def read_rotation(draft: Draft, rotated: Any) -> None:
    """Read ``rope_scaling`` for `rotated` features of a head; it says so if there is none."""
    scaling = {name: draft.stored.pop(f"rope.scaling.{key}", None) for key, name in _ROPE_SCALING.items()}
    scaling = {name: value for name, value in scaling.items() if value is not None}
    draft.stored.pop("rope.scaling.finetuned", None)  # whether the model was trained with it
    draft.fields["rope_scaling"] = _rope_scaling(scaling, draft.fields.get("rope_theta"), rotated, draft.file)


def _rope_scaling(scaling: Fields, theta: Any, rotated: Any, file: GgufFile) -> Fields:
    attn_factor = scaling.pop("attn_factor", 1)
    kind = scaling.pop("rope_type", "linear" if "factor" in scaling else "none")
    if any(name in file for name in ("rope_factors_long.weight", "rope_factors_short.weight")):
        raise RegardError(
            f"{file.path} scales rotary frequencies by factors for short and long texts (rope_factors_long.weight), "
            "which regard does not compute: choose the model for short texts, or watch this one where transformers "
            "runs it, with regard.capture"
        )
    if attn_factor != 1:
        if kind != "yarn":
            raise RegardError(
                f"{file.path} has rope.scaling.attn_factor {truncate(attn_factor)} with rotary frequencies scaled "
                f"as {truncate(kind)}; it is supported with 'yarn'"
            )
        scaling["attention_factor"] = _attention_factor(attn_factor, scaling.get("factor"))
    factors = ROPE_FREQS in file
    if factors and kind != "none":
        raise RegardError(f"{file.path} scales rotary frequencies twice: by {ROPE_FREQS} and as {truncate(kind)}")
    if factors:
        return _llama3_scaling(file[ROPE_FREQS], theta, rotated, file.path)
    if kind == "none":
        return {"rope_type": "default"}
    scaling["rope_type"] = kind
    if kind == "linear":
        scaling.pop("original_max_position_embeddings", None)  # it has no effect
    return scaling


def _attention_factor(attn_factor: Any, factor: Any) -> Any:
    """Return the factor of cosine and sine: llama.cpp multiplies that of the file by that of YaRN."""
    if not all(isinstance(each, int | float) and each > 0 for each in (attn_factor, factor)):
        return attn_factor  # which the reader reports
    return attn_factor * (1 + 0.1 * math.log(max(factor, 1)))


def _llama3_scaling(factors: np.ndarray, theta: Any, rotated: Any, path: Path) -> Fields:
    """Return the Llama 3 scaling that divides the frequencies by `factors`, ``R/2``.

    The file has the factors only. Llama 3.1 to 3.3 differ in the scaling factor, which is the largest of them.
    """
    factor = float(factors.max(initial=1))
    scaling = {
        "rope_type": "llama3",
        "factor": float(str(np.float32(factor))),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    half = rotated // 2 if isinstance(rotated, int) else 0
    if (
        isinstance(theta, float)
        and np.isfinite(theta)
        and theta > 0
        and factors.shape == (half,)
        and np.isfinite(factors).all()
        and (factors > 0).all()
    ):
        plain, _ = rotary_frequencies(rotated, base=theta)
        scaled, _ = rotary_frequencies(rotated, base=theta, scaling=scaling)
        if np.allclose(plain / scaled, factors, rtol=1e-4):
            return scaling
    raise RegardError(
        f"the frequencies of {path} ({ROPE_FREQS}) are not scaled as in Llama 3; other scalings are not supported"
    )
