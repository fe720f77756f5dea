"""Checkpoints with what published ones have and transformers' own do not: the hidden states of transformers."""

import numpy as np
import pytest
import torch
from transformers_models import T5
from written_models import IDS, compare, run, written

import regard
from regard.formats.safetensors import SafetensorsFile, write_safetensors

DEBERTA = {"pos_att_type": ["p2c", "c2p"], "relative_attention": True, "share_att_key": True, "type_vocab_size": 0}
DEBERTA |= {"position_buckets": 8, "norm_rel_ebd": "layer_norm", "max_relative_positions": 32}
CASES = {  # model type: fields of its class, fields that only the file has
    "modernbert": ({"pad_token_id": 0}, {"layer_norm_eps": 1e-5}),
    "smollm3": ({"pad_token_id": 0}, {"pretraining_tp": 2, "max_window_layers": 28}),
    "cohere": ({}, {"model_max_length": 131072}),
    "cohere2": (
        {"position_embedding_type": "rope_gptj", "rotary_pct": 1.0},
        {"layer_switch": 4, "use_parallel_block": True, "order_of_interleaved_layers": "local_attn_first"},
    ),
    "starcoder2": ({}, {"activation_function": "gelu", "norm_type": "layer_norm", "mlp_type": "default"}),
    "roberta": ({"pad_token_id": 1}, {"language": "en", "name": "Bertram"}),
    "xlm-roberta": ({"pad_token_id": 1}, {"language": ["en"], "name": "XLM"}),
    "llama": ({}, {"max_sequence_length": 2048, "pretraining_tp": 1}),
    "gpt_neox": ({"hidden_size": 40, "rotary_pct": 0.5}, {"custom_pipelines": {"x": 1}}),  # 5 of 10 features
    "deberta-v2": ({**DEBERTA, "position_biased_input": True}, {}),
    "bert": ({"type_vocab_size": 2}, {"directionality": "bidi", "gradient_checkpointing": False, "odd": None}),
}


DEBERTAS = {  # of DeBERTa-v2, what the class has where a file says nothing, and other values
    "nothing": {},
    "absolute": {"relative_attention": False, "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm"},
    "no norm": {"norm_rel_ebd": "none"},
    "norm and another": {"norm_rel_ebd": "dropout | Layer_Norm"},
    "own projections": {"share_att_key": False},
    "own projections, c2p": {"share_att_key": False, "pos_att_type": "C2P"},
    "own projections, p2c": {"share_att_key": False, "pos_att_type": ["p2c"]},
    "c2p": {"pos_att_type": "c2p"},
    "p2c": {"pos_att_type": "p2p | p2c"},
    "no terms": {"pos_att_type": None},
    "no terms, own": {"pos_att_type": [], "share_att_key": False},
    "every distance": {"position_buckets": -1, "max_relative_positions": -1},
    "near distances": {"position_buckets": 0, "max_relative_positions": 7},
    "more buckets than distances": {"position_buckets": 40, "max_relative_positions": 7},
    "odd buckets": {"position_buckets": 9, "max_relative_positions": 20},
    "types": {"type_vocab_size": 2, "position_biased_input": True},
    "types alone": {"type_vocab_size": 2},
    "sizes": {"embedding_size": 24, "attention_head_size": 6, "conv_kernel_size": 0},
}


@pytest.mark.parametrize("case", DEBERTAS)
def test_every_kind_of_distances_of_deberta(transformers, tmp_path, case):
    fields = DEBERTAS[case]
    if case not in ("nothing", "absolute"):
        fields = DEBERTA | {"position_biased_input": False} | fields
    model = written(transformers, tmp_path, "deberta-v2", **fields)
    compare(tmp_path, run(model))


@pytest.mark.parametrize("model_type", CASES)
def test_fields_that_the_class_does_not_have_change_nothing(transformers, tmp_path, model_type):
    fields, more = CASES[model_type]
    model = written(transformers, tmp_path, model_type, lambda config: config | more, **fields)
    ours = compare(tmp_path, run(model))
    named = {name for name, value in more.items() if value is not None} - {"directionality", "gradient_checkpointing"}
    assert set(ours.config.ignored) >= named - {"pretraining_tp"}


@pytest.mark.parametrize("model_type", ["llama", "bert", "gpt2", "gpt_neox"])
def test_constants_that_old_files_store_change_nothing(transformers, tmp_path, model_type):
    model = written(transformers, tmp_path, model_type, **{"type_vocab_size": 2} if model_type == "bert" else {})
    path = tmp_path / "model.safetensors"
    file = SafetensorsFile(path)
    constants = {
        "rotary_emb.inv_freq": np.ones(3, np.float32),
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(3, np.float32),
        "embeddings.position_ids": np.arange(70)[None],
        "anywhere.version": np.array([3.0], np.float32),
        "h.0.attn.bias": np.ones((1, 1, 70, 70), np.uint8),
        "layers.1.attention.masked_bias": np.array(-1e9, np.float32),
    }
    write_safetensors(path, {name: np.array(file[name]) for name in file} | constants)
    compare(tmp_path, run(model))


@pytest.mark.parametrize("gated", [False, True])
def test_the_encoder_of_a_t5_alone(transformers, tmp_path, gated):
    kind = {"feed_forward_proj": "gated-gelu" if gated else "relu"}
    model = written(transformers, tmp_path, "t5", kind=transformers.T5EncoderModel, **T5, **kind)
    with torch.no_grad():
        ours = compare(tmp_path, model(input_ids=torch.tensor(IDS)).last_hidden_state.numpy())
    assert type(ours).__name__ == "T5Encoder"
    trace = regard.Trace(maps=True, only="*")
    ours(IDS[0], trace=trace)
    assert trace["blocks.1.attn.weights"].shape == (1, 3, 30, 30)
    assert ours.embed([ours.tokenizer.from_ids(row) for row in IDS], pooling="mean").shape == (1, 24)


def test_a_tied_model_that_keeps_its_head_alone(transformers, tmp_path):
    for model_type in ("llama", "gpt2", "opt"):
        folder = tmp_path / model_type
        kind = transformers.AutoModelForCausalLM.from_config
        model = written(transformers, folder, model_type, kind=kind, tie_word_embeddings=True)
        file = SafetensorsFile(folder / "model.safetensors")
        table = next(name for name in file if name.endswith(("embed_tokens.weight", "wte.weight")))
        tensors = {"lm_head.weight" if name == table else name: np.array(file[name]) for name in file}
        write_safetensors(folder / "model.safetensors", tensors)
        wanted = run(model)
        np.testing.assert_allclose(regard.load(folder)(np.array(IDS)).logits, wanted, rtol=1e-4, atol=1e-5)
