"""A model is written as the folder that it was loaded from, with the arrays that it has."""

import json
import shutil
import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import regard
from gguf_files import write_gguf
from regard import RegardError
from regard.formats.safetensors import SafetensorsFile
from regard.nn import Embedding, parameters
from regard.nn.gradients import with_parameters
from sweeps import sweep_except

GOLDEN = Path(__file__).parent / "golden"
CASES = [path.parent.relative_to(GOLDEN).as_posix() for path in sorted(GOLDEN.glob("*/*/config.json"))]
ALWAYS = [
    "albert/shared",
    "bart/tied",
    "clip/plain",
    "deepseek_v3/plain",
    "dinov2/gated",
    "gemma3/untied",
    "gemma2/plain",
    "gpt2/plain",
    "gpt_neox/plain",
    "qwen3_next/mixed",
    "gemma4/plain",
    "gemma4_text/experts",
]
IDS = [5, 6, 7, 8]


def edited(model):
    """Return a model whose arrays are all other ones, tied ones alike."""
    arrays, changed = parameters(model), {}
    for name, x in arrays.items():
        start = getattr(x, "blocks", x).__array_interface__["data"][0]
        factor, offset = np.asarray([1 + start % 1009 / 4096, 0.125], x.dtype)
        changed[name] = np.asarray(np.asarray(x) * factor + offset)
    return with_parameters(model, changed)


@pytest.mark.parametrize("case", sweep_except(ALWAYS, CASES))
def test_an_edited_model_is_saved_with_its_arrays(tmp_path, case):
    model = edited(regard.load(GOLDEN / case))
    model.save(tmp_path / "saved", shard_bytes=3000)
    again = regard.load(tmp_path / "saved")
    ours, theirs = parameters(model), parameters(again)
    assert ours.keys() == theirs.keys()
    for name, x in ours.items():  # a part that is stored minus an offset is rounded once more
        np.testing.assert_allclose(np.asarray(theirs[name]), x, rtol=0, atol=2.0**-22 * np.abs(x).max(), err_msg=name)
    assert again.config == model.config
    assert len(list((tmp_path / "saved").glob("*.safetensors"))) > 1


