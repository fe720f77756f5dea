"""Tiny random models that transformers writes, and what it makes of them: the numbers that regard is held against.

``python tests/make_golden.py [family ...]``, in an environment with torch and transformers, writes every case of
`CASES` to ``tests/models/golden/FAMILY/CASE``: a checkpoint (its weights in float16), a tokenizer, and
``expected.safetensors``. Ordinary tests compare those with regard (`golden.check`); the parity tests do it with
fresh ones. To add a family is to add a row to `CASES`.

``expected.safetensors`` holds, in float64,

- ``ids`` and ``lengths``: a batch of texts, padded at the right; for an encoder-decoder also ``target_ids`` and
  ``target_lengths``, what its decoder reads;
  of a model of pictures ``pixel_values``;
- ``hidden``, and ``logits`` where there is a head; ``pooled`` and ``embedding`` where one vector is made of all, and
  ``similarity`` of pictures and texts; ``memory``, what the encoder of an encoder-decoder returns;
- what each block but the last returns (what the last one does is in ``hidden``), and all weights, under the names that
  `regard.Trace` has for them, ``blocks.0.output`` and ``blocks.0.attn.weights``;
- ``greedy``: what a language model continues the first text with.

The case ``long`` of each family is one text of `LONG` tokens, of which no weights are kept.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

FOLDER = Path(__file__).parent / "models" / "golden"
LENGTHS = (6, 4)
TARGET_LENGTHS = (5, 3)
LONG = 60
NEW_TOKENS = 64
TEXT_PART_ONLY = ("gemma3", "gemma4", "llama4")
"""Types of models that look at pictures too, of which regard runs what reads texts."""


@dataclass(frozen=True)
class Family:
    """Which classes of transformers write a family, and the configurations that cover what it reads.

    Parameters
    ----------
    config, model : str
        Names of classes of transformers.
    sizes : dict
        What all cases have in common.
    cases : dict
        For each name what else is in the configuration. A name of `sizes` may be given another value.
    """

    config: str
    model: str
    sizes: dict[str, Any]
    cases: dict[str, dict[str, Any]] = field(default_factory=lambda: {"plain": {}})

    def __post_init__(self) -> None:
        """Keep a copy: transformers writes into the rope_parameters that it is given, which families share."""
        object.__setattr__(self, "cases", copy.deepcopy(self.cases))

    @property
    def nested(self) -> dict[str, Any]:
        """The configurations of the halves of a model, if it has halves."""
        return {name: sizes for name, sizes in self.cases.get("plain", {}).items() if isinstance(sizes, dict)}


_BERT = {
    "vocab_size": 23,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 11,
}
_BERT_CASES = {
    "gelu": {},
    "tanh": {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "type_vocab_size": 1, "chunk_size_feed_forward": 2},
    "silu": {"hidden_act": "silu", "hidden_size": 14, "num_attention_heads": 7, "pad_token_id": 2},
    "long": {"max_position_embeddings": 80},
}

_ROBERTA_CASES = {
    "gelu": {},
    "padding": {"pad_token_id": 4, "hidden_act": "relu", "type_vocab_size": 1, "chunk_size_feed_forward": 3},
    "first": {"pad_token_id": 0, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-5, "num_attention_heads": 2},
    "long": {"max_position_embeddings": 80, "pad_token_id": 3},
}
_DISTILBERT = {
    "vocab_size": 23,
    "dim": 12,
    "n_layers": 2,
    "n_heads": 3,
    "hidden_dim": 20,
    "max_position_embeddings": 11,
}
_ELECTRA_CASES = {
    "wide": {"embedding_size": 12},
    "narrow": {"embedding_size": 8, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "type_vocab_size": 1},
    "silu": {"embedding_size": 20, "hidden_act": "silu", "num_attention_heads": 2},
    "long": {"embedding_size": 8, "max_position_embeddings": 80},
}
_ALBERT_CASES = {
    "shared": {},
    "groups": {"num_hidden_groups": 2, "num_hidden_layers": 5, "hidden_act": "gelu", "layer_norm_eps": 1e-5},
    "each": {"num_hidden_groups": 2, "embedding_size": 12, "type_vocab_size": 1},
    "long": {"num_hidden_layers": 3, "max_position_embeddings": 80},
}
_MPNET_CASES = {
    "plain": {},
    "relu": {"pad_token_id": 4, "hidden_act": "relu", "layer_norm_eps": 1e-5},
    "heads": {"num_attention_heads": 2, "num_hidden_layers": 3, "hidden_act": "gelu_new"},
    "long": {"max_position_embeddings": 80},
}
_DEBERTA = {**_BERT, "type_vocab_size": 0, "relative_attention": True, "position_buckets": 4, "share_att_key": True}
_DEBERTA |= {"norm_rel_ebd": "layer_norm", "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
_DEBERTA_CASES = {
    "plain": {},
    "distance": {"max_relative_positions": 5, "hidden_act": "relu", "layer_norm_eps": 1e-5, "num_hidden_layers": 3},
    "near": {"position_buckets": 8, "num_attention_heads": 2, "hidden_act": "gelu_new", "pos_att_type": "c2p|p2c"},
    "long": {"position_buckets": 16, "max_position_embeddings": 80},
    "own": {"share_att_key": False, "norm_rel_ebd": "none", "position_buckets": -1, "pos_att_type": "p2c"},
    "absolute": {
        "relative_attention": False,
        "norm_rel_ebd": "none",
        "position_biased_input": True,
        "type_vocab_size": 2,
    },
}
_NOMIC_CASES = {
    "plain": {},
    "gelu": {"hidden_act": "gelu", "layer_norm_eps": 1e-5, "type_vocab_size": 1, "num_hidden_layers": 3},
    "scaled": {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}},
    "long": {"max_position_embeddings": 80},
}
_MODERNBERT = {**_BERT, "pad_token_id": 0, "num_hidden_layers": 4}
_MODERNBERT_CASES = {
    "plain": {"local_attention": 4},
    "biased": {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "hidden_activation": "silu"},
    "types": {
        "layer_types": ["sliding_attention", "full_attention"],
        "num_hidden_layers": 2,
        "local_attention": 3,
        "norm_eps": 1e-3,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "linear", "rope_theta": 300.0, "factor": 2.0},
        },
    },
    "long": {"local_attention": 10, "max_position_embeddings": 80},
}
_GPT2 = {"vocab_size": 23, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 80, "eos_token_id": 2}
_GPT2_CASES = {
    "plain": {},
    "scaled": {"scale_attn_by_inverse_layer_idx": True, "n_inner": 20, "activation_function": "gelu", "n_layer": 3},
    "untied": {"scale_attn_weights": False, "tie_word_embeddings": False, "activation_function": "relu"},
    "long": {"n_positions": 140},
}
_GPT_NEO = {"vocab_size": 23, "hidden_size": 12, "num_layers": 2, "num_heads": 3, "max_position_embeddings": 80}
_GPT_NEO |= {"eos_token_id": 2, "attention_types": [[["global", "local"], 1]]}
_GPT_NEO_CASES = {
    "plain": {"window_size": 3},
    "types": {
        "num_layers": 3,
        "attention_types": [[["local"], 2], [["global"], 1]],
        "window_size": 4,
        "intermediate_size": 20,
        "activation_function": "relu",
    },
    "untied": {"tie_word_embeddings": False, "activation_function": "gelu", "layer_norm_epsilon": 1e-3},
    "long": {"window_size": 9, "max_position_embeddings": 140},
}
_OPT = {name: size for name, size in _BERT.items() if name != "intermediate_size"}
_OPT |= {"ffn_dim": 20, "max_position_embeddings": 80}
_OPT_CASES = {
    "plain": {},
    "unbiased": {"enable_bias": False, "activation_function": "gelu", "num_hidden_layers": 3},
    "untied": {"tie_word_embeddings": False, "pad_token_id": 4, "num_attention_heads": 2},
    "long": {"max_position_embeddings": 140},
}
_GPT_NEOX_CASES = {
    "plain": {},
    "sequential": {
        "use_parallel_residual": False,
        "attention_bias": False,
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-3,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "linear",
            "rope_theta": 500.0,
            "factor": 2.0,
            "partial_rotary_factor": 1.0,
        },
    },
    "half": {"rotary_pct": 0.5, "hidden_size": 12, "num_hidden_layers": 3, "hidden_act": "relu"},
    "long": {"rotary_pct": 1.0, "max_position_embeddings": 140},
}
_LLAMA = {
    "vocab_size": 23,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 80,
    "head_dim": 4,
}
_YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 20}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_LLAMA_CASES = {
    "plain": {},
    "biased": {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu_new", "rms_norm_eps": 1e-5},
    "tied": {"tie_word_embeddings": True, "num_key_value_heads": 6, "head_dim": None, "hidden_size": 24},
    "llama3": {"rope_parameters": _LLAMA3, "head_dim": 8, "num_key_value_heads": 1},
    "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.5}},
    "dynamic": {
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 5.0},
        "max_position_embeddings": 16,
    },
    "yarn": {"rope_parameters": _YARN | {"beta_fast": 8.0, "beta_slow": 0.5, "attention_factor": 1.3}, "head_dim": 8},
    "yarn-mscale": {"rope_parameters": _YARN | {"mscale": 0.7, "mscale_all_dim": 1.2, "truncate": False}},
    "long": {"rope_parameters": _LLAMA3, "head_dim": 8, "max_position_embeddings": 140},
}
_SLIDING = ["full_attention", "sliding_attention", "sliding_attention"]
_MISTRAL_CASES = {
    "window": {"sliding_window": 3},
    "unbounded": {"sliding_window": None, "head_dim": None, "hidden_size": 24},
    "tied": {"sliding_window": 5, "tie_word_embeddings": True, "num_key_value_heads": 2, "hidden_act": "gelu"},
    "long": {"sliding_window": 7, "max_position_embeddings": 140},
}
_QWEN_CASES = {
    "plain": {},
    "windows": {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1, "num_hidden_layers": 3},
    "types": {
        "use_sliding_window": True,
        "sliding_window": 4,
        "layer_types": _SLIDING[::-1],
        "num_hidden_layers": 3,
        "rope_parameters": _YARN,
        "tie_word_embeddings": True,
    },
    "long": {
        "use_sliding_window": True,
        "sliding_window": 9,
        "max_window_layers": 1,
        "rope_parameters": _YARN | {"original_max_position_embeddings": 35},
        "max_position_embeddings": 140,
    },
}
_GEMMA2_CASES = {
    "plain": {"sliding_window": 3, "query_pre_attn_scalar": 5},
    "capped": {
        "attn_logit_softcapping": 0.7,
        "final_logit_softcapping": 1.5,
        "layer_types": _SLIDING,
        "num_hidden_layers": 3,
        "sliding_window": 4,
        "hidden_activation": "silu",
    },
    "uncapped": {
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "attention_bias": True,
        "tie_word_embeddings": False,
        "layer_types": ["full_attention", "full_attention"],
    },
    "long": {"sliding_window": 11, "max_position_embeddings": 140},
}
_GEMMA4 = _LLAMA | {"sliding_window": 3, "global_head_dim": 8, "hidden_size_per_layer_input": 0, "pad_token_id": 0}
_GEMMA4 |= {"vocab_size_per_layer_input": 23, "layer_types": ["sliding_attention", "full_attention"]}
_GEMMA4_SHARED = {
    "num_hidden_layers": 5,
    "num_kv_shared_layers": 2,
    "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "hidden_size_per_layer_input": 5,
    "use_double_wide_mlp": True,
}
_GEMMA4_CASES = {
    "plain": {"attention_k_eq_v": True, "num_global_key_value_heads": 2, "final_logit_softcapping": 1.5},
    "experts": {
        "enable_moe_block": True,
        "num_experts": 5,
        "top_k_experts": 2,
        "moe_intermediate_size": 7,
        "attention_k_eq_v": True,
        "hidden_activation": "silu",
        "attention_bias": True,
        "use_bidirectional_attention": "vision",
        "rms_norm_eps": 1e-3,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.5,
                "factor": 3.0,
            },
        },
    },
    "inputs": _GEMMA4_SHARED,
    "long": {**_GEMMA4_SHARED, "sliding_window": 9, "tie_word_embeddings": False, "max_position_embeddings": 140},
}
_EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 3}
_GPT_OSS_CASES = {
    "plain": {"max_position_embeddings": 131_072},
    "narrow": {
        "swiglu_alpha": 1.1,
        "swiglu_limit": 0.5,
        "num_experts_per_tok": 1,
        "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    },
    "types": {
        "layer_types": _SLIDING,
        "num_hidden_layers": 3,
        "num_experts_per_tok": 5,
        "tie_word_embeddings": True,
        "rope_parameters": _YARN | {"truncate": False},
    },
    "long": {"max_position_embeddings": 131_072, "sliding_window": 11},
}
_PHI3 = {name: size for name, size in _LLAMA.items() if name != "head_dim"} | {"hidden_size": 24, "pad_token_id": 0}
_PHI3_CASES = {
    "plain": {},
    "partial": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
        "sliding_window": 3,
        "tie_word_embeddings": True,
    },
    "gelu": {"hidden_act": "gelu", "num_key_value_heads": 6, "rms_norm_eps": 1e-3, "num_hidden_layers": 3},
    "long": {"sliding_window": 9, "max_position_embeddings": 140},
}
_OLMO2_CASES = {
    "plain": {},
    "biased": {"attention_bias": True, "tie_word_embeddings": True, "hidden_act": "gelu", "rms_norm_eps": 1e-3},
    "scaled": {"rope_parameters": _YARN, "num_key_value_heads": 1, "num_hidden_layers": 3},
    "long": {"rope_parameters": _LLAMA3, "head_dim": 8, "max_position_embeddings": 140},
}
_SMOLLM3_CASES = {
    "plain": {"num_hidden_layers": 4},
    "window": {
        "no_rope_layer_interval": 2,
        "use_sliding_window": True,
        "sliding_window": 3,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": False,
        "num_hidden_layers": 3,
    },
    "types": {
        "no_rope_layers": [0, 1, 0],
        "layer_types": _SLIDING,
        "sliding_window": 4,
        "num_hidden_layers": 3,
        "rope_parameters": _YARN,
    },
    "long": {"no_rope_layers": [1, 1], "rope_parameters": _LLAMA3, "head_dim": 8, "max_position_embeddings": 140},
}
_GRANITE = {"embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.4, "logits_scaling": 2.5}
_GRANITE_CASES = {
    "plain": {},
    "biased": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "logits_scaling": 0.4},
    "long": {"rope_parameters": _LLAMA3, "head_dim": 8, "max_position_embeddings": 140, "rms_norm_eps": 1e-3},
}
_GLM = _LLAMA | {"pad_token_id": 0, "eos_token_id": 2, "head_dim": 8}
_GLM_CASES = {
    "plain": {},
    "unbiased": {
        "attention_bias": False,
        "tie_word_embeddings": True,
        "hidden_act": "gelu",
        "rms_norm_eps": 1e-3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0},
    },
    "long": {"rope_parameters": _YARN | {"partial_rotary_factor": 0.75}, "max_position_embeddings": 140},
}
_COHERE = {name: size for name, size in _LLAMA.items() if name != "head_dim"} | {"hidden_size": 24, "eos_token_id": 2}
_COHERE_CASES = {
    "plain": {},
    "normed": {"use_qk_norm": True, "num_attention_heads": 4, "num_key_value_heads": 2, "logit_scale": 0.5},
    "biased": {"attention_bias": True, "tie_word_embeddings": False, "hidden_act": "gelu", "layer_norm_eps": 1e-3},
    "long": {"use_qk_norm": True, "rope_parameters": _LLAMA3, "max_position_embeddings": 140},
}
_COHERE2_CASES = {
    "plain": {"sliding_window": 3, "num_hidden_layers": 4},
    "types": {
        "layer_types": _SLIDING,
        "num_hidden_layers": 3,
        "sliding_window": 4,
        "attention_bias": True,
        "tie_word_embeddings": False,
        "logit_scale": 0.5,
        "rope_parameters": _YARN,
    },
    "long": {"sliding_window": 11, "sliding_window_pattern": 2, "max_position_embeddings": 140},
}
_STARCODER2_CASES = {
    "plain": {"sliding_window": 3},
    "unbiased": {"use_bias": False, "tie_word_embeddings": False, "hidden_act": "gelu", "norm_epsilon": 1e-3},
    "long": {"sliding_window": 9, "rope_parameters": _YARN, "max_position_embeddings": 140},
}
_FEW_EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2}
_MIXTRAL_CASES = {
    "plain": {},
    "window": {"sliding_window": 3, "num_experts_per_tok": 1, "hidden_act": "gelu", "rms_norm_eps": 1e-2},
    "all": {"num_experts_per_tok": 3, "num_local_experts": 3, "tie_word_embeddings": True, "rope_parameters": _YARN},
    "long": {"sliding_window": 9, "max_position_embeddings": 140},
}
_QWEN3_MOE_CASES = {
    "plain": {},
    "normalized": {"norm_topk_prob": True, "use_sliding_window": True, "sliding_window": 3, "attention_bias": True},
    "mixed": {
        "decoder_sparse_step": 2,
        "mlp_only_layers": [3],
        "num_hidden_layers": 4,
        "tie_word_embeddings": True,
        "rope_parameters": _YARN,
    },
    "long": {"num_experts_per_tok": 3, "max_position_embeddings": 140},
}
_QWEN3_NEXT = _LLAMA | {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "pad_token_id": 0}
_QWEN3_NEXT |= {"shared_expert_intermediate_size": 9, "layer_types": ["linear_attention", "full_attention"]}
_QWEN3_NEXT |= {"linear_key_head_dim": 6, "linear_value_head_dim": 5, "linear_num_key_heads": 2}
_QWEN3_NEXT |= {"linear_num_value_heads": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
_QWEN3_NEXT_CASES = {
    "plain": {"partial_rotary_factor": 0.5},
    "mixed": {
        "num_hidden_layers": 4,
        "layer_types": ["full_attention", "linear_attention", "full_attention", "linear_attention"],
        "decoder_sparse_step": 2,
        "mlp_only_layers": [3],
        "linear_conv_kernel_dim": 2,
        "linear_num_key_heads": 4,
        "attention_bias": True,
        "norm_topk_prob": False,
        "rms_norm_eps": 1e-2,
        "tie_word_embeddings": True,
        "partial_rotary_factor": 1.0,
        "rope_parameters": _YARN,
    },
    "long": {
        "max_position_embeddings": 140,
        "linear_conv_kernel_dim": 5,
        "partial_rotary_factor": 0.5,
        "linear_num_value_heads": 2,
        "rms_norm_eps": 1e-2,
    },
}
_DEEPSEEK = {name: _LLAMA[name] for name in _LLAMA if name != "head_dim"}
_DEEPSEEK |= {"num_attention_heads": 3, "num_hidden_layers": 3, "first_k_dense_replace": 1}
_DEEPSEEK |= {"q_lora_rank": 7, "kv_lora_rank": 5, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 3}
_DEEPSEEK |= {
    "n_routed_experts": 6,
    "num_experts_per_tok": 3,
    "n_group": 3,
    "topk_group": 2,
    "moe_intermediate_size": 10,
}
_DEEPSEEK_CASES = {
    "plain": {},
    "biased": {
        "q_lora_rank": None,
        "rope_interleave": False,
        "attention_bias": True,
        "norm_topk_prob": False,
        "n_shared_experts": 2,
        "first_k_dense_replace": 0,
        "num_hidden_layers": 2,
        "hidden_act": "gelu",
        "rms_norm_eps": 1e-2,
    },
    "yarn": {
        "rope_parameters": _YARN | {"mscale": 0.7, "mscale_all_dim": 1.2},
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 3,
        "tie_word_embeddings": True,
        "routed_scaling_factor": 1.0,
    },
    "long": {"rope_parameters": _YARN | {"factor": 2.0}, "max_position_embeddings": 140, "num_hidden_layers": 2},
}
_GEMMA3_CASES = {
    "plain": {"sliding_window": 3, "query_pre_attn_scalar": 5},
    "types": {
        "layer_types": _SLIDING,
        "num_hidden_layers": 3,
        "sliding_window": 4,
        "hidden_activation": "silu",
        "final_logit_softcapping": 1.5,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
        },
    },
    "pattern": {
        "sliding_window_pattern": 2,
        "sliding_window": 3,
        "attention_bias": True,
        "tie_word_embeddings": False,
        "rms_norm_eps": 1e-3,
    },
    "long": {"sliding_window": 11, "sliding_window_pattern": 2, "max_position_embeddings": 140},
}
_LLAMA4 = _LLAMA | _FEW_EXPERTS | {"intermediate_size_mlp": 14, "pad_token_id": 0}
_LLAMA4_CASES = {
    "types": {
        "layer_types": ["full_attention", "chunked_attention"],
        "attention_chunk_size": 2,
        "moe_layers": [0],
        "no_rope_layer_interval": 1,
        "attn_temperature_tuning": False,
        "hidden_act": "gelu",
        "rms_norm_eps": 1e-2,
    },
    "plain": {"attention_chunk_size": 3, "no_rope_layers": [1, 0], "floor_scale": 2},
    "mixed": {
        "num_hidden_layers": 4,
        "interleave_moe_layer_step": 2,
        "use_qk_norm": False,
        "attention_chunk_size": 4,
        "attention_bias": True,
        "num_experts_per_tok": 1,
        "rope_parameters": _LLAMA3,
        "head_dim": 8,
        "tie_word_embeddings": True,
    },
    "long": {"attention_chunk_size": 11, "no_rope_layers": [1, 0], "floor_scale": 7, "max_position_embeddings": 140},
}
_LLAMA4_VISION = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 48}
_LLAMA4_VISION |= {"image_size": 8, "patch_size": 4, "vision_output_dim": 8}
_LLAMA4_VISION |= {"projector_input_dim": 8, "projector_output_dim": 8}
_GEMMA3_TEXT = _LLAMA | {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3}
_GEMMA3_TEXT |= {"query_pre_attn_scalar": 5}
_GEMMA3_WHOLE_CASES = {
    "plain": {"text_config": _GEMMA3_TEXT},
    "untied": {"text_config": _GEMMA3_TEXT | {"sliding_window": 4}, "tie_word_embeddings": False},
    "long": {"text_config": _GEMMA3_TEXT | {"sliding_window": 11, "max_position_embeddings": 140}},
}
_T5 = {
    "vocab_size": 23,
    "d_model": 12,
    "d_kv": 5,
    "d_ff": 20,
    "num_layers": 2,
    "num_heads": 3,
}
_BART = {
    "vocab_size": 23,
    "d_model": 12,
    "max_position_embeddings": NEW_TOKENS,
    "encoder_layers": 2,
    "encoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_layers": 2,
    "decoder_attention_heads": 3,
    "decoder_ffn_dim": 20,
}

_VIT = {name: size for name, size in _BERT.items() if name not in ("vocab_size", "max_position_embeddings")}
_VIT |= {"image_size": 12, "patch_size": 4}
_SIGLIP = {
    "model_type": "siglip_vision_model",
    **_VIT,
    "num_hidden_layers": 1,
    "image_size": 8,
    "vision_use_head": False,
}
_VIT_CASES = {
    "plain": {},
    "oblong": {"image_size": [9, 14], "patch_size": [3, 4], "qkv_bias": False, "hidden_act": "gelu_new"},
    "quick": {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5, "patch_size": 5, "pooler_output_size": 7},
    "long": {"patch_size": 2, "num_attention_heads": 2, "image_size": 16},
}
_DINOV2 = {name: size for name, size in _VIT.items() if name != "intermediate_size"}
_DINOV2_CASES = {
    "plain": {"image_size": 16},
    "gated": {"image_size": [12, 16], "patch_size": [3, 4], "use_swiglu_ffn": True, "mlp_ratio": 2},
    "unbiased": {"image_size": 12, "qkv_bias": False, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3},
    "long": {"image_size": 16, "patch_size": 2, "num_attention_heads": 2, "mlp_ratio": 1},
}
_CLIP_TEXT = _BERT | {"eos_token_id": 7, "bos_token_id": 6, "pad_token_id": 1}
_CLIP_TEXT_CASES = {
    "plain": {},
    "older": {"eos_token_id": 2, "hidden_act": "gelu", "projection_dim": 5, "layer_norm_eps": 1e-3},
    "long": {"max_position_embeddings": 80},
}
_CLIP_VISION_CASES = {
    "plain": {},
    "gelu": {"hidden_act": "gelu", "patch_size": 5, "projection_dim": 5, "layer_norm_eps": 1e-3},
    "long": {"patch_size": 2, "image_size": 16},
}
_CLIP_CASES = {
    "plain": {"text_config": _CLIP_TEXT, "vision_config": _VIT, "projection_dim": 8},
    "older": {
        "text_config": _CLIP_TEXT | {"eos_token_id": 2, "hidden_size": 9, "hidden_act": "gelu"},
        "vision_config": _VIT | {"patch_size": 3, "num_attention_heads": 2},
        "logit_scale_init_value": 0.5,
    },
}

CASES = {
    "clip": Family("CLIPConfig", "CLIPModel", {}, _CLIP_CASES),
    "clip_text_model": Family("CLIPTextConfig", "CLIPTextModelWithProjection", _CLIP_TEXT, _CLIP_TEXT_CASES),
    "clip_vision_model": Family("CLIPVisionConfig", "CLIPVisionModelWithProjection", _VIT, _CLIP_VISION_CASES),
    "dinov2": Family("Dinov2Config", "Dinov2Model", _DINOV2, _DINOV2_CASES),
    "vit": Family("ViTConfig", "ViTModel", _VIT, _VIT_CASES),
    "bart": Family(
        "BartConfig",
        "BartForConditionalGeneration",
        _BART,
        {
            "tied": {},
            "scaled": {
                "scale_embedding": True,
                "activation_function": "relu",
                "decoder_attention_heads": 2,
                "decoder_layers": 1,
                "decoder_ffn_dim": 7,
                "decoder_start_token_id": 0,
            },
            "untied": {"tie_word_embeddings": False, "activation_function": "swish", "encoder_layers": 1},
            "long": {},
        },
    ),
    "bert": Family("BertConfig", "BertModel", _BERT, _BERT_CASES),
    "distilbert": Family(
        "DistilBertConfig",
        "DistilBertModel",
        _DISTILBERT,
        {
            "gelu": {},
            "relu": {"activation": "relu", "dim": 14, "n_heads": 7, "chunk_size_feed_forward": 2},
            "tanh": {"activation": "gelu_new", "sinusoidal_pos_embds": True, "n_layers": 3},
            "long": {"max_position_embeddings": 80},
        },
    ),
    "deberta-v2": Family("DebertaV2Config", "DebertaV2Model", _DEBERTA, _DEBERTA_CASES),
    "electra": Family("ElectraConfig", "ElectraModel", _BERT, _ELECTRA_CASES),
    "albert": Family("AlbertConfig", "AlbertModel", _BERT | {"embedding_size": 8}, _ALBERT_CASES),
    "mpnet": Family("MPNetConfig", "MPNetModel", _BERT, _MPNET_CASES),
    "nomic_bert": Family("NomicBertConfig", "NomicBertModel", _BERT, _NOMIC_CASES),
    "modernbert": Family("ModernBertConfig", "ModernBertModel", _MODERNBERT, _MODERNBERT_CASES),
    "roberta": Family("RobertaConfig", "RobertaModel", _BERT, _ROBERTA_CASES),
    "t5": Family(
        "T5Config",
        "T5ForConditionalGeneration",
        _T5,
        {
            "relu": {},
            "gated": {
                "feed_forward_proj": "gated-gelu",
                "tie_word_embeddings": False,
                "num_decoder_layers": 1,
                "relative_attention_num_buckets": 8,
                "relative_attention_max_distance": 5,
                "layer_norm_epsilon": 1e-3,
            },
            "silu": {"feed_forward_proj": "gated-silu", "pad_token_id": 4, "num_layers": 3, "num_decoder_layers": 2},
            "gelu": {"feed_forward_proj": "gelu", "decoder_start_token_id": 2, "relative_attention_num_buckets": 7},
            "long": {"relative_attention_max_distance": 40},
        },
    ),
    "camembert": Family(
        "CamembertConfig", "CamembertModel", _BERT, {name: _ROBERTA_CASES[name] for name in ("padding", "long")}
    ),
    "mt5": Family(
        "MT5Config",
        "MT5ForConditionalGeneration",
        _T5,
        {
            "plain": {"num_decoder_layers": 1, "relative_attention_num_buckets": 8, "layer_norm_epsilon": 1e-3},
            "long": {"relative_attention_max_distance": 40},
        },
    ),
    "xlm-roberta": Family("XLMRobertaConfig", "XLMRobertaModel", _BERT, _ROBERTA_CASES),
    "gpt2": Family("GPT2Config", "GPT2LMHeadModel", _GPT2, _GPT2_CASES),
    "gpt_neo": Family("GPTNeoConfig", "GPTNeoForCausalLM", _GPT_NEO, _GPT_NEO_CASES),
    "opt": Family("OPTConfig", "OPTForCausalLM", _OPT, _OPT_CASES),
    "gpt_neox": Family(
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        _BERT | {"hidden_size": 24, "max_position_embeddings": 80},
        _GPT_NEOX_CASES,
    ),
    "llama": Family("LlamaConfig", "LlamaForCausalLM", _LLAMA, _LLAMA_CASES),
    "llama4": Family(
        "Llama4Config",
        "Llama4ForConditionalGeneration",
        {"vision_config": _LLAMA4_VISION},
        {"plain": {"text_config": _LLAMA4 | _LLAMA4_CASES["plain"]}},
    ),
    "llama4_text": Family("Llama4TextConfig", "Llama4ForCausalLM", _LLAMA4, _LLAMA4_CASES),
    "mistral": Family("MistralConfig", "MistralForCausalLM", _LLAMA, _MISTRAL_CASES),
    "qwen2": Family("Qwen2Config", "Qwen2ForCausalLM", _LLAMA, _QWEN_CASES),
    "qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", _LLAMA, {**_QWEN_CASES, "biased": {"attention_bias": True}}),
    "gemma2": Family("Gemma2Config", "Gemma2ForCausalLM", _LLAMA, _GEMMA2_CASES),
    "gemma3": Family(
        "Gemma3Config",
        "Gemma3ForConditionalGeneration",
        {"vision_config": _SIGLIP, "mm_tokens_per_image": 4},
        _GEMMA3_WHOLE_CASES,
    ),
    "gemma3_text": Family("Gemma3TextConfig", "Gemma3ForCausalLM", _LLAMA, _GEMMA3_CASES),
    "gemma4": Family(
        "Gemma4Config", "Gemma4ForConditionalGeneration", {}, {"plain": {"text_config": _GEMMA4 | _GEMMA4_SHARED}}
    ),
    "gemma4_text": Family("Gemma4TextConfig", "Gemma4ForCausalLM", _GEMMA4, _GEMMA4_CASES),
    "mixtral": Family("MixtralConfig", "MixtralForCausalLM", _LLAMA | _FEW_EXPERTS, _MIXTRAL_CASES),
    "olmo2": Family("Olmo2Config", "Olmo2ForCausalLM", _LLAMA, _OLMO2_CASES),
    "phi3": Family("Phi3Config", "Phi3ForCausalLM", _PHI3, _PHI3_CASES),
    "qwen3_moe": Family(
        "Qwen3MoeConfig", "Qwen3MoeForCausalLM", _LLAMA | _FEW_EXPERTS | {"moe_intermediate_size": 10}, _QWEN3_MOE_CASES
    ),
    "qwen3_next": Family("Qwen3NextConfig", "Qwen3NextForCausalLM", _QWEN3_NEXT, _QWEN3_NEXT_CASES),
    "smollm3": Family("SmolLM3Config", "SmolLM3ForCausalLM", _LLAMA | {"pad_token_id": 0}, _SMOLLM3_CASES),
    "glm": Family("GlmConfig", "GlmForCausalLM", _GLM, _GLM_CASES),
    "glm4": Family("Glm4Config", "Glm4ForCausalLM", _GLM, _GLM_CASES),
    "granite": Family("GraniteConfig", "GraniteForCausalLM", _LLAMA | _GRANITE, _GRANITE_CASES),
    "cohere": Family("CohereConfig", "CohereForCausalLM", _COHERE, _COHERE_CASES),
    "cohere2": Family("Cohere2Config", "Cohere2ForCausalLM", _COHERE, _COHERE2_CASES),
    "starcoder2": Family("Starcoder2Config", "Starcoder2ForCausalLM", _LLAMA, _STARCODER2_CASES),
    "deepseek_v3": Family("DeepseekV3Config", "DeepseekV3ForCausalLM", _DEEPSEEK, _DEEPSEEK_CASES),
    "gpt_oss": Family("GptOssConfig", "GptOssForCausalLM", _LLAMA | _EXPERTS, _GPT_OSS_CASES),
}
"""The families and their cases."""


def write(family: str, case: str, folder: Path, *, dtype: str = "float64") -> None:
    """Write one case to `folder`: a checkpoint, its tokenizer, and what transformers computes with it in `dtype`."""
    from safetensors.numpy import save_file

    lengths, target_lengths = ((LONG,), (LONG - 7,)) if case == "long" else (LENGTHS, TARGET_LENGTHS)
    with doubles_throughout() if dtype == "float64" else ExitStack():
        for seed in count():
            model = make_model(family, case, seed, dtype)
            # Llama 4 as a whole fails without a picture in transformers 5.24.
            runs = model.language_model if family == "llama4" else model
            greedy = _greedy(runs, text_config(model.config), lengths) if model.can_generate() else None
            if greedy is None or len(set(greedy.tolist())) > 3:  # the same token for ever would prove little
                break
        write_checkpoint(model, folder)
        config = model.config if reads_pictures(model.config) else text_config(model.config)
        arrays = _expected(runs, config, lengths, target_lengths)
        save_file(arrays | ({} if greedy is None else {"greedy": greedy}), folder / "expected.safetensors")


def make_model(family: str, case: str, seed: int, dtype: str, **sizes: Any) -> Any:
    """Return a model of one case with random numbers; `sizes` are others than the case has."""
    import torch
    import transformers

    kind = CASES[family]
    config = getattr(transformers, kind.config)(**kind.sizes | kind.cases[case] | sizes)
    config._attn_implementation = config._experts_implementation = "eager"
    return _cast(drawn(getattr(transformers, kind.model)(config).eval(), seed), getattr(torch, dtype))


def _cast(model: Any, dtype: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Casting complex values")  # of the part of Llama 4 that is not run
        return model.to(dtype)


def write_checkpoint(model: Any, folder: Path) -> None:
    """Write a model to `folder`, with a tokenizer and the preprocessing of pictures, if it has them."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    _cast(copy.deepcopy(model), torch.float16).save_pretrained(folder)  # a copy: what is not stored stays exact
    (folder / "generation_config.json").unlink(missing_ok=True)
    if hasattr(text_config(model.config), "vocab_size"):
        write_tokenizer(folder, text_config(model.config))
    if reads_pictures(model.config):
        write_processor(folder, model.config)


