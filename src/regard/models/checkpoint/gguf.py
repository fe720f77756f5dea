"""A model in one GGUF file, as llama.cpp has it, under the names that its Hugging Face checkpoint has.

The format names things after llama.cpp and stores some of them otherwise: rotary weights with the pairs that turn
together side by side, norms of Gemma with their one added, linear maps of GPT-2 the other way round, gate and up of
experts apart. All of that is undone here, so that a family reads one kind of checkpoint. What llama.cpp's
`convert_hf_to_gguf.py` does is where the figures come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.formats.gguf import GgufFile
from regard.functional import rotary_frequencies
from regard.models.checkpoint.config import ConfigReader
from regard.text import SubwordTokenizer

_Change = Callable[[np.ndarray, Mapping[str, Any]], np.ndarray]
"""From a tensor as the file stores it, and the fields of the configuration, to that of the Hugging Face checkpoint."""


def _unpermuted(heads: str) -> _Change:
    """Undo how rows are permuted for a rotation of neighbours: each head's halves lie interleaved."""

    def change(stored: np.ndarray, fields: Mapping[str, Any]) -> np.ndarray:
        count = fields.get(heads)
        if not isinstance(count, int) or count < 1 or stored.shape[0] % (2 * count):
            raise RegardError(f"{stored.shape[0]} rows do not split into the halves of {count} heads ({heads})")
        pairs = stored.reshape(count, -1, 2, *stored.shape[1:])
        return pairs.swapaxes(1, 2).reshape(stored.shape)

    return change


def _transposed(stored: np.ndarray, _: Mapping[str, Any]) -> np.ndarray:
    return stored.swapaxes(-1, -2)


def _one_less(stored: np.ndarray, _: Mapping[str, Any]) -> np.ndarray:
    return stored - np.float32(1)


@dataclass(frozen=True)
class _Architecture:
    """How one kind of model is spelled.

    Parameters
    ----------
    model_type
        What Hugging Face calls it.
    fields
        Names of its configuration there, by the key in the file that follows the architecture.
    constants
        Fields that every such model has and the file does not say.
    tensors
        Names of its tensors there, by that in the file without ``.weight`` or ``.bias``; of a block without ``blk.i.``.
    layer
        What a block's names begin with there; ``{}`` is its number.
    changes
        Tensors that are stored otherwise, and what undoes it.
    """

    model_type: str
    fields: Mapping[str, str]
    constants: Mapping[str, Any]
    tensors: Mapping[str, str]
    layer: str = "model.layers.{}."
    changes: Mapping[str, _Change] = field(default_factory=dict)


