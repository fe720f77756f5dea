"""A GGUF file as a checkpoint with the names and layouts of Hugging Face.

llama.cpp names things differently and stores some tensors in another layout: rotary weights with interleaved pairs,
norms of Gemma plus one, linear maps of GPT-2 transposed, gate and up projections of experts apart. All of that is
undone here, so that a family reads one kind of checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import short_name, truncate
from regard.formats.gguf import GgufFile
from regard.functional import rotary_frequencies
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.gguf_architectures import ARCHITECTURES, ROPE_SCALING, Architecture, transposed
from regard.models.checkpoint.known_fields import DEFAULTS
from regard.models.pooling import Pooling
from regard.models.sentence import SentenceSettings
from regard.text import SubwordTokenizer

_POOLINGS = {1: "mean", 2: "cls", 3: "lasttoken"}  # of llama.cpp; 4 ranks pairs of texts


class GgufCheckpoint:
    """The configuration, tensors and tokenizer in a GGUF file.

    An error if the file is malformed, is one part of several, or holds an unsupported architecture.
    """

    def __init__(self, path: Path, ignore: Collection[str] = ()) -> None:
        self.path, self._ignore = path, ignore
        self._file = GgufFile(path)
        name = self._file.metadata.get("general.architecture")
        if not isinstance(name, str) or name not in ARCHITECTURES:
            supported = ", ".join(sorted(ARCHITECTURES))
            raise RegardError(f"{path} holds a model of architecture {truncate(name)}; supported in GGUF: {supported}")
        if self._file.metadata.get("split.count", 1) != 1:
            raise RegardError(
                f"{path} is one part of several; join them with llama.cpp's `llama-gguf-split --merge FIRST_PART FILE`"
            )
        self._name, self._architecture = name, ARCHITECTURES[name]

    def config(self) -> ConfigReader:
        """Return a new reader of the configuration, with the fields of a config.json."""
        absent = dict.fromkeys(DEFAULTS.get(self._architecture.model_type, ()))  # of transformers, not of llama.cpp
        return ConfigReader(absent | self._fields, self.path, self._ignore)

    def tensors(self) -> GgufTensors:
        """Return the tensors under their Hugging Face names."""
        return GgufTensors(self._file, self._architecture, self._fields)

    def tokenizer(self) -> SubwordTokenizer:
        """Return the tokenizer that the metadata describes."""
        return SubwordTokenizer.from_gguf(self._file.metadata, self.path)

    def sentence_settings(self, _: Mapping[str, str]) -> SentenceSettings:
        """Return the pooling of an embedding model, whose vectors llama.cpp scales to length 1."""
        kind = self._file.metadata.get(f"{self._name}.pooling_type", 0)
        if kind == 0:
            return SentenceSettings()
        if kind not in _POOLINGS:
            return SentenceSettings(
                problem=f"{self.path} has the pooling {truncate(kind)}, which makes no vectors of texts"
            )
        return SentenceSettings(pooling=Pooling((_POOLINGS[kind],)))

    @cached_property
    def _fields(self) -> dict[str, Any]:
        """The configuration fields. An unknown key keeps its name, which the reader reports."""
        architecture, metadata = self._architecture, self._file.metadata
        stored = {key: _as_json(value) for key, value in metadata.items() if key.startswith(f"{self._name}.")}
        stored = {key.removeprefix(f"{self._name}."): value for key, value in stored.items()}
        fields: dict[str, Any] = {"model_type": architecture.model_type, **architecture.constants}
        rope = {name: stored.pop(key) for key, name in ROPE_SCALING.items() if key in stored}
        stored.pop("rope.scaling.finetuned", None)  # whether the model was trained with it
        stored.pop("pooling_type", None)  # of `sentence_settings`
        dimensions, width = stored.pop("rope.dimension_count", None), stored.pop("attention.value_length", None)
        if stored.get("expert_count") == 0:  # some models without experts have it
            stored.pop("expert_count")
            stored.pop("expert_used_count", None)
        for key, value in stored.items():
            fields[architecture.fields.get(key, f"{self._name}.{key}")] = value
        fields.setdefault("vocab_size", self._file.shapes.get("token_embd.weight", (0,))[0])
        fields["tie_word_embeddings"] = "output.weight" not in self._file
        fields |= _special_ids(metadata)
        if "num_attention_heads" not in fields:  # missing, or a gpt2, which has all its fields
            return fields
        even = _quotient(fields.get("hidden_size"), fields["num_attention_heads"])
        head_dim = fields.get("head_dim", even)
        if architecture.model_type in ("llama", "qwen2") and head_dim == even:
            fields.pop("head_dim", None)  # the default
        # Partial rotary dimensions and other value widths are not supported; the reader reports these keys.
        for key, value in (("rope.dimension_count", dimensions), ("attention.value_length", width)):
            if value not in (None, head_dim):
                fields[f"{self._name}.{key}"] = value
        fields.setdefault("num_key_value_heads", fields["num_attention_heads"])
        fields |= self._derived(fields, head_dim, even)
        if scaling := self._rope_scaling(rope, fields.get("rope_theta"), head_dim):
            fields["rope_scaling"] = scaling
        return fields

    def _derived(self, fields: Mapping[str, Any], head_dim: Any, even: int) -> dict[str, Any]:
        """Return the fields that follow from the tensors or are fixed in llama.cpp."""
        layers = min(_count(fields.get("num_hidden_layers")), 1 << 16)
        alternating = ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)]
        biases = {"attention_bias": "blk.0.attn_q.bias" in self._file}
        match self._architecture.model_type:
            case "llama" | "smollm3":
                return {**biases, "mlp_bias": "blk.0.ffn_gate.bias" in self._file}
            case "qwen3":
                return biases
            case "gemma2":
                # The largest model, of 46 layers, scales by E / H instead of D.
                return {"layer_types": alternating, "query_pre_attn_scalar": even if layers == 46 else head_dim}
            case "gemma3_text":
                # The largest model, of 62 layers, scales by E / H instead of D.
                types = ["sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(layers)]
                return {"layer_types": types, "query_pre_attn_scalar": even if layers == 62 else head_dim}
            case "olmo2":
                return biases
            case "gpt_oss":
                return {"layer_types": alternating}
        return {}

    def _rope_scaling(self, rope_fields: Mapping[str, Any], theta: Any, head_dim: Any) -> dict[str, Any] | None:
        scaling = dict(rope_fields)
        attn_factor = scaling.pop("attn_factor", 1)
        kind = scaling.pop("rope_type", "linear" if "factor" in scaling else "none")
        if attn_factor != 1:
            if kind != "yarn":
                raise RegardError(
                    f"{self.path} has rope.scaling.attn_factor {truncate(attn_factor)} with rotary frequencies scaled "
                    f"as {truncate(kind)}; it is supported with 'yarn'"
                )
            scaling["attention_factor"] = _attention_factor(attn_factor, scaling.get("factor"))
        factors = "rope_freqs.weight" in self._file
        if factors and kind != "none":
            raise RegardError(
                f"{self.path} scales rotary frequencies twice: by rope_freqs.weight and as {truncate(kind)}"
            )
        if factors:
            return _llama3_scaling(self._file["rope_freqs.weight"], theta, head_dim, self.path)
        if kind == "none":
            return None
        scaling["rope_type"] = kind
        if kind == "linear":
            scaling.pop("original_max_position_embeddings", None)  # it has no effect
        if self._architecture.model_type == "gpt_oss":
            scaling["truncate"] = False
        return scaling


def _attention_factor(attn_factor: Any, factor: Any) -> Any:
    """Return the factor of cosine and sine: llama.cpp multiplies that of the file by that of YaRN."""
    if not all(isinstance(each, int | float) and each > 0 for each in (attn_factor, factor)):
        return attn_factor  # which the reader reports
    return attn_factor * (1 + 0.1 * math.log(max(factor, 1)))


class GgufTensors:
    """The tensors of a GGUF file under their Hugging Face names, converted to float32 on access."""

    def __init__(self, file: GgufFile, architecture: Architecture, fields: Mapping[str, Any]) -> None:
        self._file, self._architecture, self._fields = file, architecture, fields
        self._stored = {self._hf_name(name): name for name in file if name != "rope_freqs.weight"}
        if len(self._stored) < sum(name != "rope_freqs.weight" for name in file):
            raise RegardError(f"{file.path} has a tensor under both its GGUF name and its Hugging Face name")
        shapes = file.shapes
        self._shapes = {name: self._shape(stored, shapes[stored]) for name, stored in self._stored.items()}
        self._parts: dict[str, tuple[str, ...]] = {}
        if architecture.model_type == "gpt_oss":
            self._join_experts()

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor, from the header."""
        return MappingProxyType(self._shapes)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._shapes)

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a tensor in the layout of the Hugging Face checkpoint."""
        if name not in self._stored:
            return self._experts(name)
        stored = self._stored[name]
        convert = self._architecture.conversions.get(_inner(stored)[1])
        if convert is None:
            return self._file[stored]
        try:
            return convert(self._file[stored], self._fields)
        except RegardError as error:
            raise RegardError(f"{short_name(stored)} of {self._file.path}: {error}") from error

    def quantized(self, name: str) -> tuple[np.ndarray, str] | None:
        """Return the blocks of a matrix and their kind; None where the layout of the checkpoint divides blocks."""
        stored = self._stored.get(name)
        blocks_and_kind = None if stored is None else self._file.quantized(stored)
        convert = self._architecture.conversions.get(_inner(stored)[1]) if stored is not None else None
        if blocks_and_kind is None or convert is transposed:
            return None
        blocks, kind = blocks_and_kind
        return (blocks if convert is None else convert(blocks, self._fields)), kind

    def _hf_name(self, stored: str) -> str:
        number, inner = _inner(stored)
        name, dot, ending = inner.rpartition(".")
        hf_name = self._architecture.tensors.get(name)
        if hf_name is None or ending not in ("weight", "bias"):
            return stored  # which load_layers reports
        if hf_name == "self_attn.sinks":
            dot = ending = ""
        return ("" if number is None else self._architecture.layer.format(number)) + hf_name + dot + ending

    def _shape(self, stored: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape[::-1] if self._architecture.conversions.get(_inner(stored)[1]) is transposed else shape

    def _join_experts(self) -> None:
        """Join the experts of gpt-oss, whose gate and up projections are interleaved, as (inputs, outputs)."""
        shapes_of_file = self._file.shapes
        for stored in [name for name in shapes_of_file if "_exps." in name]:
            number, inner = _inner(stored)
            what, _, ending = inner.partition("_exps.")
            parts, name = {
                "ffn_down": ((stored,), "down_proj"),
                "ffn_gate": ((stored, f"blk.{number}.ffn_up_exps.{ending}"), "gate_up_proj"),
            }.get(what, ((), ""))
            shapes = {shapes_of_file.get(part) for part in parts}
            shape = shapes.pop() if len(shapes) == 1 else None
            if shape is None or (ending, len(shape)) not in (("weight", 3), ("bias", 2)):
                continue  # they do not match; load_layers reports them
            experts, outputs, *inputs = shape
            name = f"{self._architecture.layer.format(number)}mlp.experts.{name}{'' if inputs else '_bias'}"
            self._parts[name] = parts
            self._shapes[name] = (experts, *inputs, len(parts) * outputs)
            for part in parts:
                del self._stored[part], self._shapes[part]

    def _experts(self, name: str) -> np.ndarray:
        parts = self._parts[name]
        joined = np.empty(self._shapes[name], np.float32)
        for i, part in enumerate(parts):
            stored = self._file[part]
            joined[..., i :: len(parts)] = stored if stored.ndim == 2 else stored.swapaxes(1, 2)
        return joined


def _inner(stored: str) -> tuple[int | None, str]:
    """Return the index of the block that a name belongs to, if any, and the rest of the name."""
    if stored.startswith("blk."):
        number, _, rest = stored.removeprefix("blk.").partition(".")
        if number.isascii() and number.isdigit() and str(int(number[:9])) == number:
            return int(number), rest
    return None, stored


def _as_json(value: Any) -> Any:
    """Return a value as in a config.json; a list of equal values, one for each block, becomes that value."""
    if isinstance(value, np.ndarray):
        same = value.size > 0 and bool((value == value[0]).all())
        return value[0].item() if same else value[:99].tolist()
    return value


def _quotient(whole: Any, parts: Any) -> int:
    return whole // parts if isinstance(whole, int) and isinstance(parts, int) and parts > 0 else 0


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _special_ids(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ids that begin, end and pad a text. A turn of a chat may end with another token than a text."""
    ids = {}
    for name, key in (("bos_token_id", "bos"), ("pad_token_id", "padding")):
        if (value := metadata.get(f"tokenizer.ggml.{key}_token_id")) is not None:
            ids[name] = value
    ends = [metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot")]
    end_ids = list(dict.fromkeys(value for value in ends if isinstance(value, int)))
    if end_ids:
        ids["eos_token_id"] = end_ids if len(end_ids) > 1 else end_ids[0]
    return ids


def _llama3_scaling(factors: np.ndarray, theta: Any, head_dim: Any, path: Path) -> dict[str, Any]:
    """Return the Llama 3 scaling that divides the frequencies by `factors`, ``D/2``.

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
    valid = isinstance(theta, float) and np.isfinite(theta) and theta > 0 and factors.shape == (_count(head_dim) // 2,)
    if valid and np.isfinite(factors).all() and (factors > 0).all():
        plain, _ = rotary_frequencies(head_dim, base=theta)
        scaled, _ = rotary_frequencies(head_dim, base=theta, scaling=scaling)
        if np.allclose(plain / scaled, factors, rtol=1e-4):
            return scaling
    raise RegardError(
        f"the frequencies of {path} (rope_freqs.weight) are not scaled as in Llama 3; other scalings are not supported"
    )
