"""Fields that transformers reads in code of all families, second names and defaults: the numbers of transformers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers_models import EXPERTS, LATENT, LAYERS, SIZES

import regard
from regard import RegardError
from regard.models.checkpoint.known_fields import ALIASES
from sweeps import sweep_except

ORIGINAL = "original_max_position_embeddings"
IDS = [[(7 * i) % 43 + 5 for i in range(30)]]
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0}
FIELDS = {  # of a class, besides its sizes
    "deepseek_v3": LATENT,
    "gemma2": {**LAYERS, "head_dim": 8},
    "gemma3_text": {**LAYERS, "head_dim": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 5, "num_layers": 2, "num_heads": 4},
    "gpt_oss": {**EXPERTS, **LAYERS, "head_dim": 8},
    "mixtral": {**EXPERTS, "head_dim": 8},
    "nomic_bert": {"type_vocab_size": 2, "head_dim": 8},
    "phi3": {"pad_token_id": 0},
    "qwen3": {"head_dim": 8},
    "qwen3_moe": {**EXPERTS, "head_dim": 8},
    "t5": {"num_decoder_layers": 2, "d_kv": 8, "d_ff": 20},
    "bart": {"decoder_layers": 2, "decoder_attention_heads": 4, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20},
    "gpt2": {"n_inner": 20},
}
ROTARY = [
    *("deepseek_v3", "gemma2", "gpt_neox", "gpt_oss", "llama", "mistral", "mixtral", "nomic_bert"),
    *("olmo2", "qwen2", "qwen3", "qwen3_moe", "smollm3"),
]


SEQ2SEQ = ("bart", "t5")


@pytest.fixture
def written(transformers, tmp_path):
    """Return a function that writes a random model of a type and edits its config.json."""

    def write(model_type, edit):
        torch.manual_seed(0)
        kind = type(transformers.AutoConfig.for_model(model_type))
        given = {kind.attribute_map.get(name, name): value for name, value in SIZES.items()} | FIELDS.get(
            model_type, {}
        )
        known = kind().to_dict()
        model = loader(transformers, model_type).from_config(
            kind(**{name: value for name, value in given.items() if name in known})
        )
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        model.save_pretrained(tmp_path)
        path = tmp_path / "config.json"
        path.write_text(json.dumps(edit(json.loads(path.read_text()))))
        return tmp_path

    return write


def loader(transformers, model_type):
    return transformers.AutoModelForSeq2SeqLM if model_type in SEQ2SEQ else transformers.AutoModel


def numbers(transformers, folder):
    """Return the hidden states of transformers, or the logits of an encoder-decoder."""
    model_type = json.loads((folder / "config.json").read_text())["model_type"]
    model, loaded = loader(transformers, model_type).from_pretrained(folder, output_loading_info=True)
    assert not loaded["missing_keys"] - {"pooler.dense.weight", "pooler.dense.bias"}
    with torch.no_grad():
        if model_type in SEQ2SEQ:
            return model(input_ids=torch.tensor(IDS), decoder_input_ids=torch.tensor(IDS)).logits.numpy()
        return model(input_ids=torch.tensor(IDS)).last_hidden_state.numpy()


def compare(transformers, folder):
    """Hold regard's numbers against those of transformers, and return them."""
    expected, model = numbers(transformers, folder), regard.load(folder)
    if expected.shape[-1] == SIZES["vocab_size"]:
        found = model(np.array(IDS), IDS).logits
    else:
        found = model(np.array(IDS)).hidden
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max())
    return expected


@pytest.mark.parametrize("scaling", [LLAMA3, YARN], ids=["llama3", "yarn"])
@pytest.mark.parametrize("model_type", sweep_except(["deepseek_v3", "gpt_neox", "gpt_oss", "llama"], ROTARY))
def test_the_original_length_beside_the_rotation(transformers, written, model_type, scaling):
    def edited(fields):
        share = {name: 1.0 for name in fields["rope_parameters"] if name == "partial_rotary_factor"}
        return fields | {"rope_parameters": {"rope_theta": 100.0, **scaling, **share}}

    unsaid = numbers(transformers, written(model_type, edited))
    found = compare(transformers, written(model_type, lambda fields: edited(fields) | {ORIGINAL: 9}))
    assert differ(found, unsaid)


def test_the_original_length_beside_the_rotation_takes_precedence(transformers, written):
    def edited(fields):
        return fields | {"rope_parameters": {"rope_theta": 1e4, **LLAMA3, ORIGINAL: 32}, ORIGINAL: 16}

    compare(transformers, written("llama", edited))


def test_gpt_oss_without_parameters_of_the_rotation(transformers, written):
    """An empty object is not a scaling; without the field it is that of the family."""
    plain = compare(transformers, written("gpt_oss", lambda fields: fields | {"rope_parameters": {}}))
    scaled = compare(transformers, written("gpt_oss", lambda fields: without(fields, "rope_parameters")))
    assert differ(plain, scaled)


@pytest.mark.parametrize("model_type", ["gemma3_text", "modernbert"])
def test_a_type_that_transformers_ignores_is_refused(transformers, written, model_type):
    """Its numbers are those without a scaling: what the file means is unclear."""

    def edited(fields):
        return without(fields, "rope_parameters") | {"rope_scaling": {"type": "linear", "factor": 8.0}}

    plain = compare(transformers, written(model_type, lambda fields: without(fields, "rope_parameters")))
    folder = written(model_type, edited)
    np.testing.assert_array_equal(numbers(transformers, folder), plain)
    with pytest.raises(RegardError, match="rope_scaling has type 'linear', which transformers ignores"):
        regard.load(folder)


