"""How each GGUF architecture names its configuration and its tensors, and how it stores them: an entry for each.

The names and layouts are those of llama.cpp's converter (`conversion/`) and of the `gguf` library
(`gguf/tensor_mapping.py`). What entries are made of is in `gguf_layout.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import truncate
from regard.formats.gguf import GgufFile
from regard.models.checkpoint.config import MAX_LAYERS
from regard.models.checkpoint.gguf_layout import (
    ROPE_FREQS,
    Architecture,
    Draft,
    Fields,
    Step,
    alternating,
    by_head,
    computed,
    deinterleaved,
    grouped,
    keys_and_values,
    minus_one,
    read_rotation,
    renamed,
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
_ROPE_BASE = 10_000.0  # without a key
_UNROTATED = 1e29  # by which a frequency is divided that is meant to be 0
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

    def step(draft: Draft) -> None:
        draft.fields[field] = f"blk.0.{tensor}.bias" in draft.file

    return step


_ATTENTION_BIAS, _MLP_BIAS = _bias("attention_bias", "attn_q"), _bias("mlp_bias", "ffn_gate")


def _gemma_scale(largest: int) -> Step:
    """Return a step for the scale of the scores: the largest model, by its layers, has E / H in place of D."""

    def step(draft: Draft) -> None:
        even, is_largest = _even(draft.fields), draft.fields.get("num_hidden_layers") == largest
        draft.fields["query_pre_attn_scalar"] = even if is_largest else draft.fields.get("head_dim", even)

    return step


def _gemma3_windows(draft: Draft) -> None:
    """Let every sixth layer attend to all tokens; without windows, where the converter leaves their key out, all do."""
    draft.fields["sliding_window_pattern"] = 6 if "sliding_window" in draft.fields else 1


def _gemma4(draft: Draft) -> None:
    """Read what differs between layers, of which a file has lists, and the rotation of full layers, by its factors."""
    fields, stored, file = draft.fields, draft.stored, draft.file
    layers, shared = fields.get("num_hidden_layers"), fields.get("num_kv_shared_layers")
    windows = _of_layers(draft, stored.pop("attention.sliding_window_pattern", None))
    windowed = all(isinstance(each, bool) for each in windows)
    if not windowed or type(shared) is not int or type(layers) is not int or shared >= layers:
        raise RegardError(
            f"{file.path} must say which layers have a window (gemma4.attention.sliding_window_pattern), and how many, "
            "not all, read keys of others (gemma4.attention.shared_kv_layers)"
        )
    fields["layer_types"] = ["sliding_attention" if each else "full_attention" for each in windows]
    kv_heads = _of_layers(draft, fields.pop("num_key_value_heads", fields.get("num_attention_heads")))
    widths = _of_layers(draft, fields.pop("intermediate_size", None))
    own = layers - shared
    kinds = {kind: {n for n, each in zip(kv_heads, windows, strict=True) if each is kind} for kind in (True, False)}
    halves = {*widths[:own]}, {*widths[own:]}
    if any(len(each) > 1 for each in (*kinds.values(), *halves)):
        raise RegardError(
            f"{file.path} has layers of one kind with different sizes: gemma4.attention.head_count_kv "
            f"{truncate(kv_heads)}, gemma4.feed_forward_length {truncate(widths)}"
        )
    full, local = (next(iter(kinds[kind] or kinds[not kind])) for kind in (False, True))
    fields |= {"num_key_value_heads": local, "num_global_key_value_heads": full}
    if widths[0] is not None:
        fields["intermediate_size"] = widths[0]
    fields["use_double_wide_mlp"] = widths[-1] != widths[0]
    if fields["use_double_wide_mlp"] and (type(widths[0]) is not int or widths[-1] != 2 * widths[0]):
        raise RegardError(f"{file.path} has feed-forward layers of widths {truncate(widths)}; the last may be doubled")
    fields.setdefault("global_head_dim", _even(fields))
    for suffix, dim in (("", fields["global_head_dim"]), ("_swa", fields.get("head_dim"))):
        for name in ("attention.value_length", "rope.dimension_count"):
            if stored.get(name + suffix) == dim:
                del stored[name + suffix]
    fields["attention_k_eq_v"] = any(
        f"blk.{i}.attn_v.weight" not in file for i, has_window in enumerate(windows[:own]) if not has_window
    )
    fields["enable_moe_block"] = "num_experts" in fields
    fields["vocab_size_per_layer_input"] = fields["vocab_size"]
    fields["rope_parameters"] = {
        "sliding_attention": {"rope_type": "default", "rope_theta": fields.pop("rope_local_base_freq", None)},
        "full_attention": {
            "rope_type": "proportional",
            "rope_theta": fields.pop("rope_theta"),
            "partial_rotary_factor": _rotated_share(file, fields["global_head_dim"]),
        },
    }


def _of_layers(draft: Draft, value: Any) -> list[Any]:
    """Return a value for each layer: of a list, or the same for all."""
    layers = draft.fields.get("num_hidden_layers")
    count = layers if type(layers) is int and 0 < layers <= MAX_LAYERS else 1
    values = value if isinstance(value, list) else [value] * count
    if len(values) != count:
        raise RegardError(f"{draft.file.path} must have a value for each of {count} layers, got {truncate(value)}")
    return values


def _rotated_share(file: GgufFile, head_dim: Any) -> float:
    """Return the share of a head that is rotated: the frequencies of the other pairs are divided by a huge factor."""
    factors = file[ROPE_FREQS] if ROPE_FREQS in file else np.zeros(0)
    rotated = int((factors == 1).sum())
    is_share = bool((factors[:rotated] == 1).all() and (factors[rotated:] >= _UNROTATED).all())
    if not is_share or not rotated or not isinstance(head_dim, int) or 2 * len(factors) != head_dim:
        raise RegardError(
            f"the frequencies of {file.path} ({ROPE_FREQS}) must be those of full layers of Gemma 4: for each of "
            f"{truncate(head_dim)} / 2 pairs the factor 1, and for the last ones, which are not rotated, 1e30"
        )
    return 2 * rotated / head_dim


def _gpt_oss_rotation(draft: Draft) -> None:
    if draft.fields.get("rope_scaling", {}).get("rope_type") == "yarn":
        draft.fields["rope_scaling"]["truncate"] = False


def _none_at_0(*names: str) -> Step:
    """Return a step for fields, or keys without one, whose 0 says the same as their absence."""

    def step(draft: Draft) -> None:
        for name in names:
            for each in (draft.fields, draft.stored):
                if each.get(name) == 0:
                    del each[name]

    return step


_NO_EXPERTS = _none_at_0("expert_count", "expert_used_count")


def _even(fields: Fields) -> int:
    """Return E / H, and 0 where it is not a whole number."""
    width, heads = fields.get("hidden_size"), fields.get("num_attention_heads")
    if not (isinstance(width, int) and isinstance(heads, int) and heads > 0) or width % heads:
        return 0
    return width // heads


def _heads(
    *, partial: str | None = None, with_kv_heads: bool = True, with_head_dim: bool = False, rotary: bool = True
) -> Step:
    """Return a step that reads the width of heads and their rotation.

    `partial` is the field for the share of a head that is rotated; without it another number of features than that of a
    head is unknown, as another width of values is. Without `with_kv_heads` the family has no field for them, and one
    that is not `rotary` has none for a rotation. With `with_head_dim` the width is a field even if it is E / H: a
    saved config.json without it would have the default of transformers, which is that of one model.
    """

    def step(draft: Draft) -> None:
        fields, stored = draft.fields, draft.stored
        if "num_attention_heads" not in fields:
            return  # which the reader reports
        even = _even(fields)
        head_dim = stored.pop("attention.key_length", even)
        if head_dim != even or (with_head_dim and even):
            fields["head_dim"] = head_dim
        for name in ("attention.value_length", "rope.dimension_count"):
            if stored.get(name) == head_dim:
                del stored[name]
        if with_kv_heads:
            fields.setdefault("num_key_value_heads", fields["num_attention_heads"])
        if rotary:
            read_rotation(draft, head_dim)
        rotated = stored.get("rope.dimension_count")
        if partial is not None and isinstance(rotated, int) and isinstance(head_dim, int) and 0 < rotated < head_dim:
            del stored["rope.dimension_count"]
            share = rotated / head_dim
            fields[partial] = share if int(head_dim * share) == rotated else math.nextafter(share, 1)

    return step


def _granite(draft: Draft) -> None:
    """Read the scale of the scores; with a rotation that is not "finetuned", llama.cpp does not rotate."""
    head_dim = draft.fields.get("head_dim")
    if isinstance(head_dim, int) and head_dim > 0:
        draft.fields.setdefault("attention_multiplier", 1 / math.sqrt(head_dim))
    if draft.file.metadata.get("granite.rope.scaling.finetuned") is False:
        draft.stored["rope.scaling.finetuned"] = False


def _norms_of_heads(draft: Draft) -> None:
    draft.fields["use_qk_norm"] = "blk.0.attn_q_norm.weight" in draft.file


_SOFTMAX, _SIGMOID = 1, 2  # how experts are weighted


def _deepseek(draft: Draft) -> None:
    """Read the experts of DeepSeek-V3, and the sizes of its attention.

    Files since 2025 say how llama.cpp computes it, with a head of latents for all, and how the model does (``_mla``).
    """
    fields, stored = draft.fields, draft.stored
    gating = stored.pop("expert_gating_func", _SOFTMAX)
    if gating != _SIGMOID:
        by = "softmax, as DeepSeek-V2 does" if gating == _SOFTMAX else f"another function ({truncate(gating)})"
        raise RegardError(
            f"{draft.file.path} chooses experts by {by}; regard runs DeepSeek-V3, which does so by sigmoid: choose "
            "such a model, or watch this one where transformers runs it, with regard.capture"
        )
    used = {name: stored.pop(f"attention.{name}", None) for name in ("key_length", "value_length")}
    own = {name: stored.pop(f"attention.{name}_mla", width) for name, width in used.items()}
    rotated, key = stored.pop("rope.dimension_count", None), own["key_length"]
    fields |= {"qk_rope_head_dim": rotated, "v_head_dim": own["value_length"]}
    fields["qk_nope_head_dim"] = key - rotated if isinstance(key, int) and isinstance(rotated, int) else key
    stored.pop("attention.head_count_kv", None)
    fields["num_key_value_heads"] = fields.get("num_attention_heads")
    fields["attention_bias"] = "blk.0.attn_kv_a_mqa.bias" in draft.file
    tenth = "rope.scaling.yarn_log_multiplier"  # of both shares, which are the same in llama.cpp
    share = round(10 * stored.pop(tenth), 6) if isinstance(stored.get(tenth), float) else 0
    read_rotation(draft, rotated)
    if share and fields["rope_scaling"]["rope_type"] != "default":
        fields["rope_scaling"] |= dict.fromkeys(("mscale", "mscale_all_dim"), share)


def _encoder(draft: Draft) -> None:
    """Read what an encoder's file has beside sizes; one that does not say whether it is causal is refused."""
    if draft.stored.setdefault("attention.causal", True) is False:
        del draft.stored["attention.causal"]
    for key in ("classifier.output_labels", "classifier.pooling_type"):  # of a head that is not read
        draft.stored.pop(key, None)


