"""config.json as save_pretrained of transformers writes it, for every family: regard reads it, and means the same."""

import json
import shutil

import pytest

import golden
import make_golden
import regard
from regard import models
from regard.models.checkpoint.config import ConfigReader


@pytest.mark.parametrize("use_diff", [True, False])
@pytest.mark.parametrize("case", golden.KEPT)
def test_what_transformers_writes_is_read(transformers, tmp_path, case, use_diff):
    """With the fields that differ from its defaults, as it does, and with all of them."""
    folder = tmp_path / "model"
    shutil.copytree(golden.FOLDER / case, folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    config.save_pretrained(folder)
    config.to_json_file(folder / "config.json", use_diff=use_diff)
    assert regard.load(folder).config == regard.load(golden.FOLDER / case).config


def test_the_configuration_that_transformers_makes_of_smollm2_is_read(
    transformers, tmp_path, smollm2_file, our_smollm2
):
    """Of its GGUF file; it has unk_token_id, and quantization_config where the weights were quantised."""
    config = transformers.AutoConfig.from_pretrained(smollm2_file.parent, gguf_file=smollm2_file.name)
    config.save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    assert "unk_token_id" in fields
    read = models.LlamaConfig.read(ConfigReader(fields | {"quantization_config": None}, "config.json"))
    assert (read.num_layers, read.head_dim, read.rope.base) == (30, 64, our_smollm2.config.rope.base)


OLDER = {
    "gpt_neox": {"rotary_pct": 0.5, "rotary_emb_base": 500, "gradient_checkpointing": False},
    "phi3": {"rope_theta": 500.0, "rope_scaling": None, "partial_rotary_factor": 0.5, "sliding_window": 2047},
    "olmo2": {"rope_theta": 500_000, "rope_scaling": None},
    "smollm3": {"rope_theta": 5_000_000.0, "rope_scaling": None, "no_rope_layers": [1, 0]},
    "mixtral": {"rope_theta": 500.0, "router_jitter_noise": 0.1},
    "qwen3_moe": {"rope_theta": 500.0, "num_experts": 7, "max_window_layers": 48, "sliding_window": None},
    "qwen3_next": {  # as published of 80B-A3B
        "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48, "head_dim": 256,
        "num_attention_heads": 16, "num_key_value_heads": 2, "max_position_embeddings": 262144, "hidden_act": "silu",
        "attention_bias": False, "attention_dropout": 0.0, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "mlp_only_layers": [],
        "linear_value_head_dim": 128, "decoder_sparse_step": 1, "num_experts": 512, "num_experts_per_tok": 10,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "norm_topk_prob": True,
        "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_scaling": None, "router_aux_loss_coef": 0.001,
        "output_router_logits": False, "rms_norm_eps": 1e-06, "layer_types": None,
    },
    "deepseek_v3": {
        "rope_theta": 500.0, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 20},
        "ep_size": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1, "seq_aux": True,
        "aux_loss_alpha": 0.001, "num_nextn_predict_layers": 1,
    },
    "gemma3": {  # as published of 4B
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
        },
        "boi_token_index": 255999, "eoi_token_index": 256000, "image_token_index": 262144, "eos_token_id": [1, 106],
    },
    "gemma3_text": {
        "rope_theta": 2e6, "rope_local_base_freq": 500, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window_pattern": 2, "cache_implementation": "hybrid",
    },
    "gemma4": {  # as published of E2B
        "text_config": {
            "model_type": "gemma4_text", "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35,
            "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512,
            "num_global_key_value_heads": None, "attention_k_eq_v": False, "num_kv_shared_layers": 20,
            "use_double_wide_mlp": True, "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144,
            "layer_types": [*["sliding_attention"] * 4, "full_attention"] * 7, "final_logit_softcapping": 30.0,
            "enable_moe_block": False, "sliding_window": 512, "use_bidirectional_attention": None,
        },
        "audio_token_id": 258881, "boa_token_id": 256000, "boi_token_id": 255999, "eoa_token_id": 258883,
        "image_token_id": 258880, "video_token_id": 258884,
    },
    "llama4": {  # as published of 17B-16E
        "text_config": {
            "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
            "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 202048,
            "max_position_embeddings": 10485760, "no_rope_layers": [], "rope_theta": 500000.0, "moe_layers": None,
            "output_router_logits": False, "router_aux_loss_coef": 0.001,
            "rope_scaling": {
                "factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0,
                "original_max_position_embeddings": 8192, "rope_type": "llama3",
            },
        },
        "boi_token_index": 200080, "eoi_token_index": 200081, "image_token_index": 200092,
    },
    "cohere": {"rope_theta": 8000000.0, "use_qk_norm": True, "head_dim": 4},
    "cohere2": {  # as published of Command R7B
        "rope_theta": 50000, "rope_scaling": None, "rotary_pct": 1.0, "sliding_window_pattern": 2,
        "position_embedding_type": "rope_gptj",
    },
    "gpt_neo": {"attention_layers": ["global", "local"], "gradient_checkpointing": True, "summary_type": "cls_index"},
    "opt": {"activation_dropout": 0.0, "prefix": "</s>", "word_embed_proj_dim": 12},
    "albert": {"net_structure_type": 0, "gap_size": 0, "num_memory_blocks": 0, "down_scale_factor": 1},
    "electra": {"summary_last_dropout": 0.1, "position_embedding_type": "absolute"},
    "modernbert": {"global_rope_theta": 7e4, "local_rope_theta": 300.0, "global_attn_every_n_layers": 2},
    "nomic_bert": {"rope_theta": 500.0},
}  # fmt: skip


@pytest.mark.parametrize("family", OLDER)
def test_fields_of_older_files_mean_what_transformers_takes_them_for(transformers, family):
    kind = make_golden.CASES[family]
    older = {"type_vocab_size": 2} if family in ("albert", "electra", "nomic_bert") else {}
    older |= kind.sizes | OLDER[family]
    if "num_experts" in older:
        older.pop("num_local_experts", None)
    newer = getattr(transformers, kind.config)(**older).to_dict()
    reads = getattr(models, models.FAMILIES[family].rpartition(".")[2] + "Config").read
    older |= {"model_type": family}
    assert reads(ConfigReader(older, "config.json")) == reads(ConfigReader(newer, "config.json"))


def test_the_fields_that_transformers_has_are_those_that_were_read():
    from make_known_fields import TARGET, content

    assert TARGET.read_text(encoding="utf-8") == content(), "python tests/make_known_fields.py writes them anew"