def write_processor(folder: Path, config: Any) -> None:
    """Write the preprocessing of pictures, with the defaults of the family and the sizes of the model."""
    import transformers

    height, width = image_size(config)
    if config.model_type == "vit":
        processor = transformers.ViTImageProcessorPil(size={"height": height, "width": width})
    else:
        kind = getattr(transformers, f"{'Bit' if config.model_type == 'dinov2' else 'CLIP'}ImageProcessorPil")
        crop = {"height": height, "width": width}
        processor = kind(size={"shortest_edge": min(crop.values())}, crop_size=crop)
    processor.save_pretrained(folder)


def image_size(config: Any) -> tuple[int, int]:
    """Return the height and width of the pictures of a model; for DINOv2 others than those of its stored positions."""
    vision = getattr(config, "vision_config", config)
    height, width = (size, size) if isinstance(size := vision.image_size, int) else size
    if config.model_type != "dinov2":
        return height, width
    patch_height, patch_width = (size, size) if isinstance(size := vision.patch_size, int) else size
    return height - patch_height, width + patch_width


def text_config(config: Any) -> Any:
    """Return the configuration of the half that reads texts; that of a model of one half as it is."""
    return getattr(config, "text_config", config)


def reads_pictures(config: Any) -> bool:
    """Tell whether a model, or half of it, looks at pictures, and regard runs that."""
    return config.model_type not in TEXT_PART_ONLY and hasattr(getattr(config, "vision_config", config), "patch_size")