def _segments(draft: Draft) -> None:
    draft.fields["type_vocab_size"] = draft.file.shapes.get("token_types.weight", (0,))[0]


def _modern_bert(draft: Draft) -> None:
    """Read which parts of a ModernBERT have biases; some files say the epsilon of its norms twice."""
    for field, tensor in (("norm", "output_norm"), ("attention", "blk.0.attn_qkv"), ("mlp", "blk.0.ffn_up")):
        draft.fields[f"{field}_bias"] = f"{tensor}.bias" in draft.file
    _same(draft, {"attention.layer_norm_rms_epsilon": "norm_eps"})


def _t5(draft: Draft) -> None:
    """Read what llama.cpp knows by the tensors: whether the feed-forward layers are gated, and there is a decoder.

    A tied head, whose vectors are divided by the root of their width, may be stored once more.
    """
    fields, file = draft.fields, draft.file
    fields["feed_forward_proj"] = "gated-gelu" if _is_gated(file) else "relu"
    fields["is_encoder_decoder"] = any(name.startswith("dec.") for name in file)
    fields.setdefault("pad_token_id", 0)
    if not fields["is_encoder_decoder"]:
        fields.setdefault("decoder_start_token_id", 0)  # without effect
    if "output.weight" in file:
        fields["tie_word_embeddings"] = _is_copy(file, "output.weight", "token_embd.weight")
    fields["scale_decoder_outputs"] = fields["tie_word_embeddings"]
    _same(draft, {"attention.value_length": "d_kv", "attention.layer_norm_epsilon": "layer_norm_epsilon"})


