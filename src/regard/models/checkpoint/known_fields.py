"""Fields of config.json that transformers has, by model type; made by ``tests/make_known_fields.py``."""

from __future__ import annotations

TRANSFORMERS = "5.24.0"
"""The version whose classes were read."""

COMMON = """
    architectures attribute_map base_config_key base_model_ep_plan base_model_fsdp_plan base_model_pp_plan
    base_model_tp_plan chunk_size_feed_forward dtype extra_config_files extra_files hidden_size id2label
    is_encoder_decoder label2id model_type num_attention_heads num_hidden_layers output_hidden_states
    problem_type return_dict sub_configs_defaults transformers_version
"""
"""Of every type, separated by spaces."""

FIELDS = {
    "albert": """
        attention_probs_dropout_prob bos_token_id classifier_dropout_prob embedding_size eos_token_id hidden_act
        hidden_dropout_prob initializer_range inner_group_num intermediate_size layer_norm_eps
        max_position_embeddings num_hidden_groups num_labels pad_token_id tie_word_embeddings type_vocab_size
        vocab_size
    """,
    "bart": """
        activation_dropout activation_function attention_dropout bos_token_id classifier_dropout d_model
        decoder_attention_heads decoder_ffn_dim decoder_layerdrop decoder_layers decoder_start_token_id dropout
        encoder_attention_heads encoder_ffn_dim encoder_layerdrop encoder_layers eos_token_id
        forced_eos_token_id init_std is_decoder max_position_embeddings num_labels pad_token_id scale_embedding
        tie_word_embeddings use_cache vocab_size
    """,
    "bert": """
        add_cross_attention attention_probs_dropout_prob bos_token_id classifier_dropout eos_token_id hidden_act
        hidden_dropout_prob initializer_range intermediate_size is_decoder layer_norm_eps
        max_position_embeddings num_labels pad_token_id tie_word_embeddings type_vocab_size use_cache vocab_size
    """,
    "clip": """
        attention_dropout eos_token_id hidden_act image_size initializer_factor initializer_range
        intermediate_size is_causal layer_norm_eps logit_scale_init_value max_position_embeddings num_channels
        num_labels patch_size projection_dim text_config text_config_dict to_dict update vision_config
        vision_config_dict vocab_size
    """,
    "clip_text_model": """
        attention_dropout bos_token_id eos_token_id hidden_act image_size initializer_factor initializer_range
        intermediate_size is_causal layer_norm_eps logit_scale_init_value max_position_embeddings num_channels
        num_labels pad_token_id patch_size projection_dim text_config text_config_dict to_dict update
        vision_config vision_config_dict vocab_size
    """,
    "clip_vision_model": """
        attention_dropout eos_token_id hidden_act image_size initializer_factor initializer_range
        intermediate_size is_causal layer_norm_eps logit_scale_init_value max_position_embeddings num_channels
        num_labels patch_size projection_dim text_config text_config_dict to_dict update vision_config
        vision_config_dict vocab_size
    """,
    "deberta-v2": """
        attention_head_size attention_probs_dropout_prob bos_token_id cls_dropout conv_act conv_groups
        conv_kernel_size embedding_size eos_token_id hidden_act hidden_dropout_prob initializer_range
        intermediate_size layer_norm_eps legacy max_position_embeddings max_relative_positions norm_rel_ebd
        num_labels output_attentions pad_token_id pooler_dropout pooler_hidden_act pooler_hidden_size
        pos_att_type position_biased_input position_buckets relative_attention share_att_key tie_word_embeddings
        type_vocab_size vocab_size
    """,
    "deepseek_v3": """
        attention_bias attention_dropout bos_token_id eos_token_id first_k_dense_replace head_dim hidden_act
        initializer_range intermediate_size kv_lora_rank max_position_embeddings moe_intermediate_size n_group
        n_routed_experts n_shared_experts norm_topk_prob num_experts_per_tok num_key_value_heads
        num_local_experts num_mtp_layers num_nextn_predict_layers output_router_logits pad_token_id
        pretraining_tp q_lora_rank qk_head_dim qk_nope_head_dim qk_rope_head_dim rms_norm_eps rope_interleave
        rope_parameters routed_scaling_factor tie_word_embeddings topk_group use_cache v_head_dim vocab_size
    """,
    "distilbert": """
        activation attention_dropout bos_token_id dim dropout eos_token_id hidden_dim initializer_range
        max_position_embeddings n_heads n_layers num_labels pad_token_id qa_dropout seq_classif_dropout
        sinusoidal_pos_embds tie_word_embeddings vocab_size
    """,
    "electra": """
        add_cross_attention attention_probs_dropout_prob bos_token_id classifier_dropout embedding_size
        eos_token_id hidden_act hidden_dropout_prob initializer_range intermediate_size is_decoder
        layer_norm_eps max_position_embeddings num_labels pad_token_id summary_activation summary_first_dropout
        summary_last_dropout summary_proj_to_labels summary_type summary_use_proj tie_word_embeddings
        type_vocab_size use_cache vocab_size
    """,
    "gemma2": """
        attention_bias attention_dropout attn_logit_softcapping bos_token_id eos_token_id
        final_logit_softcapping head_dim hidden_activation initializer_range intermediate_size layer_types
        max_position_embeddings num_key_value_heads pad_token_id query_pre_attn_scalar rms_norm_eps
        rope_parameters sliding_window tie_word_embeddings use_bidirectional_attention use_cache vocab_size
    """,
    "gemma3_text": """
        attention_bias attention_dropout attn_logit_softcapping bos_token_id eos_token_id
        final_logit_softcapping get_text_config head_dim hidden_activation image_token_id initializer_range
        intermediate_size layer_types max_position_embeddings mm_tokens_per_image num_key_value_heads
        pad_token_id query_pre_attn_scalar rms_norm_eps rope_local_base_freq rope_parameters rope_scaling
        rope_theta sliding_window sliding_window_pattern text_config tie_word_embeddings token_type_ids
        use_bidirectional_attention use_cache vision_config vocab_size
    """,
    "gpt2": """
        activation_function add_cross_attention attn_pdrop bos_token_id classifier_dropout embd_pdrop
        eos_token_id hidden_dropout initializer_range layer_norm_epsilon max_position_embeddings n_embd n_head
        n_inner n_layer n_positions num_labels output_attentions pad_token_id reorder_and_upcast_attn
        resid_pdrop scale_attn_by_inverse_layer_idx scale_attn_weights summary_activation summary_first_dropout
        summary_last_dropout summary_proj_to_labels summary_type summary_use_proj tie_word_embeddings use_cache
        vocab_size
    """,
    "gpt_neo": """
        activation_function attention_dropout attention_layers attention_types bos_token_id classifier_dropout
        embed_dropout eos_token_id initializer_range intermediate_size layer_norm_epsilon
        max_position_embeddings num_heads num_labels num_layers output_attentions pad_token_id resid_dropout
        tie_word_embeddings use_cache vocab_size window_size
    """,
    "gpt_neox": """
        attention_bias attention_dropout bos_token_id classifier_dropout eos_token_id head_dim hidden_act
        hidden_dropout initializer_range intermediate_size is_decoder layer_norm_eps max_position_embeddings
        num_labels pad_token_id rope_parameters rope_scaling rotary_emb_base rotary_pct tie_word_embeddings
        use_cache use_parallel_residual vocab_size
    """,
    "gpt_oss": """
        attention_bias attention_dropout bos_token_id eos_token_id head_dim hidden_act initializer_range
        intermediate_size layer_types max_position_embeddings num_experts num_experts_per_tok
        num_key_value_heads num_local_experts output_router_logits pad_token_id rms_norm_eps rope_parameters
        router_aux_loss_coef sliding_window swiglu_alpha swiglu_limit tie_word_embeddings use_cache vocab_size
    """,
    "llama": """
        attention_bias attention_dropout bos_token_id eos_token_id head_dim hidden_act initializer_range
        intermediate_size max_position_embeddings mlp_bias num_key_value_heads pad_token_id pretraining_tp
        rms_norm_eps rope_parameters tie_word_embeddings use_cache vocab_size
    """,
    "mistral": """
        attention_dropout bos_token_id eos_token_id head_dim hidden_act initializer_range intermediate_size
        max_position_embeddings num_key_value_heads pad_token_id rms_norm_eps rope_parameters sliding_window
        tie_word_embeddings use_cache vocab_size
    """,
    "mixtral": """
        attention_dropout bos_token_id eos_token_id head_dim hidden_act initializer_range intermediate_size
        max_position_embeddings num_experts num_experts_per_tok num_key_value_heads num_local_experts
        output_router_logits pad_token_id rms_norm_eps rope_parameters router_aux_loss_coef router_jitter_noise
        sliding_window tie_word_embeddings use_cache vocab_size
    """,
    "modernbert": """
        attention_bias attention_dropout bos_token_id classifier_activation classifier_bias classifier_dropout
        classifier_pooling cls_token_id decoder_bias deterministic_flash_attn embedding_dropout eos_token_id
        global_attn_every_n_layers global_rope_theta head_dim hidden_activation initializer_cutoff_factor
        initializer_range intermediate_size layer_types local_attention local_rope_theta max_position_embeddings
        mlp_bias mlp_dropout norm_bias norm_eps num_labels pad_token_id rope_parameters rope_scaling
        sep_token_id sliding_window sparse_pred_ignore_index sparse_prediction tie_word_embeddings vocab_size
    """,
    "mpnet": """
        attention_probs_dropout_prob bos_token_id eos_token_id hidden_act hidden_dropout_prob initializer_range
        intermediate_size layer_norm_eps max_position_embeddings num_labels output_attentions pad_token_id
        relative_attention_num_buckets tie_word_embeddings vocab_size
    """,
    "nomic_bert": """
        attention_probs_dropout_prob bos_token_id classifier_dropout eos_token_id head_dim hidden_act
        hidden_dropout_prob initializer_range intermediate_size layer_norm_eps max_position_embeddings
        num_labels pad_token_id rope_parameters type_vocab_size vocab_size
    """,
    "olmo2": """
        attention_bias attention_dropout bos_token_id eos_token_id head_dim hidden_act initializer_range
        intermediate_size max_position_embeddings num_key_value_heads pad_token_id rms_norm_eps rope_parameters
        tie_word_embeddings use_cache vocab_size
    """,
    "opt": """
        activation_function attention_dropout bos_token_id do_layer_norm_before dropout enable_bias eos_token_id
        ffn_dim init_std layer_norm_elementwise_affine layerdrop max_position_embeddings num_labels pad_token_id
        tie_word_embeddings use_cache vocab_size word_embed_proj_dim
    """,
    "phi3": """
        attention_dropout bos_token_id embd_pdrop eos_token_id head_dim hidden_act initializer_range
        intermediate_size max_position_embeddings num_key_value_heads original_max_position_embeddings
        pad_token_id partial_rotary_factor resid_pdrop rms_norm_eps rope_parameters rope_scaling rope_theta
        sliding_window tie_word_embeddings use_cache vocab_size
    """,
    "qwen2": """
        attention_dropout bos_token_id eos_token_id head_dim hidden_act initializer_range intermediate_size
        layer_types max_position_embeddings max_window_layers num_key_value_heads pad_token_id rms_norm_eps
        rope_parameters sliding_window tie_word_embeddings use_cache use_sliding_window vocab_size
    """,
    "qwen3": """
        attention_bias attention_dropout bos_token_id eos_token_id head_dim hidden_act initializer_range
        intermediate_size layer_types max_position_embeddings max_window_layers num_key_value_heads pad_token_id
        rms_norm_eps rope_parameters sliding_window tie_word_embeddings use_cache use_sliding_window vocab_size
    """,
    "qwen3_moe": """
        attention_bias attention_dropout bos_token_id decoder_sparse_step eos_token_id head_dim hidden_act
        initializer_range intermediate_size max_position_embeddings mlp_only_layers moe_intermediate_size
        norm_topk_prob num_experts num_experts_per_tok num_key_value_heads num_local_experts
        output_router_logits pad_token_id rms_norm_eps rope_parameters router_aux_loss_coef sliding_window
        tie_word_embeddings use_cache use_sliding_window vocab_size
    """,
    "roberta": """
        add_cross_attention attention_probs_dropout_prob bos_token_id classifier_dropout eos_token_id hidden_act
        hidden_dropout_prob initializer_range intermediate_size is_decoder layer_norm_eps
        max_position_embeddings num_labels pad_token_id tie_word_embeddings type_vocab_size use_cache vocab_size
    """,
    "smollm3": """
        attention_bias attention_dropout bos_token_id eos_token_id head_dim hidden_act initializer_range
        intermediate_size layer_types max_position_embeddings mlp_bias no_rope_layer_interval no_rope_layers
        num_key_value_heads pad_token_id rms_norm_eps rope_parameters sliding_window tie_word_embeddings
        use_cache use_sliding_window vocab_size
    """,
    "t5": """
        classifier_dropout d_ff d_kv d_model decoder_start_token_id dense_act_fn dropout_rate eos_token_id
        feed_forward_proj head_dim initializer_factor is_decoder is_gated_act layer_norm_epsilon
        num_decoder_layers num_heads num_labels num_layers pad_token_id relative_attention_max_distance
        relative_attention_num_buckets scale_decoder_outputs tie_word_embeddings use_cache vocab_size
    """,
    "vit": """
        attention_probs_dropout_prob encoder_stride head_dim hidden_act hidden_dropout_prob image_size
        initializer_range intermediate_size layer_norm_eps num_channels num_labels patch_size pooler_act
        pooler_output_size qkv_bias
    """,
    "xlm-roberta": """
        add_cross_attention attention_probs_dropout_prob bos_token_id classifier_dropout eos_token_id hidden_act
        hidden_dropout_prob initializer_range intermediate_size is_decoder layer_norm_eps
        max_position_embeddings num_labels pad_token_id tie_word_embeddings type_vocab_size use_cache vocab_size
    """,
}
"""Of each type beside those, separated by spaces."""