def drawn(model: Any, seed: int) -> Any:
    """Return a model with numbers of float16, away from the zeros and ones that hide a forgotten term."""
    import torch

    torch.manual_seed(seed)
    for module in model.modules():
        if hasattr(module, "scalar_embed_scale"):  # else a root that was rounded to float32
            module.embed_scale = torch.tensor(module.scalar_embed_scale, dtype=torch.float32)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.ndim < 2:
                is_factor = name.endswith(("weight", "scale", "scalar"))
                drawn = 0.5 + torch.rand(tensor.shape) if is_factor else 0.2 * torch.randn(tensor.shape)
            elif "position" in name:
                drawn = 2.0 * torch.randn(tensor.shape)
            else:
                is_table = "embed" in name or "shared" in name
                drawn = torch.randn(tensor.shape) * (1.0 if is_table else 1.5 * tensor.shape[-1] ** -0.5)
            if name.endswith(".q.weight"):  # T5 does not scale its scores; its queries are small instead
                drawn *= 0.5
            tensor.copy_(drawn.half())
    return model


def model_inputs(config: Any, lengths: tuple[int, ...], target_lengths: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Return the arguments of a model: random texts of these lengths, with targets, or pictures, or both."""
    arrays = {}
    if reads_pictures(config):
        arrays["pixel_values"] = pixel_values(config, len(lengths))
    if hasattr(text_config(config), "vocab_size"):
        arrays["input_ids"], arrays["attention_mask"] = _batch(text_config(config), lengths)
    if config.is_encoder_decoder:
        ids, arrays["decoder_attention_mask"] = _batch(config, target_lengths)
        ids[:, 0] = _start(config)
        arrays["decoder_input_ids"] = ids
    return arrays


_STORED = {"pixel_values": "pixel_values", "input_ids": "ids", "decoder_input_ids": "target_ids"}


def _expected(
    model: Any, config: Any, lengths: tuple[int, ...], target_lengths: tuple[int, ...]
) -> dict[str, np.ndarray]:
    import torch

    arrays = model_inputs(config, lengths, target_lengths)
    expected = {_STORED[name]: x for name, x in arrays.items() if name in _STORED}
    expected |= {"lengths": np.array(lengths)} if "ids" in expected else {}
    expected |= {"target_lengths": np.array(target_lengths)} if config.is_encoder_decoder else {}
    given = {name: torch.tensor(x) for name, x in arrays.items()}
    if "pixel_values" in given:
        given["pixel_values"] = given["pixel_values"].to(next(model.parameters()).dtype)
    with torch.no_grad():
        out = model(**given, output_attentions=True, output_hidden_states=True)
    if config.is_encoder_decoder:
        expected |= {"memory": out.encoder_last_hidden_state, "hidden": out.decoder_hidden_states[-1]}
        stacks = {"encoder.": out.encoder_hidden_states, "decoder.": out.decoder_hidden_states}
        weights = {"encoder.blocks.{}.attn.weights": out.encoder_attentions}
        weights["decoder.blocks.{}.attn.weights"] = out.decoder_attentions
        weights["decoder.blocks.{}.cross_attn.weights"] = out.cross_attentions
    else:
        halves = {"": out}
        if hasattr(config, "text_config"):
            expected["similarity"] = out.logits_per_image
            halves = {"text.": out.text_model_output, "vision.": out.vision_model_output}
        stacks = {scope: half.hidden_states for scope, half in halves.items()}
        weights = {f"{scope}blocks.{{}}.attn.weights": half.attentions for scope, half in halves.items()}
        for scope, half in halves.items():
            looks_or_embeds = "pixel_values" in arrays or "text_embeds" in half
            expected[f"{scope}hidden"] = half.last_hidden_state if looks_or_embeds else half.hidden_states[-1]
            embedding = half.pooler_output if scope else half.get("image_embeds", half.get("text_embeds"))
            if embedding is not None:
                expected[f"{scope}embedding"] = embedding  # after the projection
            elif "pixel_values" in arrays and "logits" not in half:
                expected["pooled"] = half.pooler_output
    for scope, states in stacks.items():  # the embeddings, what each block returns; the last with a norm behind it
        expected |= _by_layer(scope + "blocks.{}.output", states[1:-1])
    linear = [kind == "linear_attention" for kind in getattr(config, "layer_types", None) or ()]
    for name, layers in weights.items() if lengths != (LONG,) else ():
        numbers = [i for i, has_no_map in enumerate(linear) if not has_no_map] if any(linear) else range(len(layers))
        expected |= {name.format(i): values for i, values in zip(numbers, layers, strict=True)}
    if "logits" in out:
        expected["logits"] = out.logits
    return {name: np.ascontiguousarray(value) for name, value in expected.items()}


def pixel_values(config: Any, count: int) -> np.ndarray:
    """Return random numbers of so many pictures, ``B C Y X``."""
    height, width = image_size(config)
    return np.random.default_rng(4).standard_normal((count, 3, height, width)).astype(np.float16).astype(np.float64)


def _greedy(model: Any, config: Any, lengths: tuple[int, ...]) -> np.ndarray:
    """Return the tokens that the first text goes on with."""
    import torch
    from transformers import GenerationConfig

    ids = torch.tensor(_batch(config, lengths)[0][:1])
    model.generation_config = GenerationConfig(
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        pad_token_id=config.pad_token_id,
        decoder_start_token_id=_start(config) if config.is_encoder_decoder else None,
    )  # nothing ends it before
    out = model.generate(ids, attention_mask=torch.ones_like(ids))
    return np.asarray(out[0, -NEW_TOKENS:].numpy())


def _start(config: Any) -> int:
    start = getattr(config, "decoder_start_token_id", None)
    return int(config.pad_token_id if start is None else start)


def _batch(config: Any, lengths: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return random texts of these lengths, padded at the right, and where there is text.

    In the first of them a padding token stands in the midst, a token like any other but for those who count positions.
    """
    rng = np.random.default_rng(3)
    ids = rng.integers(5, config.vocab_size, (len(lengths), max(lengths)))
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    ids[~mask] = ids[0, 2] = config.pad_token_id or 0
    if config.model_type == "clip_text_model":  # whose end token stands for the text
        ids[0, -2] = ids[1:, 1] = config.eos_token_id
    return ids, mask.astype(np.int64)


def _by_layer(name: str, layers: Any) -> dict[str, Any]:
    return {name.format(i): values for i, values in enumerate(layers)}


def write_tokenizer(folder: Path, config: Any) -> None:
    """Write a tokenizer that calls the tokens w0, w1, … and the one for padding <pad>."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    pieces = [f"w{i}" for i in range(config.vocab_size)]
    pieces[config.pad_token_id or 0] = "<pad>"
    tokenizer = Tokenizer(WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="w3"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(["<pad>"])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)


@contextmanager
def doubles_throughout() -> Iterator[None]:
    """Let code that asks for float32, as norms, rotations and buckets of transformers do, get float64."""
    import safetensors.torch  # noqa: F401  (its tables of dtypes are made on import: before float32 is another)
    import torch

    with ExitStack() as stack:
        for name in ("float32", "float"):
            stack.enter_context(mock.patch.object(torch, name, torch.float64))
        stack.enter_context(mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
        yield


def main(families: list[str]) -> None:
    """Write the cases of `families`, or of all, to the repository."""
    import transformers

    transformers.logging.disable_progress_bar()
    for family in families or CASES:
        for case in CASES[family].cases:
            write(family, case, FOLDER / family / case)
            print(family, case, sum(f.stat().st_size for f in (FOLDER / family / case).iterdir()), "bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
