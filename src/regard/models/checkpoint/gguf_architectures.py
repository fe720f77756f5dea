"""How each GGUF architecture names its configuration and its tensors, and how it stores them: an entry for each.

The names and layouts are those of llama.cpp's converter (`conversion/`) and of the `gguf` library
(`gguf/tensor_mapping.py`). What entries are made of is in `gguf_layout.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.validation import truncate
from regard.formats.gguf import GgufFile
from regard.models.checkpoint.gguf_layout import (
    Architecture,
    Fields,
    Step,
    alternating,
    by_head,
    deinterleaved,
    keys_and_values,
    minus_one,
    read_rotation,
    transposed,
)

_SIZES = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "vocab_size": "vocab_size",
}
_FIELDS = {
    **_SIZES,
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
_OWN_HEAD_DIM = {"attention.key_length": "head_dim"}  # of a family whose default is not E / H
_EXPERTS = {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"}
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
_QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_POST_NORMS = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
_EXPERT_TENSORS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{x}.gate_proj",
    "ffn_up_exps": "mlp.experts.{x}.up_proj",
    "ffn_down_exps": "mlp.experts.{x}.down_proj",
}
_INTERLEAVED = {
    "attn_q.weight": deinterleaved("num_attention_heads"),
    "attn_q.bias": deinterleaved("num_attention_heads"),
    "attn_k.weight": deinterleaved("num_key_value_heads"),
    "attn_k.bias": deinterleaved("num_key_value_heads"),
}


# Steps: what is read of a file beyond renaming.


def _bias(field: str, tensor: str) -> Step:
    """Return a step that tells by the first block whether linear maps have a bias."""

    def step(fields: Fields, stored: Fields, file: GgufFile) -> None:  # noqa: ARG001
        fields[field] = f"blk.0.{tensor}.bias" in file

    return step


_ATTENTION_BIAS, _MLP_BIAS = _bias("attention_bias", "attn_q"), _bias("mlp_bias", "ffn_gate")


def _types_of_layers(is_full: Callable[[int], bool]) -> Step:
    """Return a step that says which layers attend to all tokens; the others have the sliding window."""

    def step(fields: Fields, stored: Fields, file: GgufFile) -> None:  # noqa: ARG001
        layers = fields.get("num_hidden_layers")
        layers = min(layers, 1 << 16) if isinstance(layers, int) else 0
        no_window = not fields.get("sliding_window")  # then the converter leaves the key out
        fields["layer_types"] = [
            "full_attention" if no_window or is_full(i) else "sliding_attention" for i in range(layers)
        ]

    return step


def _gemma_scale(largest: int) -> Step:
    """Return a step for the scale of the scores: the largest model, by its layers, has E / H in place of D."""

    def step(fields: Fields, stored: Fields, file: GgufFile) -> None:  # noqa: ARG001
        even = _even(fields)
        is_largest = fields.get("num_hidden_layers") == largest
        fields["query_pre_attn_scalar"] = even if is_largest else fields.get("head_dim", even)

    return step


def _gpt_oss_rotation(fields: Fields, stored: Fields, file: GgufFile) -> None:  # noqa: ARG001
    if "rope_scaling" in fields:
        fields["rope_scaling"]["truncate"] = False


def _no_experts(fields: Fields, stored: Fields, file: GgufFile) -> None:  # noqa: ARG001
    """Pass over a number of experts that is 0, which some files have."""
    if stored.get("expert_count") == 0:
        del stored["expert_count"]
        stored.pop("expert_used_count", None)


def _no_window(fields: Fields, stored: Fields, file: GgufFile) -> None:  # noqa: ARG001
    if fields.get("sliding_window") == 0:
        del fields["sliding_window"]


def _even(fields: Fields) -> int:
    """Return E / H, and 0 where it is none."""
    width, heads = fields.get("hidden_size"), fields.get("num_attention_heads")
    return width // heads if isinstance(width, int) and isinstance(heads, int) and heads > 0 else 0


def _heads(*, partial: str | None = None, with_kv_heads: bool = True) -> Step:
    """Return a step that reads the width of heads and their rotation.

    `partial` is the field for the share of a head that is rotated; without it another number of features than that of a
    head is unknown, as another width of values is. Without `with_kv_heads` the family has no field for them.
    """

    def step(fields: Fields, stored: Fields, file: GgufFile) -> None:
        if "num_attention_heads" not in fields:
            return  # which the reader reports
        even = _even(fields)
        key = stored.pop("attention.key_length", even)
        if key != even:
            fields["head_dim"] = key
        head_dim = fields.get("head_dim", even)
        for name in ("attention.value_length", "rope.dimension_count"):
            if stored.get(name) == head_dim:
                del stored[name]
        if with_kv_heads:
            fields.setdefault("num_key_value_heads", fields["num_attention_heads"])
        read_rotation(fields, stored, file, head_dim)
        rotated = stored.get("rope.dimension_count")
        if partial is not None and isinstance(rotated, int) and isinstance(head_dim, int) and 0 < rotated < head_dim:
            del stored["rope.dimension_count"]
            share = rotated / head_dim
            fields[partial] = share if int(head_dim * share) == rotated else math.nextafter(share, 1)

    return step


_SOFTMAX, _SIGMOID = 1, 2  # how experts are weighted


def _deepseek(fields: Fields, stored: Fields, file: GgufFile) -> None:
    """Read the experts of DeepSeek-V3, and the sizes of its attention.

    Files since 2025 say how llama.cpp computes it, with a head of latents for all, and how the model does (``_mla``).
    """
    gating = stored.pop("expert_gating_func", _SOFTMAX)
    if gating != _SIGMOID:
        by = "softmax, as DeepSeek-V2 does" if gating == _SOFTMAX else f"another function ({truncate(gating)})"
        raise RegardError(
            f"{file.path} chooses experts by {by}; regard runs DeepSeek-V3, which does so by sigmoid: choose such a "
            "model, or watch this one where transformers runs it, with regard.capture"
        )
    used = {name: stored.pop(f"attention.{name}", None) for name in ("key_length", "value_length")}
    own = {name: stored.pop(f"attention.{name}_mla", width) for name, width in used.items()}
    rotated, key = stored.pop("rope.dimension_count", None), own["key_length"]
    fields |= {"qk_rope_head_dim": rotated, "v_head_dim": own["value_length"]}
    fields["qk_nope_head_dim"] = key - rotated if isinstance(key, int) and isinstance(rotated, int) else key
    stored.pop("attention.head_count_kv", None)
    fields["num_key_value_heads"] = fields.get("num_attention_heads")
    fields["attention_bias"] = "blk.0.attn_kv_a_mqa.bias" in file
    for name, value in (("q_lora_rank", None), ("routed_scaling_factor", 1.0), ("norm_topk_prob", False)):
        fields.setdefault(name, value)  # what llama.cpp does without a key
    if "n_group" not in fields and fields.get("n_routed_experts") != 256:
        fields |= {"n_group": 1, "topk_group": 1}  # older files do not say it; DeepSeek-V3 itself has the default
    share = stored.pop("rope.scaling.yarn_log_multiplier", None)
    read_rotation(fields, stored, file, rotated)
    if isinstance(share, float) and "rope_scaling" in fields:  # a tenth of it; both shares are the same in llama.cpp
        fields["rope_scaling"] |= dict.fromkeys(("mscale", "mscale_all_dim"), round(10 * share, 6))


def _encoder(fields: Fields, stored: Fields, file: GgufFile) -> None:  # noqa: ARG001
    """Read what an encoder's file has beside sizes."""
    if stored.get("attention.causal") is False:
        del stored["attention.causal"]
    for key in ("classifier.output_labels", "classifier.pooling_type"):  # of a head that is not read
        stored.pop(key, None)