def test_bfloat16_is_rounded_to_nearest(tmp_path):
    model = regard.load(GOLDEN / "llama/llama3")
    model.save(tmp_path / "half", dtype="bfloat16")
    stored = SafetensorsFile(tmp_path / "half" / "model.safetensors")
    assert set(stored.dtypes.values()) == {"BF16"}
    half = regard.load(tmp_path / "half")
    for name, x in parameters(model).items():
        y = np.asarray(parameters(half)[name])
        assert (np.abs(y - x) <= np.abs(x) * 2.0**-8).all(), name
    half.save(tmp_path / "again", dtype="bfloat16")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == stored.path.read_bytes()
    assert (
        half.generate("w5 w6", max_new_tokens=3).text
        == regard.load(tmp_path / "again").generate("w5 w6", max_new_tokens=3).text
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_infinite_bounds_of_a_part_that_is_not_run_are_kept(tmp_path, changed, dtype):
    name = "model.audio_tower.layers.0.input_max"
    model = regard.load(changed("gemma4/plain", extra={name: np.array(np.inf, np.float32)}))
    model.save(tmp_path / "saved", dtype=dtype)
    assert SafetensorsFile(tmp_path / "saved" / "model.safetensors")[name] == np.inf


def test_what_the_files_have_besides_is_kept_and_copies_are_not(tmp_path):
    model = regard.load(GOLDEN / "bert/gelu")
    model.save(tmp_path / "saved")
    names = SafetensorsFile(GOLDEN / "bert/gelu/model.safetensors").shapes
    assert dict(SafetensorsFile(tmp_path / "saved" / "model.safetensors").shapes) == dict(names)
    assert "pooler.dense.weight" in names


def test_the_model_is_not_in_memory_twice(tmp_path):
    model = regard.load(GOLDEN / "gpt2/plain")
    rows = np.zeros((1 << 20, model.config.embed_dim), np.float32)
    stored = tmp_path / "large"
    stored.mkdir()
    shutil.copy(GOLDEN / "gpt2/plain/tokenizer.json", stored)  # else each id gets a name
    config = (GOLDEN / "gpt2/plain/config.json").read_text()
    size = f'"vocab_size": {model.config.vocab_size}'
    assert size in config
    (stored / "config.json").write_text(config.replace(size, f'"vocab_size": {len(rows)}'))
    names = SafetensorsFile(GOLDEN / "gpt2/plain/model.safetensors")
    arrays = {
        name: rows if names[name].shape[:1] == (model.config.vocab_size,) else names[name] for name in names.shapes
    }
    regard.formats.safetensors.write_safetensors(stored / "model.safetensors", arrays)
    large = regard.load(stored)
    large = replace(large, token_embedding=Embedding(rows))
    tracemalloc.start()
    large.save(tmp_path / "saved")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.5 * rows.nbytes


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    model = regard.load(GOLDEN / "llama/llama3")
    array = np.full(model.final_norm.weight.shape, np.inf, np.float32)
    broken = with_parameters(model, {"final_norm.weight": array})
    with pytest.raises(RegardError, match=r"model\.norm\.weight has numbers that are not finite"):
        broken.save(tmp_path / "saved")
    assert not list(tmp_path.iterdir())
    (tmp_path / "empty").mkdir()
    model.save(tmp_path / "empty")
    with pytest.raises(RegardError, match="there is something under that name"):
        model.save(tmp_path / "empty")


def test_what_cannot_be_saved(tmp_path):
    model = regard.load(GOLDEN / "bart/tied")
    untied = with_parameters(model, {"lm_head.weight": model.lm_head.weight + 1})
    llama = regard.load(GOLDEN / "llama/llama3")
    nan = np.full(llama.final_norm.weight.shape, 0x7FFFFFFF, np.uint32)  # as CUDA writes it
    cases = [
        (lambda: untied.save(tmp_path / "x"), "are one tensor in the files"),
        (lambda: llama.save(tmp_path / "x", dtype="float16"), "dtype must be one of"),
        (lambda: replace(llama, blocks=llama.blocks[:1]).save(tmp_path / "x"), "has other arrays than the files"),
        (lambda: replace(llama, name="/nowhere").save(tmp_path / "x"), "is not stored under its name"),
        (
            lambda: replace(llama, config=replace(llama.config, norm_eps=0.5)).save(tmp_path / "x"),
            "has another configuration than the files",
        ),
        (
            lambda: replace(
                llama, blocks=tuple(replace(b, attn=replace(b.attn, window=(1, 0))) for b in llama.blocks)
            ).save(tmp_path / "x"),
            r"other settings .*blocks\.0\.attn\.window",
        ),
        (lambda: llama.save(tmp_path / "x\0y"), "not a valid file name"),
        *(
            (partial(with_parameters(llama, {"final_norm.weight": x}).save, tmp_path / "x", dtype=dtype), "not finite")
            for x in (nan.view(np.float32), -nan.view(np.float32))
            for dtype in ("float32", "bfloat16")
        ),
    ]
    for call, message in cases:
        with pytest.raises(RegardError, match=message):
            call()


def test_what_is_copied_from_the_files_is_not_lost_in_silence(tmp_path):
    llama, minilm = regard.load(GOLDEN / "llama/llama3"), regard.load("minilm")
    changed = {
        "sentence": replace(minilm, sentence=replace(minilm.sentence, max_length=7)),
        "end_ids": replace(llama, end_ids=(5,)),
        "forced": replace(llama, forced=replace(llama.forced, eos=5)),
    }
    for name, model in changed.items():
        with pytest.raises(RegardError, match=f"in which they cannot be written: {name}"):
            model.save(tmp_path / "x")
    minilm.save(tmp_path / "minilm")
    again = regard.load(tmp_path / "minilm")
    again.save(tmp_path / "again")  # its pooling is another object that says the same
    assert again.sentence.pooling == minilm.sentence.pooling


def test_a_gguf_file_becomes_a_folder(tmp_path):
    model = regard.load(write_gguf(tmp_path / "m.gguf"))
    model.save(tmp_path / "saved")
    again = regard.load(tmp_path / "saved")
    for name, x in parameters(model).items():
        assert np.array_equal(np.asarray(parameters(again)[name]), np.asarray(x)), name
    assert again.tokenizer("a cat").ids == model.tokenizer("a cat").ids


def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch):
    model = regard.load(GOLDEN / "llama/llama3")
    monkeypatch.chdir(tmp_path)
    for folder in (".", tmp_path, ""):
        with pytest.raises(RegardError, match="the current folder"):
            model.save(folder)
    assert not list(tmp_path.iterdir())


def test_a_model_with_fields_that_its_user_ignores_is_saved(tmp_path):
    folder = shutil.copytree(GOLDEN / "gpt2/plain", tmp_path / "stored")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "x.Model"}, "of_mine": 3}))
    model = edited(regard.load(folder, ignore=["of_mine"]))
    assert model.config.ignored == ("of_mine",)
    model.save(tmp_path / "saved")
    again = parameters(regard.load(tmp_path / "saved", ignore=["of_mine"]))
    for name, x in parameters(model).items():
        np.testing.assert_allclose(np.asarray(again[name]), x, rtol=2.0**-22, err_msg=name)