def _is_gated(file: GgufFile) -> bool:
    return "enc.blk.0.ffn_gate.weight" in file


def _is_copy(file: GgufFile, name: str, other: str) -> bool:
    """Tell whether a matrix is another one, but for the rounding of their blocks, by rows from all of it.

    The cosine of a matrix and its copy in blocks of 2 bits is above 0.8, that of two matrices near 0.
    """
    shape = file.shapes[name]
    if len(shape) != 2 or file.shapes.get(other) != shape:
        return False
    rows = range(0, shape[0], max(shape[0] // 64, 1))
    x, y = (np.array([file.read(each, row) for row in rows], np.float64) for each in (name, other))
    with np.errstate(all="ignore"):  # of weights that are not finite, which are refused later
        return bool((x * y).sum() > math.sqrt((x * x).sum() * (y * y).sum() / 2))


def _same(draft: Draft, names: Mapping[str, str]) -> None:
    """Take the keys that say once more what fields have; another value is left."""
    for key, name in names.items():
        if name in draft.fields and draft.stored.get(key) == draft.fields[name]:
            del draft.stored[key]


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
        {"hidden_act": "silu", "rope_theta": _ROPE_BASE, **(constants or {})},
        (_heads(with_head_dim=True), _NO_EXPERTS, *steps),
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
        _FIELDS | more | fields,
        tensors,
        {"hidden_activation": "gelu_pytorch_tanh", "rope_theta": _ROPE_BASE, **constants},
        (_heads(with_head_dim=True), *steps),
        conversions={f"{name}.weight": minus_one for name in stored_plus_one},
    )


def _cohere(
    model_type: str,
    *steps: Step,
    fields: Mapping[str, str] = MappingProxyType({}),
    tensors: Mapping[str, str] = MappingProxyType({}),
    constants: Mapping[str, Any] = MappingProxyType({}),
) -> Architecture:
    """Return the entry of a Command R, with further fields, tensors and constants."""
    return Architecture(
        model_type,
        {**_FIELDS, "attention.layer_norm_epsilon": "layer_norm_eps", "logit_scale": "logit_scale", **fields},
        {**_TENSORS, **tensors},
        {"hidden_act": "silu", "rope_theta": _ROPE_BASE, **constants},
        (_heads(), *steps),
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


def _qwen3_next(file: GgufFile) -> Architecture:
    """Return the entry of Qwen3-Next, the rows of whose linear attention alternate by the heads of keys."""
    groups = file.metadata.get("qwen3next.ssm.group_count")
    tensors = {name: hf_name for name, hf_name in _TENSORS.items() if name != "ffn_norm"}
    tensors |= {"post_attention_norm": "post_attention_layernorm"} | _QK_NORMS
    stored_plus_one = [name for name in tensors if name.endswith("_norm")]
    tensors |= {f"ffn_{part}_shexp": f"mlp.shared_expert.{part}_proj" for part in ("gate", "up", "down")}
    tensors |= {"ssm_in": "linear_attn.in_proj_qkvz", "ssm_ba": "linear_attn.in_proj_ba"}  # the first in older files
    tensors |= {"ssm_dt": "linear_attn.dt_bias", "ssm_norm": "linear_attn.norm", "ssm_out": "linear_attn.out_proj"}
    return Architecture(
        "qwen3_next",
        {
            **_FIELDS,
            "expert_count": "num_experts",
            "expert_used_count": "num_experts_per_tok",
            "expert_feed_forward_length": "moe_intermediate_size",
            "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
            "full_attention_interval": "full_attention_interval",
            "ssm.conv_kernel": "linear_conv_kernel_dim",
            "ssm.state_size": "linear_key_head_dim",
            "ssm.group_count": "linear_num_key_heads",
            "ssm.time_step_rank": "linear_num_value_heads",
            "ssm.inner_size": "linear_value_head_dim",  # of all heads, see `_width_of_values`
        },
        tensors | _EXPERT_TENSORS,
        {
            **{"hidden_act": "silu", "rope_theta": _ROPE_BASE, "partial_rotary_factor": 1.0, "attention_bias": False},
            **{"norm_topk_prob": True, "decoder_sparse_step": 1, "full_attention_interval": 4},
        },
        (_heads(partial="partial_rotary_factor", with_head_dim=True), _width_of_values),
        conversions={f"{name}.weight": minus_one for name in stored_plus_one},
        joined={
            "linear_attn.in_proj_qkvz.weight": grouped(
                groups if type(groups) is int else 0, "attn_qkv.weight", "attn_gate.weight"
            ),
            "linear_attn.conv1d.weight": computed(
                "ssm_conv1d.weight", lambda shape: (*shape[:1], 1, *shape[1:]), lambda x: x[:, None]
            ),
            "linear_attn.A_log": computed("ssm_a", lambda shape: shape, lambda x: np.log(-x)),
            "mlp.shared_expert_gate.weight": computed(
                "ffn_gate_inp_shexp.weight", lambda shape: (1, *shape) if len(shape) == 1 else shape, np.atleast_2d
            ),
        },
    )


def _width_of_values(draft: Draft) -> None:
    """Divide the width of the values of all heads of linear attention, which the file has."""
    width, heads = (draft.fields.get(name) for name in ("linear_value_head_dim", "linear_num_value_heads"))
    if isinstance(width, int) and isinstance(heads, int) and heads > 0 and width % heads == 0:
        draft.fields["linear_value_head_dim"] = width // heads


def _bert_like(
    model_type: str, tensors: Mapping[str, str], *steps: Step, fields: dict[str, str], **more: Any
) -> Architecture:
    """Return the entry of an encoder with the fields of BERT; one with a base of rotations is rotary."""
    heads = _heads(with_kv_heads=False, rotary="rope.freq_base" in fields)
    return Architecture(model_type, _SIZES | fields, tensors, steps=(heads, _encoder, *steps), **more)


_BERT_NORM = {"attention.layer_norm_epsilon": "layer_norm_eps"}
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
    return Architecture("t5", _T5_FIELDS, tensors, {"relative_attention_max_distance": 128}, (_t5,), layer="")


ARCHITECTURES: Mapping[str, Architecture | Callable[[GgufFile], Architecture]] = MappingProxyType(
    {
        "llama": _llama,
        "smollm3": _llama_like(
            "smollm3",
            _ATTENTION_BIAS,
            _MLP_BIAS,
            constants={"no_rope_layer_interval": 4},
            conversions=_INTERLEAVED,
        ),
        "qwen2": _llama_like("qwen2"),
        "qwen3": _llama_like("qwen3", _ATTENTION_BIAS, tensors=_QK_NORMS),
        "qwen3moe": _llama_like(
            "qwen3_moe",
            _ATTENTION_BIAS,
            fields={**_EXPERTS, "expert_feed_forward_length": "moe_intermediate_size"},
            tensors=_QK_NORMS | _EXPERT_TENSORS,
            constants={"norm_topk_prob": True, "decoder_sparse_step": 1},
        ),
        "qwen3next": _qwen3_next,
        "gemma2": _gemma(
            "gemma2",
            _gemma_scale(46),
            fields={"attn_logit_softcapping": "attn_logit_softcapping"},
            constants={"sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
            norms={},
        ),
        "gemma3": _gemma(
            "gemma3_text",
            _none_at_0("sliding_window"),
            _gemma3_windows,
            _gemma_scale(62),
            fields={"rope.freq_base_swa": "rope_local_base_freq"},
            constants={"rope_local_base_freq": _ROPE_BASE},
            norms=_QK_NORMS,
        ),
        "gemma4": Architecture(
            "gemma4_text",
            {
                **_FIELDS,
                "attention.key_length": "global_head_dim",
                "attention.key_length_swa": "head_dim",
                "attention.shared_kv_layers": "num_kv_shared_layers",
                "attention.sliding_window": "sliding_window",
                "embedding_length_per_layer_input": "hidden_size_per_layer_input",
                "expert_count": "num_experts",
                "expert_used_count": "top_k_experts",
                "expert_feed_forward_length": "moe_intermediate_size",
                "final_logit_softcapping": "final_logit_softcapping",
                "rope.freq_base_swa": "rope_local_base_freq",
            },
            {
                **_TENSORS,
                **_QK_NORMS,
                **_POST_NORMS,
                "ffn_norm": "pre_feedforward_layernorm",
                "ffn_gate_inp": "router.proj",
                "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
                "post_ffw_norm_1": "post_feedforward_layernorm_1",
                "post_ffw_norm_2": "post_feedforward_layernorm_2",
                "per_layer_token_embd": "model.embed_tokens_per_layer",
                "per_layer_model_proj": "model.per_layer_model_projection",
                "per_layer_proj_norm": "model.per_layer_projection_norm",
                "inp_gate": "per_layer_input_gate",
                "proj": "per_layer_projection",
                "post_norm": "post_per_layer_input_norm",
            },
            {
                **{"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False, "num_kv_shared_layers": 0},
                **{"rope_theta": _ROPE_BASE, "final_logit_softcapping": 30.0},
            },
            (_none_at_0("num_experts", "top_k_experts", "final_logit_softcapping"), _gemma4),
            joined={
                "layer_scalar": renamed("layer_output_scale.weight"),
                "router.scale": renamed("ffn_gate_inp.scale"),
                "router.per_expert_scale": renamed("ffn_down_exps.scale"),
                "experts.gate_up_proj": renamed("ffn_gate_up_exps.weight"),
                "experts.down_proj": renamed("ffn_down_exps.weight"),
            },
        ),
        "olmo2": _llama_like("olmo2", _ATTENTION_BIAS, tensors=_QK_NORMS | _POST_NORMS),
        "granite": _llama_like(
            "granite",
            _ATTENTION_BIAS,
            _MLP_BIAS,
            _granite,
            fields={
                "embedding_scale": "embedding_multiplier",
                "attention.scale": "attention_multiplier",
                "residual_scale": "residual_multiplier",
                "logit_scale": "logits_scaling",
            },
            constants={"embedding_multiplier": 1.0, "residual_multiplier": 1.0},
            conversions=_INTERLEAVED,
        ),
        "command-r": _cohere("cohere", _ATTENTION_BIAS, _norms_of_heads, tensors=_QK_NORMS),
        "cohere2": _cohere(
            "cohere2",
            fields={
                "attention.sliding_window": "sliding_window",
                "attention.sliding_window_pattern": "sliding_window_pattern",
            },
            constants={"attention_bias": False, "sliding_window_pattern": 4},
        ),
        "glm4": Architecture(
            "glm4",
            _FIELDS,
            _TENSORS
            | {"post_attention_norm": "post_self_attn_layernorm", "post_ffw_norm": "post_mlp_layernorm"}
            | {"ffn_up": "mlp.gate_up_proj"},
            {"hidden_act": "silu", "rope_theta": _ROPE_BASE, "partial_rotary_factor": 1.0},
            (_heads(partial="partial_rotary_factor", with_head_dim=True), _ATTENTION_BIAS),
        ),
        "starcoder2": Architecture(
            "starcoder2",
            {**_FIELDS, "attention.layer_norm_epsilon": "norm_epsilon", "attention.sliding_window": "sliding_window"},
            _TENSORS | {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
            {"hidden_act": "gelu_pytorch_tanh", "rope_theta": _ROPE_BASE},
            (_heads(with_head_dim=True), _bias("use_bias", "attn_q"), _none_at_0("sliding_window")),
        ),
        "phi3": Architecture(
            "phi3",
            _FIELDS | {"attention.sliding_window": "sliding_window"},
            _TENSORS | {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
            {"hidden_act": "silu", "rope_theta": _ROPE_BASE, "partial_rotary_factor": 1.0},
            (_heads(partial="partial_rotary_factor"), _none_at_0("sliding_window")),
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
            {"activation_function": "gelu_new", "scale_attn_weights": True, "n_inner": 0},
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
            {"hidden_act": "gelu", "rotary_emb_base": _ROPE_BASE, "rotary_pct": 1.0},
            (_heads(partial="rotary_pct", with_kv_heads=False), _bias("attention_bias", "attn_qkv")),
            layer="gpt_neox.layers.{i}.",
            conversions={"attn_qkv.weight": by_head, "attn_qkv.bias": by_head},
        ),
        "gpt-oss": _llama_like(
            "gpt_oss",
            _gpt_oss_rotation,
            fields={
                **_EXPERTS,
                "attention.sliding_window": "sliding_window",
                "expert_feed_forward_length": "intermediate_size",
            },
            tensors={
                "attn_sinks": "self_attn.sinks",
                "post_attention_norm": "post_attention_layernorm",
                "ffn_gate_inp": "mlp.router",
            },
            constants={"attention_bias": True, "swiglu_alpha": 1.702, "swiglu_limit": 7.0},
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
            {
                **{"hidden_act": "silu", "rope_theta": _ROPE_BASE, "rope_interleave": True},
                **{"num_nextn_predict_layers": 0, "n_group": 1, "topk_group": 1},
                **{"routed_scaling_factor": 1.0, "norm_topk_prob": False},
            },
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
            fields=_BERT_NORM,
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
            fields={**_BERT_NORM, "rope.freq_base": "rope_theta"},
            constants={"hidden_act": "silu", "rope_theta": _ROPE_BASE},
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
                "attention.layer_norm_epsilon": "norm_eps",
                "attention.sliding_window": "local_attention",
                "attention.sliding_window_pattern": "global_attn_every_n_layers",
                "rope.freq_base": "global_rope_theta",
                "rope.freq_base_swa": "local_rope_theta",
                "hidden_activation": "hidden_activation",
            },
            constants={
                "hidden_activation": "gelu",
                "global_rope_theta": _ROPE_BASE,
                "global_attn_every_n_layers": 3,
            },
            layer="layers.{i}.",
        ),
        "t5": _t5_model,
        "t5encoder": _t5_model,
    }
)
"""The entry of each; a function where it depends on the file."""