_FIELDS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "vocab_size": "vocab_size",
}
_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_SCALING = {
    "rope.scaling.type": "rope_type",
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
    "rope.scaling.attn_factor": "attention_factor",
}
_GPT2_TENSORS = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
_ARCHITECTURES: Mapping[str, _Architecture] = MappingProxyType(
    {
        "llama": _Architecture(
            "llama",
            _FIELDS,
            {"hidden_act": "silu"},
            _TENSORS,
            changes={
                "attn_q.weight": _unpermuted("num_attention_heads"),
                "attn_q.bias": _unpermuted("num_attention_heads"),
                "attn_k.weight": _unpermuted("num_key_value_heads"),
                "attn_k.bias": _unpermuted("num_key_value_heads"),
            },
        ),
        "qwen2": _Architecture("qwen2", _FIELDS, {"hidden_act": "silu"}, _TENSORS),
        "qwen3": _Architecture(
            "qwen3",
            _FIELDS,
            {"hidden_act": "silu"},
            {**_TENSORS, "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"},
        ),
        "gemma2": _Architecture(
            "gemma2",
            {
                **_FIELDS,
                "attn_logit_softcapping": "attn_logit_softcapping",
                "final_logit_softcapping": "final_logit_softcapping",
                "attention.sliding_window": "sliding_window",
            },
            {"hidden_activation": "gelu_pytorch_tanh", "rope_theta": 10000.0},
            {
                **_TENSORS,
                "post_attention_norm": "post_attention_layernorm",
                "ffn_norm": "pre_feedforward_layernorm",
                "post_ffw_norm": "post_feedforward_layernorm",
            },
            changes={
                f"{name}.weight": _one_less
                for name in ("output_norm", "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
            },
        ),
        "gpt2": _Architecture(
            "gpt2",
            {
                "block_count": "n_layer",
                "context_length": "n_positions",
                "embedding_length": "n_embd",
                "feed_forward_length": "n_inner",
                "attention.head_count": "n_head",
                "attention.layer_norm_epsilon": "layer_norm_epsilon",
                "vocab_size": "vocab_size",
            },
            {"activation_function": "gelu_new"},
            _GPT2_TENSORS,
            layer="transformer.h.{}.",
            changes={f"{name}.weight": _transposed for name in ("attn_qkv", "attn_output", "ffn_up", "ffn_down")},
        ),
        "gpt-oss": _Architecture(
            "gpt_oss",
            {
                **_FIELDS,
                "attention.sliding_window": "sliding_window",
                "expert_feed_forward_length": "intermediate_size",
                "expert_count": "num_local_experts",
                "expert_used_count": "num_experts_per_tok",
            },
            {"hidden_act": "silu", "attention_bias": True},
            {
                **_TENSORS,
                "attn_sinks": "self_attn.sinks",
                "post_attention_norm": "post_attention_layernorm",
                "ffn_gate_inp": "mlp.router",
            },
        ),
    }
)


class GgufCheckpoint:
    """One GGUF file: configuration, tensors and tokenizer of a model.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    RegardError
        The file is not sound, is one part of several, or holds an architecture that is not known here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = GgufFile(path)
        name = self._file.metadata.get("general.architecture")
        if not isinstance(name, str) or name not in _ARCHITECTURES:
            known = ", ".join(sorted(_ARCHITECTURES))
            raise RegardError(f"{path} holds a model of architecture {name!r}; regard reads from GGUF: {known}")
        if self._file.metadata.get("split.count", 1) != 1:
            raise RegardError(
                f"{path} is one part of several; join them with llama.cpp's `llama-gguf-split --merge FIRST_PART FILE`"
            )
        self._name, self._architecture = name, _ARCHITECTURES[name]

    def config(self) -> ConfigReader:
        """Return a fresh reader of the configuration, under the names of a config.json."""
        return ConfigReader(self._fields, self.path)

    def tensors(self) -> GgufTensors:
        """Return the tensors under the names of the Hugging Face checkpoint."""
        return GgufTensors(self._file, self._architecture, self._fields)

    def tokenizer(self) -> SubwordTokenizer:
        """Return the tokenizer that the metadata describe."""
        return SubwordTokenizer.from_gguf(self._file.metadata, self.path)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        """The fields of its configuration. A key that is not known keeps its name, and so is complained of."""
        architecture, metadata = self._architecture, self._file.metadata
        given = {key: _as_json(value) for key, value in metadata.items() if key.startswith(f"{self._name}.")}
        given = {key.removeprefix(f"{self._name}."): value for key, value in given.items()}
        fields: dict[str, Any] = {"model_type": architecture.model_type, **architecture.constants}
        rope = {name: given.pop(key) for key, name in _ROPE_SCALING.items() if key in given}
        given.pop("rope.scaling.finetuned", None)  # whether the model was trained with it
        dimensions, width = given.pop("rope.dimension_count", None), given.pop("attention.value_length", None)
        if given.get("expert_count") == 0:  # as a model without experts may say
            given.pop("expert_count")
            given.pop("expert_used_count", None)
        for key, value in given.items():
            fields[architecture.fields.get(key, f"{self._name}.{key}")] = value
        fields.setdefault("vocab_size", self._file.shapes.get("token_embd.weight", (0,))[0])
        fields["tie_word_embeddings"] = "output.weight" not in self._file
        fields |= _special_ids(metadata)
        if "num_attention_heads" not in fields:  # it is missing, or a gpt2, whose fields are all there
            return fields
        even = _quotient(fields.get("hidden_size"), fields["num_attention_heads"])
        head_dim = fields.get("head_dim", even)
        if architecture.model_type in ("llama", "qwen2") and head_dim == even:
            fields.pop("head_dim", None)  # what it is without being said
        # Where only a part of a head turns, or values are of another width, the keys are left to be complained of.
        for key, value in (("rope.dimension_count", dimensions), ("attention.value_length", width)):
            if value not in (None, head_dim):
                fields[f"{self._name}.{key}"] = value
        fields.setdefault("num_key_value_heads", fields["num_attention_heads"])
        fields |= self._unsaid(fields, head_dim, even)
        if scaling := self._rope_scaling(rope, fields.get("rope_theta"), head_dim):
            fields["rope_scaling"] = scaling
        return fields

    def _unsaid(self, fields: Mapping[str, Any], head_dim: Any, even: int) -> dict[str, Any]:
        """Return what follows from the tensors, or what llama.cpp knows of a kind of model."""
        layers = min(_count(fields.get("num_hidden_layers")), 1 << 16)
        alternating = ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)]
        biases = {"attention_bias": "blk.0.attn_q.bias" in self._file}
        match self._architecture.model_type:
            case "llama":
                return {**biases, "mlp_bias": "blk.0.ffn_gate.bias" in self._file}
            case "qwen3":
                return biases
            case "gemma2":
                # The largest, of 46 layers, scales by the width that each head has of the embeddings.
                return {"layer_types": alternating, "query_pre_attn_scalar": even if layers == 46 else head_dim}
            case "gpt_oss":
                return {"layer_types": alternating}
        return {}

    def _rope_scaling(self, given: Mapping[str, Any], theta: Any, head_dim: Any) -> dict[str, Any] | None:
        kind = given.get("rope_type", "linear" if "factor" in given else "none")
        factors = "rope_freqs.weight" in self._file
        if factors and kind != "none":
            raise RegardError(f"{self.path} scales rotations twice: by rope_freqs.weight and as {kind!r}")
        if factors:
            return _llama3_scaling(self._file["rope_freqs.weight"], theta, head_dim, self.path)
        if kind == "none":
            return None
        scaling = {**given, "rope_type": kind}
        if kind == "linear":
            scaling.pop("original_max_position_embeddings", None)  # it has no part in it
        if self._architecture.model_type == "gpt_oss":
            scaling["truncate"] = False
        return scaling


class GgufTensors:
    """The tensors of a GGUF file under the names of the Hugging Face checkpoint, in float32 once they are asked for."""

    def __init__(self, file: GgufFile, architecture: _Architecture, fields: Mapping[str, Any]) -> None:
        self._file, self._architecture, self._fields = file, architecture, fields
        self._stored = {self._spelled(name): name for name in file if name != "rope_freqs.weight"}
        if len(self._stored) < sum(name != "rope_freqs.weight" for name in file):
            raise RegardError(
                f"{file.path} has a tensor under its name here and under that of a Hugging Face checkpoint"
            )
        shapes = file.shapes
        self._shapes = {name: self._shape(stored, shapes[stored]) for name, stored in self._stored.items()}
        self._parts: dict[str, tuple[str, ...]] = {}
        if architecture.model_type == "gpt_oss":
            self._join_experts()

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor, known without reading it."""
        return MappingProxyType(self._shapes)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._shapes)

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a tensor as the Hugging Face checkpoint has it."""
        if name not in self._stored:
            return self._experts(name)
        stored = self._stored[name]
        change = self._architecture.changes.get(_inner(stored)[1])
        if change is None:
            return self._file[stored]
        try:
            return change(self._file[stored], self._fields)
        except RegardError as error:
            raise RegardError(f"{stored} of {self._file.path}: {error}") from error

    def _spelled(self, stored: str) -> str:
        number, inner = _inner(stored)
        name, dot, ending = inner.rpartition(".")
        known = self._architecture.tensors.get(name)
        if known is None or ending not in ("weight", "bias"):
            return stored  # and so is complained of
        if known == "self_attn.sinks":
            dot = ending = ""
        return ("" if number is None else self._architecture.layer.format(number)) + known + dot + ending

    def _shape(self, stored: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape[::-1] if self._architecture.changes.get(_inner(stored)[1]) is _transposed else shape

    def _join_experts(self) -> None:
        """Name the experts of gpt-oss, whose gate and up lie side by side and whose maps are (inputs, outputs)."""
        found = self._file.shapes
        for stored in [name for name in found if "_exps." in name]:
            number, inner = _inner(stored)
            what, _, ending = inner.partition("_exps.")
            parts, name = {
                "ffn_down": ((stored,), "down_proj"),
                "ffn_gate": ((stored, f"blk.{number}.ffn_up_exps.{ending}"), "gate_up_proj"),
            }.get(what, ((), ""))
            shapes = {found.get(part) for part in parts}
            shape = shapes.pop() if len(shapes) == 1 else None
            if shape is None or (ending, len(shape)) not in (("weight", 3), ("bias", 2)):
                continue  # they do not belong together, and so are complained of
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
    """Return the number of the block that a name stands in, None outside, and the rest of the name."""
    if stored.startswith("blk."):
        number, _, rest = stored.removeprefix("blk.").partition(".")
        if number.isascii() and number.isdigit() and str(int(number[:9])) == number:
            return int(number), rest
    return None, stored


def _as_json(value: Any) -> Any:
    """Return a value as a config.json would have it; a list with the same for every block is that value."""
    if isinstance(value, np.ndarray):
        same = value.size > 0 and bool((value == value[0]).all())
        return value[0].item() if same else value[:99].tolist()
    return value


def _quotient(whole: Any, parts: Any) -> int:
    return whole // parts if isinstance(whole, int) and isinstance(parts, int) and parts > 0 else 0


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _special_ids(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ends a text, begins it and pads it. A turn of a chat may end otherwise than a text."""
    ids = {}
    for name, key in (("bos_token_id", "bos"), ("pad_token_id", "padding")):
        if (value := metadata.get(f"tokenizer.ggml.{key}_token_id")) is not None:
            ids[name] = value
    ends = [metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot")]
    given = list(dict.fromkeys(value for value in ends if isinstance(value, int)))
    if given:
        ids["eos_token_id"] = given if len(given) > 1 else given[0]
    return ids


def _llama3_scaling(factors: np.ndarray, theta: Any, head_dim: Any, path: Path) -> dict[str, Any]:
    """Return the scaling of Llama 3 that divides the frequencies by `factors`, ``D/2``.

    The file has the factors alone. All of Llama 3.1 to 3.3 have the same limits and differ in the factor, which is
    the largest of them.
    """
    factor = float(factors.max(initial=1))
    scaling = {
        "rope_type": "llama3",
        "factor": float(str(np.float32(factor))),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    sound = isinstance(theta, float) and np.isfinite(theta) and theta > 0 and factors.shape == (_count(head_dim) // 2,)
    if sound and np.isfinite(factors).all() and (factors > 0).all():
        plain, _ = rotary_frequencies(head_dim, base=theta)
        scaled, _ = rotary_frequencies(head_dim, base=theta, scaling=scaling)
        if np.allclose(plain / scaled, factors, rtol=1e-4):
            return scaling
    raise RegardError(
        f"the frequencies of {path} (rope_freqs.weight) are not scaled as in Llama 3, which is not supported"
    )
