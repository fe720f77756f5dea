"""Weights in several safetensors files, and pickles."""

import json
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import regard
import tiny_bert
from regard import RegardError
from regard.formats.safetensors import write_safetensors
from regard.models.checkpoint.open import FolderCheckpoint
from regard.models.checkpoint.tensors import load_layers
from regard.models.checkpoint.weight_files import INDEX

PARTS = [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)]


@pytest.fixture
def write_shards(write_bert):
    """Return a function that writes a tiny BERT in three files; what it is given is put into their index."""

    def write(weight_map=None, index=None):
        folder = write_bert()
        (folder / "model.safetensors").unlink()
        tensors = tiny_bert.tensors()
        where = {}
        for i, part in enumerate(PARTS):
            held = dict(list(tensors.items())[i::3])
            write_safetensors(folder / part, held)
            where |= dict.fromkeys(held, part)
        content = {"metadata": {"total_size": 1}, "weight_map": {**where, **(weight_map or {})}}
        (folder / INDEX).write_text(json.dumps(content if index is None else index))
        return folder

    return write


def test_three_files_are_one_model(write_shards, write_bert):
    sharded = regard.load(write_shards())("the cat sat").hidden
    np.testing.assert_array_equal(sharded, regard.load(write_bert(folder="whole"))("the cat sat").hidden)


def test_weights_stay_on_the_map_and_cannot_be_written(write_shards):
    flags = regard.load(write_shards()).token_embedding.weight.flags
    assert not flags.owndata
    assert not flags.writeable


def test_everything_that_is_wrong_is_said_at_once(write_shards):
    folder = write_shards({"embeddings.odd": PARTS[0], "encoder.layer.0.output.dense.bias": PARTS[0]})
    (folder / PARTS[2]).unlink()
    held = dict(list(tiny_bert.tensors().items())[1::3])
    write_safetensors(folder / PARTS[1], held | {"extra": np.ones(3)})
    with pytest.raises(RegardError) as error:
        regard.load(folder)
    told = str(error.value)
    assert f"do not match its {INDEX}: missing files: {PARTS[2]}; " in told
    assert "tensors not in the index: 'extra'" in told
    assert f"'embeddings.odd' ({PARTS[0]})" in told
    assert "\n" not in told


def test_a_tensor_in_two_files(write_shards):
    folder = write_shards()
    tensors = tiny_bert.tensors()
    held = dict(list(tensors.items())[1::3]) | {"embeddings.word_embeddings.weight": np.ones((23, 12), np.float32)}
    write_safetensors(folder / PARTS[1], held)
    with pytest.raises(RegardError, match=r"tensors in two files: 'embeddings\.word_embeddings\.weight'"):
        regard.load(folder)


@pytest.mark.parametrize(
    "name",
    ["../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..\\x.safetensors", ".x.safetensors", "x.bin", ""],
)
@pytest.mark.parametrize("end", ["", "\n.safetensors", "\0.safetensors"])
def test_no_name_leads_out_of_the_folder(write_shards, name, end):
    with pytest.raises(RegardError, match=r"\A.* not a safetensors file in its folder\Z"):
        regard.load(write_shards({"embeddings.LayerNorm.bias": name + end}))


WEIGHT_MAP = "must have a weight_map from each tensor to its file"


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([], "must hold a JSON object, got list"),
        (7, "must hold a JSON object, got int"),
        ({}, WEIGHT_MAP),
        ({"weight_map": []}, WEIGHT_MAP),
        ({"weight_map": {}}, WEIGHT_MAP),
        ({"weight_map": {"a": 5}}, WEIGHT_MAP),
    ],
)
def test_an_index_that_is_none(write_shards, index, message):
    with pytest.raises(RegardError, match=message):
        regard.load(write_shards(index=index))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000])
def test_an_index_that_is_no_json(write_shards, content):
    folder = write_shards()
    (folder / INDEX).write_bytes(content)
    with pytest.raises(RegardError, match=rf"{INDEX} is not valid JSON"):
        regard.load(folder)


def test_a_damaged_part_is_named(write_shards):
    folder = write_shards()
    (folder / PARTS[1]).write_bytes((folder / PARTS[1]).read_bytes()[:-10])
    with pytest.raises(RegardError, match=rf"{PARTS[1]}: it is truncated: 10 of \d+ bytes are missing"):
        regard.load(folder)


@pytest.mark.parametrize(
    "names",
    [["pytorch_model.bin"], ["pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"], ["model.pth"]],
)
def test_pickles_are_refused_with_the_way_to_convert_them(write_bert, names):
    folder = write_bert()
    (folder / "model.safetensors").unlink()
    for name in names:
        (folder / name).write_bytes(b"\x80\x04cos\nsystem\n")
    with pytest.raises(RegardError, match=rf"are pickles \({', '.join(names)}\).*save_pretrained\(NEW_FOLDER\)"):
        regard.load(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("training_args.bin", "neither model.safetensors nor"),
        ("model.fp16.safetensors", r"has a variant of its weights alone \(model.fp16.safetensors\).* variant='fp16'"),
        ("consolidated.safetensors", r"in the layout of their authors \(consolidated.safetensors\)"),
        (
            "adapter_model.safetensors",
            r"is an adapter, not a whole model: load its base model",
        ),
    ],
)
def test_without_weights_it_is_said_what_there_is(write_bert, name, message):
    folder = write_bert()
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(RegardError, match=message):
        regard.load(folder)


def test_the_folder_of_an_adapter_names_its_base_model(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    (tmp_path / "adapter_model.safetensors").touch()
    with pytest.raises(RegardError, match="is an adapter of org/base, not a whole model"):
        regard.load(tmp_path)


def test_bfloat16_is_widened_in_passing(tmp_path):
    """No second copy of the size of the result is ever held."""
    stored = np.ones((1000, 1000), ml_dtypes.bfloat16)
    save_file({"x": stored}, tmp_path / "model.safetensors")
    checkpoint = FolderCheckpoint(tmp_path)
    tracemalloc.start()
    try:
        found = load_layers(checkpoint, lambda source: {"x": source.array("x", (1000, 1000))}, num_layers=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found["x"], np.ones((1000, 1000), np.float32))
    assert peak < 4_000_000 + 500_000
