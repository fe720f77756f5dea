"""Checkpoints with what published ones have and transformers' own do not: the hidden states of transformers."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest
import torch
from transformers_models import SIZES, T5

import regard
from regard import RegardError
from regard.formats.safetensors import SafetensorsFile, write_safetensors

IDS = [[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], [17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28]]
DEBERTA = {"pos_att_type": ["p2c", "c2p"], "relative_attention": True, "share_att_key": True, "type_vocab_size": 0}
DEBERTA |= {"position_buckets": 8, "norm_rel_ebd": "layer_norm", "max_relative_positions": 32}
CASES = {  # model type: fields of its class, fields that only the file has
    "modernbert": ({"pad_token_id": 0}, {"layer_norm_eps": 1e-5}),
    "smollm3": ({"pad_token_id": 0}, {"pretraining_tp": 2, "max_window_layers": 28}),
    "roberta": ({"pad_token_id": 1}, {"language": "en", "name": "Bertram"}),
    "xlm-roberta": ({"pad_token_id": 1}, {"language": ["en"], "name": "XLM"}),
    "llama": ({}, {"max_sequence_length": 2048, "pretraining_tp": 1}),
    "gpt_neox": ({"hidden_size": 40, "rotary_pct": 0.5}, {"custom_pipelines": {"x": 1}}),  # 5 of 10 features
    "deberta-v2": ({**DEBERTA, "position_biased_input": True}, {}),
    "bert": ({"type_vocab_size": 2}, {"directionality": "bidi", "gradient_checkpointing": False, "odd": None}),
}


def saved(transformers, folder, model_type, fields, more, model=None):
    """Write a random model of a type, with more fields in its config.json; return it."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **sizes(model_type, fields), **fields)
    model = transformers.AutoModel.from_config(config) if model is None else model(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.eval().save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    return model


def sizes(model_type, without=()):
    """Return the sizes that a configuration of this type has; others of the table change something elsewhere."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[model_type]
    known = {*inspect.signature(kind.__init__).parameters, *kind.attribute_map}
    return {name: value for name, value in SIZES.items() if name in known and name not in without}


def compare(model, folder):
    with torch.no_grad():
        wanted = model(input_ids=torch.tensor(IDS)).last_hidden_state.numpy()
    ours = regard.load(folder)
    np.testing.assert_allclose(ours(np.array(IDS)).hidden, wanted, rtol=1e-4, atol=2e-5 * np.abs(wanted).max())
    return ours


@pytest.mark.parametrize("model_type", CASES)
def test_fields_that_the_class_does_not_have_change_nothing(transformers, tmp_path, model_type):
    fields, more = CASES[model_type]
    ours = compare(saved(transformers, tmp_path, model_type, fields, more), tmp_path)
    named = {name for name, value in more.items() if value is not None} - {"directionality", "gradient_checkpointing"}
    assert set(ours.config.ignored) >= named - {"pretraining_tp"}


@pytest.mark.parametrize("model_type", ["llama", "bert", "gpt2", "gpt_neox"])
def test_constants_that_old_files_store_change_nothing(transformers, tmp_path, model_type):
    model = saved(transformers, tmp_path, model_type, {"type_vocab_size": 2} if model_type == "bert" else {}, {})
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
    compare(model, tmp_path)


@pytest.mark.parametrize("gated", [False, True])
def test_the_encoder_of_a_t5_alone(transformers, tmp_path, gated):
    kind = {"feed_forward_proj": "gated-gelu" if gated else "relu"}
    model = saved(transformers, tmp_path, "t5", {**T5, **kind}, {}, transformers.T5EncoderModel)
    ours = compare(model, tmp_path)
    assert type(ours).__name__ == "T5Encoder"
    trace = regard.Trace(maps=True)
    ours(IDS[0], trace=trace)
    assert trace["blocks.1.attn.weights"].shape == (1, 4, 12, 12)
    assert ours.embed([ours.tokenizer.from_ids(row) for row in IDS], pooling="mean").shape == (2, 24)


@pytest.mark.parametrize("field", ["is_causal", "per_layer_config", "transformers_weights", "attention_chunk_size"])
@pytest.mark.parametrize("model_type", ["llama", "gpt2", "gpt_neox", "qwen2"])
def test_fields_that_shared_code_reads_are_refused(transformers, tmp_path, model_type, field):
    """They are in no class of a model, and change what it computes."""
    saved(transformers, tmp_path, model_type, {}, {field: False})
    with pytest.raises(RegardError, match=f"unknown field {field}=False"):
        regard.load(tmp_path)


def test_a_tied_model_that_keeps_its_head_alone(transformers, tmp_path):
    for model_type in ("llama", "gpt2", "opt"):
        folder = tmp_path / model_type
        config = transformers.AutoConfig.for_model(model_type, **sizes(model_type), tie_word_embeddings=True)
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        model.save_pretrained(folder)
        file = SafetensorsFile(folder / "model.safetensors")
        table = next(name for name in file if name.endswith(("embed_tokens.weight", "wte.weight")))
        tensors = {"lm_head.weight" if name == table else name: np.array(file[name]) for name in file}
        write_safetensors(folder / "model.safetensors", tensors)
        with torch.no_grad():
            wanted = model(input_ids=torch.tensor(IDS)).logits.numpy()
        np.testing.assert_allclose(regard.load(folder)(np.array(IDS)).logits, wanted, rtol=1e-4, atol=1e-5)