def _segments(fields: Fields, stored: Fields, file: GgufFile) -> None:  # noqa: ARG001
    fields["type_vocab_size"] = file.shapes.get("token_types.weight", (0,))[0]


def _modern_bert(fields: Fields, stored: Fields, file: GgufFile) -> None:
    """Read which parts of a ModernBERT have biases; some files say the epsilon of its norms twice."""
    fields["norm_bias"] = "output_norm.bias" in file
    fields |= {"attention_bias": "blk.0.attn_qkv.bias" in file, "mlp_bias": "blk.0.ffn_up.bias" in file}
    _same(fields, stored, {"attention.layer_norm_rms_epsilon": "norm_eps"})


def _t5(fields: Fields, stored: Fields, file: GgufFile) -> None:
    """Read whether the feed-forward layers are gated, by which llama.cpp knows their activation."""
    fields["feed_forward_proj"] = "gated-gelu" if _is_gated(file) else "relu"
    _same(fields, stored, {"attention.value_length": "d_kv", "attention.layer_norm_epsilon": "layer_norm_epsilon"})


def _is_gated(file: GgufFile) -> bool:
    return "enc.blk.0.ffn_gate.weight" in file


def _same(fields: Fields, stored: Fields, names: Mapping[str, str]) -> None:
    """Take the keys that say once more what fields have; another value is left."""
    for key, name in names.items():
        if stored.get(key) == fields.setdefault(name, stored.get(key)):
            stored.pop(key, None)


