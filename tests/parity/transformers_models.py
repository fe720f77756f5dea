"""Tiny models of transformers, one of each type: what `attn_implementation="regard"` is held against."""

import copy

import torch

TOKENS = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {
    **TOKENS, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 20, "max_position_embeddings": 70,
}  # fmt: skip
LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5}
EXPERTS = {
    "num_experts": 3, "num_local_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 12,
}  # fmt: skip
LATENT = {
    **EXPERTS, "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8, "n_group": 2, "topk_group": 2,
    "first_k_dense_replace": 1, "num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 6, "v_head_dim": 5,
}  # fmt: skip
GPT2 = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 64, "n_inner": 20}
TWO_STACKS = {
    **TOKENS, "decoder_start_token_id": 1, "forced_eos_token_id": None, "d_model": 24, "encoder_layers": 2,
    "decoder_layers": 2, "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20, "max_position_embeddings": 64,
}  # fmt: skip
T5 = {
    **TOKENS, "decoder_start_token_id": 0, "d_model": 24, "d_kv": 8, "d_ff": 20, "num_layers": 2,
    "num_decoder_layers": 2, "num_heads": 3, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12,
}  # fmt: skip
IMAGES = {**SIZES, "image_size": 12, "patch_size": 4}

DECODERS = {
    "biogpt": {},
    "cohere": {},
    "cohere2": LAYERS,
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "diffllama": {},
    "ernie4_5": {"head_dim": 6},
    "exaone4": LAYERS,
    "gemma": {"head_dim": 8},
    "gemma2": {**LAYERS, "head_dim": 6, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 7},
    "gemma3_text": {**LAYERS, "head_dim": 6, "query_pre_attn_scalar": 7},
    "glm4": {"head_dim": 6},
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
    "gpt_neox": {},
    "gpt_oss": {**EXPERTS, **LAYERS, "head_dim": 6},
    "gptj": {"rotary_dim": 4},
    "granite": {},
    "llama": {},
    "llama4_text": {**EXPERTS, "head_dim": 6, "attention_chunk_size": 5, "intermediate_size_mlp": 20},
    "mimo_v2_flash": EXPERTS,
    "minimax": EXPERTS,
    "mistral": {"sliding_window": 5},
    "mixtral": {**EXPERTS, "sliding_window": 5},
    "nemotron": {},
    "olmo2": {},
    "olmo3": LAYERS,
    "opt": {"word_embed_proj_dim": 24, "ffn_dim": 20},
    "phi": {"hidden_size": 32},
    "phi3": {"sliding_window": 5},
    "qwen2": {},
    "qwen2_moe": EXPERTS,
    "qwen3": {"head_dim": 8},
    "qwen3_moe": {**EXPERTS, "head_dim": 8},
    "smollm3": {},
    "stablelm": {},
    "starcoder2": {"sliding_window": 5},
}
ENCODERS = {
    "albert": {"embedding_size": 8},
    "bert": {},
    "distilbert": {"dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 20},
    "electra": {"embedding_size": 8},
    "esm": {"token_dropout": False, "mask_token_id": 3, "position_embedding_type": "rotary"},
    "mobilebert": {"embedding_size": 12, "intra_bottleneck_size": 12, "true_hidden_size": 12},
    "modernbert": {"global_attn_every_n_layers": 2, "local_attention": 6},
    "roberta": {},
    "splinter": {},
}
ENCODER_DECODERS = {
    "bart": TWO_STACKS,
    "blenderbot": TWO_STACKS,
    "m2m_100": TWO_STACKS,
    "marian": TWO_STACKS,
    "mbart": TWO_STACKS,
    "pegasus_x": TWO_STACKS,
    "switch_transformers": {**T5, "num_experts": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
    "t5": T5,
    "umt5": T5,
}
OTHERS = {  # whose input is not only ids
    "clip": {"text_config": SIZES, "vision_config": IMAGES, "projection_dim": 12},
    "dinov2": {**IMAGES, "mlp_ratio": 1},
    "vit": IMAGES,
    "wav2vec2": {
        **SIZES,
        "conv_dim": (8, 8),
        "conv_stride": (4, 4),
        "conv_kernel": (6, 4),
        "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 4,
        "num_conv_pos_embedding_groups": 2,
        "mask_time_prob": 0.0,
    },
    "whisper": {**TWO_STACKS, "num_mel_bins": 6, "max_source_positions": 20, "max_target_positions": 40},
}
SUPPORTED = [*DECODERS, *ENCODERS, *ENCODER_DECODERS, *OTHERS]

# What cannot, and the error that says so. Of the same kind: every type in whose code the interface does not occur.
OWN_CODE = "computes attention in its own code"
NO_SUCH_CLASS = "'regard'"  # KeyError of transformers: a class for each implementation
UNSUPPORTED = {
    "bloom": ({}, OWN_CODE),
    "falcon": ({}, NO_SUCH_CLASS),
    "longformer": ({}, OWN_CODE),
    "mpnet": ({}, OWN_CODE),
    "mpt": ({}, OWN_CODE),
    "roformer": ({}, OWN_CODE),
    "xglm": ({}, OWN_CODE),
    "deepseek_v32": ({**LATENT, "index_topk": 4, "index_n_heads": 2, "index_head_dim": 8}, "sparse attention"),
}
# What runs as if "regard" had not been asked for: no attention, or its own without any mask of the interface.
UNTOUCHED = {"deberta-v2": {}, "mamba": {}}


def make_model(transformers, name, implementation="eager", **sizes):
    """Return a tiny model with random weights, the same ones for every implementation; `sizes` are others of its."""
    auto, options = _class_and_options(transformers, name)
    config = transformers.AutoConfig.for_model(name, **copy.deepcopy(options | sizes))
    model = auto.from_config(config, attn_implementation=implementation).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            is_norm = parameter.ndim == 1 and "norm" in path.lower() and path.endswith("weight")
            # large enough that attention is far from uniform
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 4 + is_norm)
    return model


def _class_and_options(transformers, name):
    if name in DECODERS:
        return transformers.AutoModelForCausalLM, SIZES | DECODERS[name]
    if name in ENCODER_DECODERS:
        return transformers.AutoModelForSeq2SeqLM, ENCODER_DECODERS[name]
    if name in OTHERS:
        return getattr(transformers, f"AutoModel{'ForSpeechSeq2Seq' * (name == 'whisper')}"), OTHERS[name]
    if name in ENCODERS:
        return transformers.AutoModel, SIZES | ENCODERS[name]
    return transformers.AutoModel, SIZES | (UNTOUCHED[name] if name in UNTOUCHED else UNSUPPORTED[name][0])
