"""How each GGUF architecture names its configuration and its tensors, and how it stores them.

The names and layouts are those of llama.cpp's `convert_hf_to_gguf.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from regard._utils.errors import RegardError

Conversion = Callable[[np.ndarray, Mapping[str, Any]], np.ndarray]
"""From a tensor of the file, and the configuration, to the tensor of the Hugging Face checkpoint."""


def _deinterleaved(heads: str) -> Conversion:
    """Undo the permutation of rows for interleaved rotary pairs: the two halves of each head alternate."""

    def convert(stored: np.ndarray, fields: Mapping[str, Any]) -> np.ndarray:
        count = fields.get(heads)
        if not isinstance(count, int) or count < 1 or stored.shape[0] % (2 * count):
            raise RegardError(
                f"{stored.shape[0]} rows do not split into two halves for each of {count} heads ({heads})"
            )
        pairs = stored.reshape(count, -1, 2, *stored.shape[1:])
        return pairs.swapaxes(1, 2).reshape(stored.shape)

    return convert


def transposed(stored: np.ndarray, _: Mapping[str, Any]) -> np.ndarray:
    """Swap inputs and outputs of a linear map."""
    return stored.swapaxes(-1, -2)


def _minus_one(stored: np.ndarray, _: Mapping[str, Any]) -> np.ndarray:
    return stored - np.float32(1)


@dataclass(frozen=True)
class Architecture:
    """The names and layouts of one architecture."""

    model_type: str  # the Hugging Face name
    fields: Mapping[str, str]  # Hugging Face names, by the key in the file after the architecture
    constants: Mapping[str, Any]  # fields that are the same in all such models and not in the file
    tensors: Mapping[str, str]  # Hugging Face names, by the name in the file without blk.i. and .weight or .bias
    layer: str = "model.layers.{}."  # the Hugging Face prefix of a block; {} is its number
    conversions: Mapping[str, Conversion] = field(default_factory=dict)  # of tensors that are stored in another layout


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
_INTERLEAVED = {
    "attn_q.weight": _deinterleaved("num_attention_heads"),
    "attn_q.bias": _deinterleaved("num_attention_heads"),
    "attn_k.weight": _deinterleaved("num_key_value_heads"),
    "attn_k.bias": _deinterleaved("num_key_value_heads"),
}
ROPE_SCALING = {
    "rope.scaling.type": "rope_type",
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
    "rope.scaling.attn_factor": "attn_factor",  # of llama.cpp: a part of `attention_factor`
}
_GEMMA_TENSORS = {
    **_TENSORS,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_GEMMA_NORMS = ("output_norm", "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
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
ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "llama": Architecture(
            "llama",
            _FIELDS,
            {"hidden_act": "silu"},
            _TENSORS,
            conversions=_INTERLEAVED,
        ),
        "smollm3": Architecture("smollm3", _FIELDS, {"hidden_act": "silu"}, _TENSORS, conversions=_INTERLEAVED),
        "qwen2": Architecture("qwen2", _FIELDS, {"hidden_act": "silu"}, _TENSORS),
        "qwen3": Architecture(
            "qwen3",
            _FIELDS,
            {"hidden_act": "silu"},
            {**_TENSORS, "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"},
        ),
        "gemma2": Architecture(
            "gemma2",
            {
                **_FIELDS,
                "attn_logit_softcapping": "attn_logit_softcapping",
                "final_logit_softcapping": "final_logit_softcapping",
                "attention.sliding_window": "sliding_window",
            },
            {"hidden_activation": "gelu_pytorch_tanh", "rope_theta": 10000.0},
            _GEMMA_TENSORS,
            conversions={f"{name}.weight": _minus_one for name in _GEMMA_NORMS},
        ),
        "gemma3": Architecture(
            "gemma3_text",
            {
                **_FIELDS,
                "final_logit_softcapping": "final_logit_softcapping",
                "attention.sliding_window": "sliding_window",
                "rope.freq_base_swa": "rope_local_base_freq",
            },
            {"hidden_activation": "gelu_pytorch_tanh", "rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0},
            {**_GEMMA_TENSORS, "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"},
            conversions={f"{name}.weight": _minus_one for name in (*_GEMMA_NORMS, "attn_q_norm", "attn_k_norm")},
        ),
        "olmo2": Architecture(
            "olmo2",
            _FIELDS,
            {"hidden_act": "silu"},
            {
                **_TENSORS,
                "attn_q_norm": "self_attn.q_norm",
                "attn_k_norm": "self_attn.k_norm",
                "post_attention_norm": "post_attention_layernorm",
                "post_ffw_norm": "post_feedforward_layernorm",
            },
        ),
        "gpt2": Architecture(
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
            conversions={f"{name}.weight": transposed for name in ("attn_qkv", "attn_output", "ffn_up", "ffn_down")},
        ),
        "gpt-oss": Architecture(
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
