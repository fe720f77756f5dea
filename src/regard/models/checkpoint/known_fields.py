"""Fields of config.json that transformers has, by model type; made by ``tests/make_known_fields.py``."""

from __future__ import annotations

TRANSFORMERS = "5.24.0"
"""The version whose classes were read."""

COMMON = """
    _attn_implementation _attn_implementation_internal _auto_class _commit_hash _experts_implementation
    _experts_implementation_internal _heterogeneity_spec _name_or_path _output_attentions _post_init_done
    allow_global_per_layer_attribute_access architectures attention_chunk_size attention_dropout
    attn_implementation attribute_map base_config_key base_model_ep_plan base_model_fsdp_plan base_model_pp_plan
    base_model_tp_plan bos_token_id capture_scalar_outputs chain_hidden_post_norm chunk_size_feed_forward
    classifier_dropout compile_config configuration_files default_theta distributed_config dtype embed_dim
    eos_token_id experts_implementation extra_config_files extra_files first_k_dense_replace fusion_config
    gradient_checkpointing head_dim hidden_dropout hidden_size id2label init_std initializer_factor
    initializer_range is_causal is_encoder_decoder is_heterogeneous kv_sharing_modes label2id layer_types
    logits_mup_width_multiplier max_position_embeddings mlp_layer_types model_type mtp_hidden_states_first
    mtp_layer_types mtp_mlp_layer_types mtp_per_layer_config name_or_path num_attention_heads num_heads
    num_hidden_layers num_key_value_heads num_labels num_mtp_layers number_of_conv_states output_attentions
    output_hidden_states pad_token_id per_layer_attributes per_layer_config problem_type quantization_config
    return_dict rms_norm_eps rope_parameters rope_scaling rope_theta sep_token_id
    serialize_explicit_per_layer_config sliding_window sub_config_name sub_configs sub_configs_defaults
    tie_word_embeddings token_classification_bias torch_dtype transformers_version transformers_weights
    unpadded_vocab_size vision_config vocab_size
"""
"""Of every type, separated by spaces."""