# Entries.


def _llama_like(
    model_type: str,
    *steps: Step,
    fields: dict[str, str] | None = None,
    tensors: dict[str, str] | None = None,
    constants: Mapping[str, Any] | None = None,
    **more: Any,
) -> Architecture:
    """Return the entry of a decoder whose names and activation are those of Llama; further ones are given."""
    return Architecture(
        model_type,
        _FIELDS | (fields or {}),
        _TENSORS | (tensors or {}),
        {"hidden_act": "silu", **(constants or {})},
        (_heads(), _no_experts, *steps),
        **more,
    )


def _gemma(
    model_type: str, *steps: Step, fields: dict[str, str], constants: Mapping[str, Any], norms: dict[str, str]
) -> Architecture:
    """Return the entry of a Gemma, whose norms are stored with one added; `norms` are further ones."""
    tensors = _TENSORS | _POST_NORMS | {"ffn_norm": "pre_feedforward_layernorm"} | norms
    stored_plus_one = (name for name in tensors if name.endswith("_norm"))
    more = {"final_logit_softcapping": "final_logit_softcapping", "attention.sliding_window": "sliding_window"}
    return Architecture(
        model_type,
        _FIELDS | _OWN_HEAD_DIM | more | fields,
        tensors,
        {"hidden_activation": "gelu_pytorch_tanh", **constants},
        (_heads(), *steps),
        conversions={f"{name}.weight": minus_one for name in stored_plus_one},
    )


def _llama(file: GgufFile) -> Architecture:
    """Return the entry of Llama, or of Mixtral, which has experts."""
    experts = file.metadata.get("llama.expert_count", 0)
    if not isinstance(experts, int) or experts == 0:
        return _llama_like("llama", _ATTENTION_BIAS, _MLP_BIAS, conversions=_INTERLEAVED)
    tensors = {
        "ffn_gate_inp": "block_sparse_moe.gate",
        "ffn_gate_exps": "block_sparse_moe.experts.{x}.w1",
        "ffn_up_exps": "block_sparse_moe.experts.{x}.w3",
        "ffn_down_exps": "block_sparse_moe.experts.{x}.w2",
    }
    return _llama_like("mixtral", fields=_EXPERTS, tensors=tensors, conversions=_INTERLEAVED)


def _bert_like(model_type: str, tensors: Mapping[str, str], *steps: Step, **more: Any) -> Architecture:
    """Return the entry of an encoder with the fields of BERT."""
    fields = {**_SIZES, "attention.layer_norm_epsilon": "layer_norm_eps", "rope.freq_base": "rope_theta"}
    more = {"fields": fields, "constants": {}, **more}
    return Architecture(model_type, tensors=tensors, steps=(_heads(with_kv_heads=False), _encoder, *steps), **more)


_T5_FIELDS = {
    "block_count": "num_layers",
    "decoder_block_count": "num_decoder_layers",
    "context_length": "n_positions",
    "embedding_length": "d_model",
    "feed_forward_length": "d_ff",
    "attention.head_count": "num_heads",
    "attention.key_length": "d_kv",
    "attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
    "attention.relative_buckets_count": "relative_attention_num_buckets",
    "decoder_start_token_id": "decoder_start_token_id",
    "vocab_size": "vocab_size",
}


def _t5_stack(file: GgufFile, short: str, stack: str, *sublayers: str) -> dict[str, str]:
    """Return the names of the tensors of the encoder or of the decoder."""
    tensors = {f"{short}.output_norm": f"{stack}.final_layer_norm"}
    for number, name in enumerate((*sublayers, "DenseReluDense")):
        layer = f"{stack}.block.{{i}}.layer.{number}"
        what = {"SelfAttention": "attn", "EncDecAttention": "cross_attn", "DenseReluDense": "ffn"}[name]
        parts = {"q": "q", "k": "k", "v": "v", "o": "o", "rel_b": "relative_attention_bias"}
        if what == "ffn":
            parts = {"gate": "wi_0", "up": "wi_1" if _is_gated(file) else "wi", "down": "wo"}
        tensors |= {f"{short}.{what}_{part}": f"{layer}.{name}.{hf_name}" for part, hf_name in parts.items()}
        tensors[f"{short}.{what}_norm"] = f"{layer}.layer_norm"
    return tensors


