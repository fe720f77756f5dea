"""Random models of transformers whose config.json is edited when it is written, and comparisons of their numbers."""

import json

import numpy as np
import torch
from transformers_models import EXPERTS, IMAGES, LATENT, LAYERS, SIZES

import regard
from regard.models.encoder_decoder import EncoderDecoder

IDS = [[(7 * i) % 43 + 5 for i in range(30)]]
SEQ2SEQ = ("bart", "mt5", "t5")
GEMMA4 = {**LAYERS, "head_dim": 8, "vocab_size_per_layer_input": 50, "hidden_size_per_layer_input": 4}
FIELDS = {  # of a class, besides its sizes
    "cohere": {"use_qk_norm": True},
    "cohere2": LAYERS,
    "deepseek_v3": LATENT,
    "gemma2": {**LAYERS, "head_dim": 8},
    "gemma3": {
        "text_config": {**SIZES, **LAYERS, "head_dim": 8},
        "vision_config": {"model_type": "siglip_vision_model", **IMAGES},
    },
    "gemma3_text": {**LAYERS, "head_dim": 8},
    "gemma4": {"text_config": {**SIZES, **GEMMA4}},
    "gemma4_text": GEMMA4,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 5, "num_layers": 2, "num_heads": 4},
    "gpt_oss": {**EXPERTS, **LAYERS, "head_dim": 8},
    "llama4_text": {**EXPERTS, "head_dim": 8, "attention_chunk_size": 5},
    "mixtral": {**EXPERTS, "head_dim": 8},
    "nomic_bert": {"type_vocab_size": 2, "head_dim": 8},
    "phi3": {"pad_token_id": 0},
    "qwen3": {"head_dim": 8},
    "qwen3_moe": {**EXPERTS, "head_dim": 8},
    "qwen3_next": {
        **EXPERTS,
        "head_dim": 8,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 6,
        "linear_value_head_dim": 5,
    },
    **{name: {"num_decoder_layers": 2, "d_kv": 8, "d_ff": 20} for name in ("mt5", "t5")},
    "bart": {"decoder_layers": 2, "decoder_attention_heads": 4, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20},
    "gpt2": {"n_inner": 20},
}


def written(transformers, folder, model_type, edit=dict, kind=None, **fields):
    """Write a random model of a type, or of a class of this type, edit its config.json, and return the model.

    `fields` are given to the class of its configuration, and of `SIZES` and `FIELDS` those that it has.
    """
    torch.manual_seed(0)
    configuration = type(transformers.AutoConfig.for_model(model_type))
    sizes = {configuration.attribute_map.get(name, name): value for name, value in SIZES.items()}
    known = configuration().to_dict()
    given = {name: value for name, value in (sizes | FIELDS.get(model_type, {})).items() if name in known}
    config = configuration(**given | fields)
    model = loader(transformers, model_type).from_config(config) if kind is None else kind(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.eval().save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))
    return model


def loader(transformers, model_type):
    return transformers.AutoModelForSeq2SeqLM if model_type in SEQ2SEQ else transformers.AutoModel


def numbers(transformers, folder):
    """Return what transformers computes with the model of a folder."""
    model_type = json.loads((folder / "config.json").read_text())["model_type"]
    model, loaded = loader(transformers, model_type).from_pretrained(folder, output_loading_info=True)
    assert not loaded["missing_keys"] - {"pooler.dense.weight", "pooler.dense.bias"}
    return run(model)


@torch.no_grad()
def run(model):
    """Return the last hidden states of a model, or its logits if it has a head."""
    target = {"decoder_input_ids": torch.tensor(IDS)} if model.config.model_type in SEQ2SEQ else {}
    output = model(input_ids=torch.tensor(IDS), **target)
    return (output.logits if "logits" in output else output.last_hidden_state).numpy()


def compare(folder, expected):
    """Hold the numbers of regard's model of a folder against those expected, and return the model."""
    model, has_head = regard.load(folder), expected.shape[-1] == SIZES["vocab_size"]
    output = model(np.array(IDS), *([IDS] if isinstance(model, EncoderDecoder) else []))
    found = output.logits if has_head else output.hidden
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max())
    return model
