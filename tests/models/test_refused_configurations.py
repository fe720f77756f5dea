"""Configurations that no family reads: each is refused in a sentence that names the field."""

import re

import pytest

import regard
from regard import RegardError

FULL = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}  # of Gemma 4
REFUSED = {  # by the model whose configuration is changed
    "bert/gelu": [
        ({"model_type": "gpt5"}, r"model of type 'gpt5'; regard can run: .*bert"),
        ({"hidden_act": "mish"}, r"hidden_act='mish' is not supported \(supported: 'gelu'"),
        ({"position_embedding_type": "relative_key"}, r"position_embedding_type='relative_key' is not supported"),
        ({"is_decoder": True}, r"is_decoder=True is not supported"),
        ({"hidden_size": "12"}, r"hidden_size must be a whole number of at least 1, got '12'"),
        ({"layer_norm_eps": 0}, r"layer_norm_eps must be a number above 0"),
        ({"model_type": ["bert"]}, r"model of type \['bert'\]; regard can run: .*bert"),
        ({"model_type": {}}, r"model of type {}; regard can run: .*bert"),
        ({"layer_norm_eps": 10**400}, r"layer_norm_eps must be a number above 0"),
        ({"num_hidden_layers": 10**9}, r"num_hidden_layers 1000000000 is more than the maximum of 10000"),
        ({"sliding_window": 4}, r"unknown field sliding_window=4"),
        ({"num_attention_heads": 5}, r"hidden_size 12 does not split into 5 attention heads"),
        ({"hidden_act": "x", "rope_theta": 1, "vocab_size": 0}, r"vocab_size.*hidden_act.*rope"),
    ],
    "distilbert/gelu": [
        ({"activation": "mish"}, "activation='mish' is not supported"),
        ({"sinusoidal_pos_embds": 1}, "sinusoidal_pos_embds=1 is not supported"),
        ({"n_heads": 5}, "dim 12 does not split into 5 attention heads"),
        ({"n_layers": 0, "hidden_dim": None}, "n_layers must be.*hidden_dim must be"),
        ({"n_layers": 10**9}, "n_layers 1000000000 is more than the maximum of 10000"),
        ({"n_layers": 9999}, "tensors, too few for 9999 layers"),
        ({"type_vocab_size": 2, "transformers_version": "99.0"}, "unknown field type_vocab_size=2"),
        ({"is_decoder": True}, "is_decoder=True is not supported"),
    ],
    "roberta/gelu": [
        ({"hidden_act": "mish"}, "hidden_act='mish' is not supported"),
        ({"pad_token_id": None}, "pad_token_id must be a whole number from 0 to 22, got None"),
        ({"pad_token_id": 23}, "pad_token_id must be a whole number from 0 to 22, got 23"),
        ({"pad_token_id": True}, "pad_token_id must be a whole number from 0 to 22, got True"),
        ({"pad_token_id": 10}, "max_position_embeddings 11 leaves no position after pad_token_id 10"),
        ({"position_embedding_type": "relative_key"}, "'relative_key' is not supported"),
        ({"add_cross_attention": True}, "add_cross_attention=True is not supported"),
        ({"rope_theta": 1.0, "layer_norm_eps": 0}, "layer_norm_eps must.*unknown field rope_theta"),
    ],
    "xlm-roberta/gelu": [({"num_attention_heads": 7}, "hidden_size 12 does not split into 7 attention heads")],
    "albert/shared": [
        ({"inner_group_num": 2}, "inner_group_num=2 is not supported"),
        ({"num_hidden_groups": 3}, "num_hidden_groups 3 is more than the 2 layers"),
    ],
    "mpnet/plain": [({"relative_attention_num_buckets": 16}, "relative_attention_num_buckets=16 is not supported")],
    "modernbert/plain": [({"num_attention_heads": 4}, "heads of 3 features cannot rotate in pairs")],
    "nomic_bert/plain": [({"head_dim": 3}, "head_dim 3 is odd")],
    "electra/wide": [({"is_decoder": True}, "is_decoder=True is not supported")],
    "deberta-v2/plain": [
        ({"conv_kernel_size": 3}, "conv_kernel_size=3 is not supported"),
        ({"attention_head_size": 8}, "attention_head_size=8 is not supported"),
        ({"embedding_size": 8}, "embedding_size=8 is not supported"),
        ({"position_buckets": 1}, "position_buckets 1 do not fit distances up to 11"),
        ({"position_buckets": 20}, "position_buckets 20 do not fit distances up to 11"),
        ({"position_buckets": 4.0}, "position_buckets must be a whole number, got 4.0"),
        ({"max_relative_positions": "5"}, "max_relative_positions must be a whole number, got '5'"),
        ({"pos_att_type": [3]}, r"pos_att_type must be a list of texts, got \[3\]"),
        ({"norm_rel_ebd": 3}, "norm_rel_ebd must be a text, got 3"),
    ],
    "t5/relu": [
        ({"feed_forward_proj": "mish"}, "feed_forward_proj='mish' is not supported"),
        ({"feed_forward_proj": "gated-gelu"}, "is_gated_act=False is not.*dense_act_fn='relu' is not"),
        ({"feed_forward_proj": ["relu"]}, r"feed_forward_proj=\['relu'\] is not supported"),
        ({"dense_act_fn": "gelu"}, "dense_act_fn='gelu' is not supported"),
        ({"is_decoder": True}, "is_decoder=True is not supported"),
        ({"num_decoder_layers": 10**9}, "num_decoder_layers 1000000000 is more than the maximum of 10000"),
        ({"num_decoder_layers": 0}, "num_decoder_layers must be a whole number of at least 1"),
        ({"relative_attention_num_buckets": 3}, "relative_attention_num_buckets 3 and .* do not fit"),
        ({"relative_attention_max_distance": 16}, "relative_attention_max_distance 16 do not fit"),
        ({"relative_attention_max_distance": 10**400}, "max_distance 10* do not fit"),
        ({"relative_attention_num_buckets": None}, "num_buckets must be a whole number of at least 1, got None"),
        ({"tie_word_embeddings": None}, "tie_word_embeddings must be true or false"),
        ({"decoder_start_token_id": 23}, "decoder_start_token_id must be a whole number from 0 to 22"),
        ({"layer_norm_epsilon": -1}, "layer_norm_epsilon must be a number above 0"),
        ({"num_layers": 10**9}, "num_layers 1000000000 is more than the maximum of 10000"),
        ({"rope_theta": 1.0}, "unknown field rope_theta=1.0"),
        ({"tie_word_embeddings": False}, r"missing lm_head\.weight"),
    ],
    "bart/tied": [
        ({"tie_word_embeddings": False}, r"missing lm_head\.weight"),
        ({"activation_function": "mish"}, "activation_function='mish' is not supported"),
        ({"normalize_before": True}, "normalize_before=True is not supported"),
        ({"static_position_embeddings": True}, "static_position_embeddings=True is not supported"),
        ({"num_hidden_layers": 3}, "num_hidden_layers=3 is another name of encoder_layers"),
        ({"encoder_attention_heads": 5}, "d_model 12 does not split into 5 attention heads"),
        ({"decoder_attention_heads": 8}, "d_model 12 does not split into 8 attention heads"),
        ({"scale_embedding": 1}, "scale_embedding must be true or false"),
        ({"decoder_start_token_id": None}, "decoder_start_token_id must be a whole number"),
        (
            {"decoder_layers": 0, "d_kv": 3, "transformers_version": "99.0"},
            "decoder_layers must be.*unknown field d_kv",
        ),
        ({"model_type": "mbart"}, "model of type 'mbart'; regard can run: albert, bart"),
    ],
    "llama/plain": [
        ({"hidden_act": "sin"}, r"hidden_act='sin' is not supported \(supported: 'gelu'"),
        ({"num_key_value_heads": 4}, r"6 attention heads do not share 4 key/value heads evenly"),
        ({"head_dim": 5}, r"head_dim 5 is not an even number up to 65536"),
        ({"head_dim": 10**9}, r"head_dim 1000000000 is not an even number up to 65536"),
        ({"head_dim": None, "hidden_size": 13}, r"hidden_size 13 does not split into 6 attention heads"),
        ({"num_hidden_layers": 10**9}, r"num_hidden_layers 1000000000 is more than the maximum of 10000"),
        ({"num_hidden_layers": 9999}, r"has 21 tensors, too few for 9999 layers"),
        ({"attention_bias": "yes"}, r"attention_bias must be true or false, got 'yes'"),
        ({"tie_word_embeddings": None}, r"tie_word_embeddings must be true or false, got None"),
        ({"partial_rotary_factor": 0.5}, r"unknown field partial_rotary_factor=0\.5"),
        (
            {"quantization_config": {"bits": 4}},
            r"unknown field quantization_config=\{'bits': 4\}; pass load\(\.\.\., ignore=\['quantization_config'\]\), "
            r"or --ignore quantization_config, if this field changes nothing$",
        ),
        (
            {"partial_rotary_factor": 0.5, "odd": 1, "transformers_version": "99.0"},
            r"unknown field odd=1; unknown field partial_rotary_factor=0\.5; pass load\(\.\.\., ignore=\['odd', "
            r"'partial_rotary_factor'\]\), or --ignore odd --ignore partial_rotary_factor, if these fields change noth",
        ),
        ({"is_encoder_decoder": True}, r"is_encoder_decoder=True is not supported"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, r"rope_parameters and rope_scaling are both present"),
        ({"rope_parameters": 3}, r"rope_parameters must be an object, got 3"),
        ({"rope_parameters": {"rope_type": "longrope"}}, r"unknown rope scaling 'longrope'"),
        ({"rope_parameters": {"rope_type": ["yarn"]}}, r"unknown rope scaling \['yarn'\]"),
        ({"rope_parameters": {"rope_type": "linear"}}, r"rope scaling 'linear' lacks factor"),
        ({"rope_parameters": {"rope_type": "linear", "factor": "2"}}, r"factor must be a finite positive number"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2, "mscale_all_dim": 1}}, r"unknown mscale_all_dim"),
        (
            {"rope_parameters": {"odd": 1}, "transformers_version": "99.0"},
            r"unknown field rope_parameters\.odd=1; pass",
        ),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2, "beta_fast": 1e-320}}, r"rope_parameters=.*beta_fast"),
        ({"max_position_embeddings": 10**400}, r"max_position_embeddings must be at most 2147483647, got 10*\.\.\."),
        ({"rope_parameters": {"rope_type": "yarn", "factor": None}}, r"rope scaling 'yarn' lacks factor"),
        ({"rope_parameters": {"rope_theta": 0.5}}, r"base must be a number above 1"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2, "original_max_position_embeddings": 7}},
            r"dynamic rope scaling begins at max_position_embeddings 80, not at 7",
        ),
        ({"model_type": "mistral", "sliding_window": 0}, r"sliding_window must be a whole number of at least 1"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": -1},
            r"max_window_layers must be a whole number of at least 0, got -1",
        ),
        (
            {"model_type": "qwen2", "layer_types": ["sliding_attention", "full_attention"]},
            r"layer_types has sliding_attention without a sliding_window",
        ),
        ({"model_type": "qwen3", "layer_types": ["full_attention"]}, r"layer_types must name .* each of 2 layers"),
        ({"model_type": "qwen2", "layer_types": "full_attention"}, r"layer_types must name"),
        ({"model_type": "gemma2", "use_bidirectional_attention": True}, r"use_bidirectional_attention=True is not su"),
        ({"model_type": "gemma2", "attn_logit_softcapping": 0}, r"attn_logit_softcapping must be a number above 0"),
        *(
            ({"model_type": "gemma2", name: cap}, re.escape(f"{name} must be a number from 1e-30 to 1e+30, got {cap}"))
            for name in ("final_logit_softcapping", "attn_logit_softcapping")
            for cap in (1e308, 1e-320)
        ),
        ({"model_type": "gemma2", "sliding_window_size": 9}, r"sliding_window_size=9 is not supported"),
        ({"is_decoder": 1}, r"is_decoder must be true or false, got 1"),
        ({"model_type": "gemma2", "hidden_act": "silu"}, r"hidden_act='silu' is not supported"),
        (
            {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}},
            r"its weights are quantised \(mxfp4\), which is not supported; dequantise them with transformers",
        ),
        (
            {"model_type": "gpt_oss", "num_local_experts": 2, "num_experts_per_tok": 3},
            r"num_experts_per_tok 3 is more than the 2 experts",
        ),
        ({"model_type": "gpt2", "n_embd": 12, "n_head": 5}, r"n_embd 12 does not split into 5 attention heads"),
        ({"model_type": "gpt2", "n_layer": 10**9}, r"n_layer 1000000000 is more than the maximum of 10000"),
        ({"model_type": "gpt2", "add_cross_attention": True}, r"add_cross_attention=True is not supported"),
    ],
    "gpt_neox/plain": [
        ({"num_key_value_heads": 1, "transformers_version": "99.0"}, "unknown field num_key_value_heads=1"),
        (
            {"rope_parameters": None, "rotary_pct": 1.5},
            "partial_rotary_factor .*a number above 0 and at most 1",
        ),
        ({"rope_parameters": None, "rotary_pct": 0.1}, "partial_rotary_factor .*is 0, too few"),
    ],
    "gpt_neo/plain": [({"attention_types": [[["global"], 3]]}, "attention_types must make global or local of each")],
    "opt/plain": [
        ({"do_layer_norm_before": False}, "do_layer_norm_before=False is not supported"),
        ({"word_embed_proj_dim": 8}, r"word_embed_proj_dim=8 is not supported \(supported: None, 12\)"),
    ],
    "phi3/plain": [({"rope_parameters": {"rope_type": "longrope"}}, "unknown rope scaling 'longrope'")],
    "cohere2/plain": [
        ({"rotary_pct": 0.5}, "rotary_pct is 0.5, which transformers takes for 1"),
        ({"head_dim": 6}, "head_dim 6 is not 24 / 6, which transformers takes in its place"),
        ({"position_embedding_type": "alibi"}, "position_embedding_type='alibi' is not supported"),
    ],
    "smollm3/plain": [({"no_rope_layers": [1, 2]}, "no_rope_layers must be 0 or 1 for each of 4 layers")],
    "mixtral/plain": [
        ({"num_experts_per_tok": 9}, "num_experts_per_tok 9 is more than the 5 experts"),
        ({"num_local_experts": 10**6}, "num_local_experts 1000000 is more than the maximum of 4096"),
    ],
    "qwen3_moe/plain": [({"mlp_only_layers": "all"}, "mlp_only_layers must be a list of numbers of layers")],
    "qwen3_next/plain": [
        ({"layer_types": ["sliding_attention"] * 2}, "layer_types must name linear_attention or full_attention for"),
        ({"linear_num_key_heads": 3}, "linear_num_value_heads 4 do not share linear_num_key_heads 3 evenly"),
        ({"num_experts": 10**6}, "num_experts 1000000 is more than the maximum of 4096"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "unknown rope scaling 'longrope'"),
    ],
    "deepseek_v3/plain": [
        ({"n_group": 4}, r"n_routed_experts 6 do not split into 4 groups \(n_group\) of two or more"),
        ({"n_group": 6}, r"n_routed_experts 6 do not split into 6 groups \(n_group\) of two or more"),
        ({"topk_group": 4}, "topk_group 4 is more than the 3 groups of n_group"),
        ({"num_experts_per_tok": 5}, "num_experts_per_tok 5 is more than the 4 of topk_group"),
        ({"n_routed_experts": 12288}, "n_routed_experts 12288 is more than the maximum of 4096"),
        ({"num_key_value_heads": 1}, "num_key_value_heads 1 must be 3: each head has keys of its own"),
        ({"scoring_func": "softmax"}, "scoring_func='softmax' is not supported"),
        ({"qk_rope_head_dim": 5, "head_dim": 5, "qk_head_dim": 11}, "head_dim 5 is not an even number"),
        ({"head_dim": 8}, r"head_dim=8 is not supported \(supported: 4\)"),
        ({"qk_head_dim": 8}, r"qk_head_dim=8 is not supported \(supported: 10\)"),
        ({"quantization_config": {"quant_method": "fp8"}}, "unknown field quantization_config"),
    ],
    "gemma3/plain": [
        ({"text_config": 5}, "text_config must be an object, got 5"),
        ({"text_config": {"use_bidirectional_attention": True}}, "text_config of .*use_bidirectional_attention=True"),
        ({"text_config": {"final_logit_softcapping": 5.0}}, "is 5.0, which transformers ignores in a gemma3"),
        ({"odd": 1, "transformers_version": "99.0"}, "unknown field odd=1"),
    ],
    "gemma3_text/plain": [
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0 is not supported"),
        ({"rope_parameters": {"rope_theta": 1e4}}, "rope_parameters must have entries for"),
    ],
    "gemma4_text/inputs": [
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention='all' is not supported"),
        (
            {"num_kv_shared_layers": 4},
            "the last 4 layers .num_kv_shared_layers. read the keys and values of an earlier",
        ),
        ({"num_kv_shared_layers": 5}, "num_kv_shared_layers must be less than the 5 layers, got 5"),
        ({"num_kv_shared_layers": 99}, "num_kv_shared_layers must be less than the 5 layers, got 99"),
        ({"num_kv_shared_layers": -1}, "num_kv_shared_layers must be a whole number of at least 0, got -1"),
        (
            {"hidden_size_per_layer_input": -1},
            "hidden_size_per_layer_input must be a whole number of at least 0, got -1",
        ),
        ({"rope_parameters": {}}, "rope_parameters must have the rope_theta of full_attention, got {}"),
        (
            {"rope_parameters": {"full_attention": FULL}},
            "rope_parameters must have the rope_theta of sliding_attention",
        ),
        (
            {"rope_parameters": {"full_attention": FULL, "sliding_attention": {"rope_type": "default"}}},
            "rope_parameters must have the rope_theta of sliding_attention",
        ),
        ({"vocab_size_per_layer_input": 30}, "vocab_size_per_layer_input 30 must be vocab_size 23"),
        ({"per_layer_config": {"0": {"head_dim": 8}}}, "per_layer_config must give head_dim and num_key_value_heads"),
        ({"per_layer_config": {"0": {"window": 8}}}, "per_layer_config must give head_dim and num_key_value_heads"),
        (
            {"per_layer_config": {i: {"head_dim": [8]} for i in "024"}},
            r"cannot have 3 key/value heads of \[8\] features",
        ),
        ({"per_layer_config": None, "global_head_dim": 7}, "full layers cannot have 3 key/value heads of 7 features"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 2.0}}},
            "partial_rotary_factor must be at most 1",
        ),
    ],
    "llama4_text/plain": [
        ({"layer_types": ["chunked_attention"]}, "layer_types must name full_attention or chunked_attention for each"),
        ({"attention_chunk_size": None, "layer_types": ["chunked_attention"] * 2}, "chunked_attention without a size"),
        ({"moe_layers": 3}, "moe_layers must be a list of numbers of layers, got 3"),
        ({"layer_types": [["chunked_attention"], "full_attention"]}, "layer_types must name full_attention or chunked"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2}}, "rope_type 'yarn' with use_qk_norm is not supported"),
        ({"rope_parameters": {"type": "yarn", "factor": 2}}, "rope_type 'yarn' with use_qk_norm is not supported"),
        ({"rope_parameters": [1]}, r"rope_parameters must be an object, got \[1\]"),
    ],
    "olmo2/plain": [({"clip_qkv": 8.0, "transformers_version": "99.0"}, "unknown field clip_qkv=8.0")],
}


@pytest.mark.parametrize(
    ("case", "config", "message"), [(case, *each) for case, changes in REFUSED.items() for each in changes]
)
def test_a_configuration_is_read_strictly(changed, case, config, message):
    with pytest.raises(RegardError, match=message):
        regard.load(changed(case, config))