def _t5_model(file: GgufFile) -> Architecture:
    tensors = {"token_embd": "shared", "output": "lm_head", **_t5_stack(file, "enc", "encoder", "SelfAttention")}
    tensors |= _t5_stack(file, "dec", "decoder", "SelfAttention", "EncDecAttention")
    return Architecture("t5", _T5_FIELDS, tensors, steps=(_t5,), layer="")


ARCHITECTURES: Mapping[str, Architecture | Callable[[GgufFile], Architecture]] = MappingProxyType(
    {
        "llama": _llama,
        "smollm3": _llama_like("smollm3", _ATTENTION_BIAS, _MLP_BIAS, conversions=_INTERLEAVED),
        "qwen2": _llama_like("qwen2"),
        "qwen3": _llama_like("qwen3", _ATTENTION_BIAS, fields=_OWN_HEAD_DIM, tensors=_QK_NORMS),
        "qwen3moe": _llama_like(
            "qwen3_moe",
            _ATTENTION_BIAS,
            fields={**_OWN_HEAD_DIM, **_EXPERTS, "expert_feed_forward_length": "moe_intermediate_size"},
            tensors=_QK_NORMS | _EXPERT_TENSORS,
            constants={"norm_topk_prob": True},
        ),
        "gemma2": _gemma(
            "gemma2",
            _types_of_layers(lambda i: i % 2 == 1),
            _gemma_scale(46),
            fields={"attn_logit_softcapping": "attn_logit_softcapping"},
            constants={"rope_theta": 10_000.0},
            norms={},
        ),
        "gemma3": _gemma(
            "gemma3_text",
            _types_of_layers(lambda i: (i + 1) % 6 == 0),
            _gemma_scale(62),
            fields={"rope.freq_base_swa": "rope_local_base_freq"},
            constants={"rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0},
            norms=_QK_NORMS,
        ),
        "olmo2": _llama_like("olmo2", _ATTENTION_BIAS, tensors=_QK_NORMS | _POST_NORMS),
        "phi3": Architecture(
            "phi3",
            _FIELDS | {"attention.sliding_window": "sliding_window"},
            _TENSORS | {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
            {"hidden_act": "silu"},
            (_heads(partial="partial_rotary_factor"), _no_window),
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
            {
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
            },
            {"activation_function": "gelu_new"},
            layer="transformer.h.{i}.",
            conversions={f"{name}.weight": transposed for name in ("attn_qkv", "attn_output", "ffn_up", "ffn_down")},
        ),
        "gptneox": Architecture(
            "gpt_neox",
            {
                **_SIZES,
                "attention.layer_norm_epsilon": "layer_norm_eps",
                "rope.freq_base": "rotary_emb_base",
                "use_parallel_residual": "use_parallel_residual",
            },
            {
                "token_embd": "gpt_neox.embed_in",
                "output_norm": "gpt_neox.final_layer_norm",
                "output": "embed_out",
                "attn_norm": "input_layernorm",
                "attn_qkv": "attention.query_key_value",
                "attn_output": "attention.dense",
                "ffn_norm": "post_attention_layernorm",
                "ffn_up": "mlp.dense_h_to_4h",
                "ffn_down": "mlp.dense_4h_to_h",
            },
            {"hidden_act": "gelu", "rotary_pct": 1.0},
            (_heads(partial="rotary_pct", with_kv_heads=False), _bias("attention_bias", "attn_qkv")),
            layer="gpt_neox.layers.{i}.",
            conversions={"attn_qkv.weight": by_head, "attn_qkv.bias": by_head},
        ),
        "gpt-oss": _llama_like(
            "gpt_oss",
            _types_of_layers(lambda i: i % 2 == 1),
            _gpt_oss_rotation,
            fields={
                **_OWN_HEAD_DIM,
                **_EXPERTS,
                "attention.sliding_window": "sliding_window",
                "expert_feed_forward_length": "intermediate_size",
            },
            tensors={
                "attn_sinks": "self_attn.sinks",
                "post_attention_norm": "post_attention_layernorm",
                "ffn_gate_inp": "mlp.router",
            },
            constants={"attention_bias": True},
            joined={
                "mlp.experts.gate_up_proj": alternating("ffn_gate_exps.weight", "ffn_up_exps.weight"),
                "mlp.experts.gate_up_proj_bias": alternating("ffn_gate_exps.bias", "ffn_up_exps.bias"),
                "mlp.experts.down_proj": alternating("ffn_down_exps.weight"),
                "mlp.experts.down_proj_bias": alternating("ffn_down_exps.bias"),
            },
        ),
        "deepseek2": Architecture(
            "deepseek_v3",
            {
                **_SIZES,
                "attention.layer_norm_rms_epsilon": "rms_norm_eps",
                "attention.q_lora_rank": "q_lora_rank",
                "attention.kv_lora_rank": "kv_lora_rank",
                "rope.freq_base": "rope_theta",
                "leading_dense_block_count": "first_k_dense_replace",
                "expert_feed_forward_length": "moe_intermediate_size",
                "expert_count": "n_routed_experts",
                "expert_used_count": "num_experts_per_tok",
                "expert_shared_count": "n_shared_experts",
                "expert_group_count": "n_group",
                "expert_group_used_count": "topk_group",
                "expert_weights_scale": "routed_scaling_factor",
                "expert_weights_norm": "norm_topk_prob",
            },
            {
                **_TENSORS,
                **_EXPERT_TENSORS,
                "attn_q_a": "self_attn.q_a_proj",
                "attn_q_a_norm": "self_attn.q_a_layernorm",
                "attn_q_b": "self_attn.q_b_proj",
                "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
                "attn_kv_a_norm": "self_attn.kv_a_layernorm",
                "attn_kv_b": "self_attn.kv_b_proj",  # of older files
                "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
                "ffn_up_shexp": "mlp.shared_experts.up_proj",
                "ffn_down_shexp": "mlp.shared_experts.down_proj",
                "exp_probs_b": "mlp.gate.e_score_correction_bias",
            },
            {"hidden_act": "silu"},
            (_deepseek,),
            joined={"self_attn.kv_b_proj.weight": keys_and_values("attn_k_b.weight", "attn_v_b.weight")},
        ),
        "bert": _bert_like(
            "bert",
            {
                "token_embd": "embeddings.word_embeddings",
                "position_embd": "embeddings.position_embeddings",
                "token_types": "embeddings.token_type_embeddings",
                "token_embd_norm": "embeddings.LayerNorm",
                "attn_q": "attention.self.query",
                "attn_k": "attention.self.key",
                "attn_v": "attention.self.value",
                "attn_output": "attention.output.dense",
                "attn_output_norm": "attention.output.LayerNorm",
                "ffn_up": "intermediate.dense",
                "ffn_down": "output.dense",
                "layer_output_norm": "output.LayerNorm",
                "cls": "classifier.dense",
                "cls.output": "classifier.out_proj",
            },
            _segments,
            constants={"hidden_act": "gelu"},
            layer="encoder.layer.{i}.",
        ),
        "nomic-bert": _bert_like(
            "nomic_bert",
            {
                "token_embd": "embeddings.word_embeddings",
                "token_types": "embeddings.token_type_embeddings",
                "token_embd_norm": "emb_ln",
                "attn_qkv": "attn.Wqkv",
                "attn_output": "attn.out_proj",
                "attn_output_norm": "norm1",
                "ffn_up": "mlp.fc11",
                "ffn_gate": "mlp.fc12",
                "ffn_down": "mlp.fc2",
                "layer_output_norm": "norm2",
            },
            _segments,
            constants={"hidden_act": "silu"},
            layer="encoder.layers.{i}.",
        ),
        "modern-bert": _bert_like(
            "modernbert",
            {
                "token_embd": "embeddings.tok_embeddings",
                "token_embd_norm": "embeddings.norm",
                "output_norm": "final_norm",
                "attn_norm": "attn_norm",
                "attn_qkv": "attn.Wqkv",
                "attn_output": "attn.Wo",
                "ffn_norm": "mlp_norm",
                "ffn_up": "mlp.Wi",
                "ffn_down": "mlp.Wo",
                "cls": "head.dense",
                "cls.norm": "head.norm",
                "cls.output": "classifier",
            },
            _modern_bert,
            fields={
                **_SIZES,
                "attention.layer_norm_epsilon": "norm_eps",
                "attention.sliding_window": "local_attention",
                "attention.sliding_window_pattern": "global_attn_every_n_layers",
                "rope.freq_base": "global_rope_theta",
                "rope.freq_base_swa": "local_rope_theta",
                "hidden_activation": "hidden_activation",
            },
            layer="layers.{i}.",
        ),
        "t5": _t5_model,
        "t5encoder": _t5_model,
    }
)
"""The entry of each; a function where it depends on the file."""