FIELDS = {
    "albert": """
        attention_probs_dropout_prob classifier_dropout_prob embedding_size hidden_act hidden_dropout_prob
        inner_group_num intermediate_size layer_norm_eps num_hidden_groups type_vocab_size
    """,
    "bart": """
        activation_dropout activation_function d_model decoder_attention_heads decoder_ffn_dim decoder_layerdrop
        decoder_layers decoder_start_token_id dropout encoder_attention_heads encoder_ffn_dim encoder_layerdrop
        encoder_layers forced_eos_token_id is_decoder scale_embedding use_cache
    """,
    "bert": """
        add_cross_attention attention_probs_dropout_prob embedding_size hidden_act hidden_dropout_prob
        intermediate_size is_decoder layer_norm_eps type_vocab_size use_cache
    """,
    "camembert": """
        add_cross_attention attention_probs_dropout_prob embedding_size hidden_act hidden_dropout_prob
        intermediate_size is_decoder layer_norm_eps type_vocab_size use_cache
    """,
    "clip": """
        hidden_act image_size intermediate_size layer_norm_eps logit_scale_init_value num_channels patch_size
        projection_dim text_config text_config_dict vision_config_dict
    """,
    "clip_text_model": """
        hidden_act image_size intermediate_size layer_norm_eps logit_scale_init_value num_channels patch_size
        projection_dim text_config
    """,
    "clip_vision_model": """
        hidden_act image_size intermediate_size layer_norm_eps logit_scale_init_value num_channels patch_size
        projection_dim text_config
    """,
    "cohere": """
        _rope_type_labels attention_bias default_rope_type hidden_act ignore_keys_at_rope_validation
        intermediate_size layer_norm_eps logit_scale original_max_position_embeddings partial_rotary_factor
        use_cache use_qk_norm
    """,
    "cohere2": """
        _rope_type_labels attention_bias default_rope_type hidden_act ignore_keys_at_rope_validation
        intermediate_size layer_norm_eps logit_scale original_max_position_embeddings partial_rotary_factor
        sliding_window_pattern use_cache
    """,
    "deberta-v2": """
        attention_head_size attention_probs_dropout_prob cls_dropout conv_act conv_groups conv_kernel_size
        embedding_size hidden_act hidden_dropout_prob intermediate_size layer_norm_eps legacy
        max_relative_positions norm_rel_ebd pooler_dropout pooler_hidden_act pooler_hidden_size pos_att_type
        position_biased_input position_buckets relative_attention share_att_key type_vocab_size
    """,
    "deepseek_v3": """
        _rope_type_labels attention_bias default_rope_type hidden_act ignore_keys_at_rope_validation
        intermediate_size kv_lora_rank moe_intermediate_size n_group n_routed_experts n_shared_experts
        norm_topk_prob num_experts_per_tok num_local_experts num_nextn_predict_layers
        original_max_position_embeddings output_router_logits partial_rotary_factor pretraining_tp q_lora_rank
        qk_head_dim qk_nope_head_dim qk_rope_head_dim rope_interleave routed_scaling_factor topk_group use_cache
        v_head_dim
    """,
    "dinov2": """
        _out_features _out_indices apply_layernorm attention_probs_dropout_prob drop_path_rate hidden_act
        hidden_dropout_prob image_size layer_norm_eps layerscale_value mlp_ratio num_channels out_features
        out_indices patch_size qkv_bias reshape_hidden_states stage_names use_mask_token use_swiglu_ffn
    """,
    "distilbert": """
        activation dim dropout hidden_dim n_heads n_layers qa_dropout seq_classif_dropout sinusoidal_pos_embds
    """,
    "electra": """
        add_cross_attention attention_probs_dropout_prob embedding_size hidden_act hidden_dropout_prob
        intermediate_size is_decoder layer_norm_eps summary_activation summary_first_dropout
        summary_last_dropout summary_proj_to_labels summary_type summary_use_proj type_vocab_size use_cache
    """,
    "gemma2": """
        _rope_type_labels attention_bias attn_logit_softcapping default_rope_type final_logit_softcapping
        hidden_activation ignore_keys_at_rope_validation intermediate_size original_max_position_embeddings
        partial_rotary_factor query_pre_attn_scalar use_bidirectional_attention use_cache
    """,
    "gemma3": """
        attention_bias attn_logit_softcapping boi_token_id boi_token_index eoi_token_id eoi_token_index
        final_logit_softcapping hidden_activation image_token_id image_token_index intermediate_size
        mm_tokens_per_image query_pre_attn_scalar text_config use_bidirectional_attention
    """,
    "gemma3_text": """
        _rope_type_labels _sliding_window_pattern attention_bias attn_logit_softcapping default_rope_type
        final_logit_softcapping hidden_activation ignore_keys_at_rope_validation image_token_id
        intermediate_size mm_tokens_per_image original_max_position_embeddings partial_rotary_factor
        query_pre_attn_scalar rope_local_base_freq sliding_window_pattern text_config
        use_bidirectional_attention use_cache
    """,
    "gemma4": """
        attention_bias attention_context_left attention_context_right attention_invalid_logits_value
        attention_k_eq_v attention_logit_cap audio_config audio_token_id boa_token_id boi_token_id
        conv_kernel_size enable_moe_block eoa_token_index eoi_token_id final_logit_softcapping gradient_clipping
        hidden_act hidden_activation hidden_size_per_layer_input image_token_id intermediate_size
        moe_intermediate_size num_experts num_kv_shared_layers output_proj_dims patch_size pooling_kernel_size
        position_embedding_size residual_weight standardize subsampling_conv_channels text_config top_k_experts
        use_bidirectional_attention use_clipped_linears use_double_wide_mlp video_token_id
        vocab_size_per_layer_input
    """,
    "gemma4_text": """
        _rope_type_labels attention_bias attention_context_left attention_context_right
        attention_invalid_logits_value attention_k_eq_v attention_logit_cap audio_config audio_token_id
        conv_kernel_size default_rope_type enable_moe_block final_logit_softcapping global_head_dim
        gradient_clipping hidden_act hidden_activation hidden_size_per_layer_input
        ignore_keys_at_rope_validation image_token_id intermediate_size moe_intermediate_size num_experts
        num_global_key_value_heads num_kv_shared_layers original_max_position_embeddings output_proj_dims
        partial_rotary_factor patch_size pooling_kernel_size position_embedding_size residual_weight standardize
        subsampling_conv_channels text_config top_k_experts use_bidirectional_attention use_cache
        use_clipped_linears use_double_wide_mlp video_token_id vocab_size_per_layer_input
    """,
    "glm": """
        _rope_type_labels attention_bias default_rope_type hidden_act ignore_keys_at_rope_validation
        intermediate_size original_max_position_embeddings partial_rotary_factor use_cache
    """,
    "glm4": """
        _rope_type_labels attention_bias default_rope_type hidden_act ignore_keys_at_rope_validation
        intermediate_size original_max_position_embeddings partial_rotary_factor use_cache
    """,
    "gpt2": """
        activation_function add_cross_attention attn_pdrop embd_pdrop layer_norm_epsilon n_embd n_head n_inner
        n_layer n_positions reorder_and_upcast_attn resid_pdrop scale_attn_by_inverse_layer_idx
        scale_attn_weights summary_activation summary_first_dropout summary_last_dropout summary_proj_to_labels
        summary_type summary_use_proj use_cache
    """,
    "gpt_neo": """
        _is_quantized activation_function attention_layers attention_types embed_dropout intermediate_size
        layer_norm_epsilon num_layers resid_dropout use_cache window_size
    """,
    "gpt_neox": """
        _rope_type_labels attention_bias default_rope_type hidden_act ignore_keys_at_rope_validation
        intermediate_size is_decoder layer_norm_eps original_max_position_embeddings partial_rotary_factor
        rotary_emb_base rotary_pct use_cache use_parallel_residual
    """,
    "gpt_oss": """
        _rope_type_labels attention_bias default_rope_type hidden_act ignore_keys_at_rope_validation
        intermediate_size num_experts num_experts_per_tok num_local_experts original_max_position_embeddings
        output_router_logits partial_rotary_factor router_aux_loss_coef swiglu_alpha swiglu_limit use_cache
    """,
    "granite": """
        _rope_type_labels attention_bias attention_multiplier default_rope_type embedding_multiplier hidden_act
        ignore_keys_at_rope_validation intermediate_size logits_scaling mlp_bias
        original_max_position_embeddings partial_rotary_factor residual_multiplier use_cache
    """,
    "llama": """
        _rope_type_labels attention_bias default_rope_type hidden_act ignore_keys_at_rope_validation
        intermediate_size mlp_bias original_max_position_embeddings partial_rotary_factor pretraining_tp
        use_cache
    """,
    "llama4": """
        attention_bias attn_scale attn_temperature_tuning boi_token_id boi_token_index eoi_token_id
        eoi_token_index floor_scale hidden_act image_size image_token_id image_token_index intermediate_size
        intermediate_size_mlp moe_layers no_rope_layers num_channels num_experts_per_tok num_local_experts
        patch_size pixel_shuffle_ratio projector_dropout projector_input_dim projector_output_dim text_config
        use_qk_norm
    """,
    "llama4_text": """
        _rope_type_labels attention_bias attn_scale attn_temperature_tuning default_rope_type floor_scale
        hidden_act ignore_keys_at_rope_validation image_size image_token_id interleave_moe_layer_step
        intermediate_size intermediate_size_mlp moe_layers no_rope_layer_interval no_rope_layers num_channels
        num_experts_per_tok num_local_experts original_max_position_embeddings output_router_logits
        partial_rotary_factor patch_size pixel_shuffle_ratio projector_dropout projector_input_dim
        projector_output_dim router_aux_loss_coef router_jitter_noise text_config use_cache use_qk_norm
    """,
    "mistral": """
        _rope_type_labels default_rope_type hidden_act ignore_keys_at_rope_validation intermediate_size
        original_max_position_embeddings partial_rotary_factor use_cache
    """,
    "mixtral": """
        _rope_type_labels default_rope_type hidden_act ignore_keys_at_rope_validation intermediate_size
        num_experts num_experts_per_tok num_local_experts original_max_position_embeddings output_router_logits
        partial_rotary_factor router_aux_loss_coef router_jitter_noise use_cache
    """,
    "modernbert": """
        _rope_type_labels attention_bias classifier_activation classifier_bias classifier_pooling cls_token_id
        decoder_bias default_rope_type deterministic_flash_attn embedding_dropout global_attn_every_n_layers
        global_rope_theta hidden_activation ignore_keys_at_rope_validation initializer_cutoff_factor
        intermediate_size local_attention local_rope_theta mlp_bias mlp_dropout norm_bias norm_eps
        original_max_position_embeddings partial_rotary_factor sparse_pred_ignore_index sparse_prediction
    """,
    "mpnet": """
        attention_probs_dropout_prob embedding_size hidden_act hidden_dropout_prob intermediate_size
        layer_norm_eps relative_attention_num_buckets
    """,
    "mt5": """
        d_ff d_kv d_model decoder_start_token_id dense_act_fn dropout_rate feed_forward_proj is_decoder
        is_gated_act layer_norm_epsilon num_decoder_layers num_layers relative_attention_max_distance
        relative_attention_num_buckets use_cache
    """,
    "nomic_bert": """
        _rope_type_labels attention_probs_dropout_prob default_rope_type hidden_act hidden_dropout_prob
        ignore_keys_at_rope_validation intermediate_size layer_norm_eps original_max_position_embeddings
        partial_rotary_factor type_vocab_size
    """,
    "olmo2": """
        _rope_type_labels attention_bias default_rope_type hidden_act ignore_keys_at_rope_validation
        intermediate_size original_max_position_embeddings partial_rotary_factor use_cache
    """,
    "opt": """
        _remove_final_layer_norm activation_function do_layer_norm_before dropout enable_bias ffn_dim
        layer_norm_elementwise_affine layerdrop use_cache word_embed_proj_dim
    """,
    "phi3": """
        _rope_type_labels default_rope_type embd_pdrop hidden_act ignore_keys_at_rope_validation
        intermediate_size original_max_position_embeddings partial_rotary_factor resid_pdrop use_cache
    """,
    "qwen2": """
        _rope_type_labels default_rope_type hidden_act ignore_keys_at_rope_validation intermediate_size
        max_window_layers original_max_position_embeddings partial_rotary_factor use_cache use_sliding_window
    """,
    "qwen3": """
        _rope_type_labels attention_bias default_rope_type hidden_act ignore_keys_at_rope_validation
        intermediate_size max_window_layers original_max_position_embeddings partial_rotary_factor use_cache
        use_sliding_window
    """,
    "qwen3_moe": """
        _rope_type_labels attention_bias decoder_sparse_step default_rope_type hidden_act
        ignore_keys_at_rope_validation intermediate_size mlp_only_layers moe_intermediate_size norm_topk_prob
        num_experts num_experts_per_tok num_local_experts original_max_position_embeddings output_router_logits
        partial_rotary_factor router_aux_loss_coef use_cache use_sliding_window
    """,
    "qwen3_next": """
        _rope_type_labels attention_bias decoder_sparse_step default_rope_type full_attention_interval
        hidden_act ignore_keys_at_rope_validation intermediate_size linear_conv_kernel_dim linear_key_head_dim
        linear_num_key_heads linear_num_value_heads linear_value_head_dim mlp_only_layers moe_intermediate_size
        norm_topk_prob num_experts num_experts_per_tok original_max_position_embeddings output_router_logits
        partial_rotary_factor router_aux_loss_coef shared_expert_intermediate_size use_cache
    """,
    "roberta": """
        add_cross_attention attention_probs_dropout_prob embedding_size hidden_act hidden_dropout_prob
        intermediate_size is_decoder layer_norm_eps type_vocab_size use_cache
    """,
    "smollm3": """
        _rope_type_labels attention_bias default_rope_type hidden_act ignore_keys_at_rope_validation
        intermediate_size mlp_bias no_rope_layer_interval no_rope_layers original_max_position_embeddings
        partial_rotary_factor use_cache use_sliding_window
    """,
    "starcoder2": """
        _rope_type_labels default_rope_type embedding_dropout hidden_act ignore_keys_at_rope_validation
        intermediate_size norm_epsilon original_max_position_embeddings partial_rotary_factor residual_dropout
        use_bias use_cache
    """,
    "t5": """
        d_ff d_kv d_model decoder_start_token_id dense_act_fn dropout_rate feed_forward_proj is_decoder
        is_gated_act layer_norm_epsilon num_decoder_layers num_layers relative_attention_max_distance
        relative_attention_num_buckets scale_decoder_outputs use_cache
    """,
    "vit": """
        attention_probs_dropout_prob encoder_stride hidden_act hidden_dropout_prob image_size intermediate_size
        layer_norm_eps num_channels patch_size pooler_act pooler_output_size qkv_bias
    """,
    "xlm-roberta": """
        add_cross_attention attention_probs_dropout_prob embedding_size hidden_act hidden_dropout_prob
        intermediate_size is_decoder layer_norm_eps type_vocab_size use_cache
    """,
}
"""Of each type beside those, separated by spaces."""