def test_a_private_pattern_of_windows_changes_nothing(transformers, written):
    """Some versions store it next to `layer_types`; the field that counts is sliding_window_pattern."""

    def edited(pattern):
        return lambda fields: without(fields, "layer_types", "sliding_window_pattern") | pattern

    every_sixth = compare(transformers, written("gemma3_text", edited({"_sliding_window_pattern": 2})))
    every_second = compare(transformers, written("gemma3_text", edited({"sliding_window_pattern": 2})))
    assert differ(every_sixth, every_second)


@pytest.mark.parametrize("model_type", ALIASES)
def test_second_names(transformers, written, model_type):
    """All fields at once that have one."""
    names = {name: alias for alias, name in ALIASES[model_type].items()}
    plain = compare(transformers, written(model_type, dict))
    folder = written(model_type, lambda fields: {names.get(name, name): value for name, value in fields.items()})
    assert names.keys() & json.loads((folder / "config.json").read_text()).keys() == set()
    np.testing.assert_array_equal(compare(transformers, folder), plain)


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen3", "gemma2", "gpt_oss"])
def test_an_absent_length_is_the_default_of_the_class(transformers, written, model_type):
    """Which a scaling without an original length takes."""

    def edited(fields):
        scaling = {"rope_parameters": {"rope_theta": 1e4, **LLAMA3}}
        return without(fields | scaling, "max_position_embeddings")

    compare(transformers, written(model_type, edited))


def test_an_absent_length_of_gpt2_is_the_default_of_the_class(transformers, written):
    torch.manual_seed(0)
    model = transformers.GPT2Model(transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=50))
    folder = written("gpt2", dict)
    model.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(without(json.loads(path.read_text()), "n_positions", "n_ctx")))
    compare(transformers, folder)


YARN_OF_LLAMA = {"type": "yarn", "factor": 4.0, ORIGINAL: 16}


@pytest.mark.parametrize(
    ("scaling", "more"),
    [
        (YARN_OF_LLAMA, {"finetuned": True}),
        ({"type": "linear", "factor": 2.0}, {ORIGINAL: 9}),
        ({"type": "linear", "factor": 2.0}, {"high_freq_factor": 9.0}),
        ({"type": "dynamic", "factor": 2.0}, {"beta_fast": 9.0}),
        ({"type": "default"}, {ORIGINAL: 9, "factor": 4.0}),
    ],
)
@pytest.mark.parametrize("model_type", sweep_except(["llama", "deepseek_v3"], ROTARY))
def test_keys_of_a_rotation_that_its_type_does_not_have(transformers, written, model_type, scaling, more):
    """Transformers warns of them and goes on; the model has the same numbers without them."""

    def edited(scaling):
        share = {"rotary_pct": 1.0} if model_type == "gpt_neox" else {}
        return lambda fields: without(fields, "rope_parameters") | {"rope_scaling": scaling, **share}

    plain = numbers(transformers, written(model_type, edited(scaling)))
    folder = written(model_type, edited(scaling | more))
    np.testing.assert_array_equal(compare(transformers, folder), plain)
    assert set(regard.load(folder).config.ignored) >= {f"rope_scaling.{key}" for key in more}


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])  # 1, 3 and 5 of 6 features
@pytest.mark.parametrize(
    "scaling",
    [
        {"type": "linear", "factor": 2.0},
        {"type": "dynamic", "factor": 2.0},
        LLAMA3 | {ORIGINAL: 16},
        YARN_OF_LLAMA,
    ],
    ids=lambda scaling: scaling.get("type", "llama3"),
)
def test_a_scaled_rotation_of_an_odd_number_of_features(transformers, written, scaling, share):
    """The numbers of transformers, or an error of the scalings whose formulas have no such numbers."""
    folder = written(
        "gpt_neox", lambda fields: without(fields, "rope_parameters") | {"rope_scaling": scaling, "rotary_pct": share}
    )
    if scaling.get("type") in ("dynamic", "yarn"):
        with pytest.raises(RegardError, match=f"{scaling['type']} rope scaling of {int(6 * share)} features"):
            regard.load(folder)
    else:
        compare(transformers, folder)


def test_a_key_that_deepseek_reads_for_every_scaling_is_refused(transformers, written):
    def edited(more):
        scaling = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4, **more}
        return lambda fields: fields | {"rope_parameters": scaling}

    plain = numbers(transformers, written("deepseek_v3", edited({})))
    folder = written("deepseek_v3", edited({"mscale_all_dim": 1.0}))
    assert differ(numbers(transformers, folder), plain)
    with pytest.raises(RegardError, match="rope scaling 'linear' has unknown mscale_all_dim"):
        regard.load(folder)


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_arguments_of_from_pretrained_change_nothing_in_a_file(transformers, written, model_type):
    """The file may have such a field: model hubs and training scripts write them."""
    plain = numbers(transformers, written(model_type, dict))
    more = {"tags": ["a"], "variant": "fp16", "revision": "main", "device": "cuda", "token": "x", "subfolder": "y"}
    folder = written(model_type, lambda fields: fields | more)
    np.testing.assert_array_equal(compare(transformers, folder), plain)
    assert set(regard.load(folder).config.ignored) >= more.keys()


def test_a_module_whose_fields_cannot_be_read_is_an_error():
    from make_known_fields import fields_read

    with pytest.raises(ImportError):
        fields_read(["transformers.no_such_module"])


def differ(a, b):
    """Tell whether numbers differ by ten times the tolerance."""
    return np.abs(a - b).max() > 2e-4 * np.abs(a).max()


def without(fields, *names):
    return {name: value for name, value in fields.items() if name not in names}
