"""LoRA adapters that peft wrote, merged into a model: the logits that peft computes (`tests/make_adapters.py`)."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import make_adapters
import regard
from regard import RegardError
from regard.formats.safetensors import SafetensorsFile, write_safetensors
from regard.nn import parameters

FOLDER = Path(__file__).parent
IDS = np.array(make_adapters.IDS)


def base(name):
    return regard.load(FOLDER / "golden" / make_adapters.CASES[name][0])


@pytest.mark.parametrize("name", make_adapters.CASES)
def test_the_logits_of_peft(tmp_path, name):
    model, folder = base(name), FOLDER / "adapters" / name
    before = model(IDS).logits
    expected = SafetensorsFile(folder / "expected.safetensors")["logits"]
    adapted = model.with_adapter(folder)
    adapted.save(tmp_path / "merged")
    bound = 1e-5 * np.abs(expected).max()
    for each in (adapted, regard.load(tmp_path / "merged")):
        np.testing.assert_allclose(each(IDS).logits, expected, rtol=0, atol=bound)
    assert np.array_equal(model(IDS).logits, before)
    assert np.abs(before - expected).max() > 1000 * bound
    ours, theirs = parameters(model), parameters(adapted)
    assert any(theirs[each] is x for each, x in ours.items())


def changed(tmp_path, name="llama", drop=(), rename=lambda key: key, **fields):
    folder = tmp_path / "adapter"
    shutil.copytree(FOLDER / "adapters" / name, folder)
    settings = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(settings | fields))
    stored = SafetensorsFile(folder / "adapter_model.safetensors")
    tensors = {rename(key): np.array(stored[key]) for key in stored.shapes if not key.endswith(tuple(drop))}
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "IA3"}, "an adapter of type 'IA3'; supported is LORA"),
        ({"use_dora": True}, "not supported: use_dora=True; merge it with peft"),
        ({"target_parameters": ["mlp.experts"]}, r"target_parameters=\['mlp.experts'\]"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa'"),
        ({"alpha_pattern": {"(a+)+": 3}}, "alpha_pattern of the adapter must name modules"),
        ({"r": 64, "rank_pattern": {}}, "have the rank [0-9]+, its settings say 64"),
        ({"use_rslora": "no"}, "not supported: use_rslora='no'"),
        ({"drop": ["weight", "bias"]}, "has no tensors: fetch or save it again"),
        ({"lora_alpha": "8"}, "lora_alpha of the adapter must be a number"),
        (
            {"drop": ["0.self_attn.q_proj.lora_A.weight"]},
            "lacks one of the two matrices for model.layers.0.self_attn.q_proj",
        ),
        ({"rename": lambda key: key.replace("v_proj", "w_proj")}, "of another model.*layers.0.self_attn.w_proj"),
        ({"rename": lambda key: key.replace("v_proj.lora_", "v_proj.lora_embedding_")}, "only lora_A and lora_B"),
        ({"rename": lambda key: key.replace("v_proj", "o_proj")}, "is not the shape in"),
    ],
)
def test_an_adapter_that_cannot_be_merged(tmp_path, change, message):
    with pytest.raises(RegardError, match=message):
        base("llama").with_adapter(changed(tmp_path, **change))


def test_an_adapter_goes_on_top_of_an_edited_model():
    model, folder = base("llama"), FOLDER / "adapters" / "llama"
    name = "blocks.0.attn.q_proj.weight"
    edited = regard.nn.with_parameters(model, {name: np.asarray(parameters(model)[name]) + np.float32(1)})
    both = np.asarray(parameters(edited.with_adapter(folder))[name])
    alone = np.asarray(parameters(model.with_adapter(folder))[name])
    np.testing.assert_allclose(both, alone + 1, rtol=0, atol=2.0**-21)  # of sums of about 1


def test_a_folder_without_an_adapter(tmp_path):
    with pytest.raises(RegardError, match=r"there is no adapter_config\.json"):
        base("llama").with_adapter(tmp_path)