ALIASES: dict[str, dict[str, str]] = {
    "bart": {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    },
    "deepseek_v3": {"num_local_experts": "n_routed_experts", "num_mtp_layers": "num_nextn_predict_layers"},
    "distilbert": {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
    "gemma3": {
        "boi_token_id": "boi_token_index",
        "eoi_token_id": "eoi_token_index",
        "image_token_id": "image_token_index",
    },
    "gpt2": {
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    "gpt_neo": {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
    "gpt_oss": {"num_experts": "num_local_experts"},
    "llama4": {
        "boi_token_id": "boi_token_index",
        "eoi_token_id": "eoi_token_index",
        "image_token_id": "image_token_index",
    },
    "mixtral": {"num_experts": "num_local_experts"},
    "mt5": {
        "head_dim": "d_kv",
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
    },
    "qwen3_moe": {"num_experts": "num_local_experts"},
    "t5": {
        "head_dim": "d_kv",
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
    },
}
"""Second names of fields, and the first ones, by model type."""

DEFAULTS: dict[str, dict[str, int]] = {
    "albert": {"max_position_embeddings": 512, "type_vocab_size": 2},
    "bart": {"max_position_embeddings": 1024},
    "bert": {"max_position_embeddings": 512, "type_vocab_size": 2},
    "camembert": {"max_position_embeddings": 512, "type_vocab_size": 2},
    "clip_text_model": {"max_position_embeddings": 77},
    "cohere": {"max_position_embeddings": 8192},
    "cohere2": {"max_position_embeddings": 8192},
    "deberta-v2": {"max_position_embeddings": 512, "type_vocab_size": 0},
    "deepseek_v3": {"max_position_embeddings": 4096, "num_experts_per_tok": 8},
    "distilbert": {"max_position_embeddings": 512},
    "electra": {"max_position_embeddings": 512, "type_vocab_size": 2},
    "gemma2": {"max_position_embeddings": 8192},
    "gemma3_text": {"max_position_embeddings": 131072},
    "gemma4_text": {"max_position_embeddings": 131072},
    "glm": {"max_position_embeddings": 131072},
    "glm4": {"max_position_embeddings": 131072},
    "gpt2": {"n_positions": 1024},
    "gpt_neo": {"max_position_embeddings": 2048},
    "gpt_neox": {"max_position_embeddings": 2048},
    "gpt_oss": {"max_position_embeddings": 131072, "num_experts_per_tok": 4},
    "granite": {"max_position_embeddings": 2048},
    "llama": {"max_position_embeddings": 2048},
    "llama4_text": {"max_position_embeddings": 131072, "num_experts_per_tok": 1},
    "mistral": {"max_position_embeddings": 131072},
    "mixtral": {"max_position_embeddings": 131072, "num_experts_per_tok": 2},
    "modernbert": {"max_position_embeddings": 8192},
    "mpnet": {"max_position_embeddings": 512},
    "nomic_bert": {"max_position_embeddings": 2048, "type_vocab_size": 2},
    "olmo2": {"max_position_embeddings": 2048},
    "opt": {"max_position_embeddings": 2048},
    "phi3": {"max_position_embeddings": 4096},
    "qwen2": {"max_position_embeddings": 32768},
    "qwen3": {"max_position_embeddings": 32768},
    "qwen3_moe": {"max_position_embeddings": 32768, "num_experts_per_tok": 8},
    "qwen3_next": {"max_position_embeddings": 32768, "num_experts_per_tok": 10},
    "roberta": {"max_position_embeddings": 512, "type_vocab_size": 2},
    "smollm3": {"max_position_embeddings": 32768},
    "starcoder2": {"max_position_embeddings": 4096},
    "xlm-roberta": {"max_position_embeddings": 512, "type_vocab_size": 2},
}
"""What absent fields are, by model type."""
