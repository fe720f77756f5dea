"""Gemma 4: what its layers share, what published files say otherwise, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import golden
import regard
import tiny_decoder
from fake_traces import recorded
from regard import RegardError, metrics, training
from regard.trace.edits import freeze, patch

IDS = [5, 6, 7, 8, 9, 4]
SHARED = "gemma4_text/inputs"


@pytest.fixture(scope="module")
def model():
    """Block 3 reads the keys and values of block 1, block 4 those of block 2."""
    return regard.load(golden.FOLDER / SHARED, dtype=np.float64)


@pytest.mark.parametrize("step", ["k", "v"])
def test_an_edit_of_keys_reaches_the_layers_that_read_them_and_one_there_only_that_layer(model, step):
    plain, names = recorded(model, IDS), [f"blocks.{i}.attn.{step}" for i in (1, 3)]
    np.testing.assert_array_equal(plain[names[0]], plain[names[1]])
    whole, part = (recorded(model, IDS, edit={name: lambda x: x * 1.5}) for name in names)
    np.testing.assert_array_equal(whole[names[1]], whole[names[0]])
    assert not np.array_equal(whole[names[1]], plain[names[1]])
    np.testing.assert_array_equal(part[names[0]], plain[names[0]])
    assert not np.array_equal(part["blocks.3.output"], plain["blocks.3.output"])


@pytest.mark.parametrize("names", [["blocks.3.attn.k"], ["blocks.4.attn.v", "blocks.1.attn.k"]])
def test_an_edit_of_keys_is_kept_while_a_text_is_continued(model, names):
    """Block 3 has a window of 3, so that keys leave it."""
    edit, ids = {name: lambda x: x * -1.5 for name in names}, np.array([[*IDS, 7, 8, 5]])
    hidden, state = model.prefill(ids[:, :2], trace=regard.Trace(only=(), edit=edit))
    steps = [hidden]
    for i in range(2, ids.shape[1]):
        hidden, state = model.decode_step(ids[:, i : i + 1], state, trace=regard.Trace(only=(), edit=edit))
        steps.append(hidden)
    whole = model(ids, edit=edit).hidden
    np.testing.assert_allclose(np.concatenate(steps, axis=1), whole, rtol=0, atol=1e-12 * np.abs(whole).max())


def test_layers_without_keys_of_their_own_keep_none(model):
    _, state = model.prefill(np.array([IDS]))
    assert [len(cache) for cache in state.caches] == [6, 2, 6, 0, 0]  # a window of 3: the token itself, and 2 before it


def test_the_keys_of_a_score_are_those_that_another_layer_makes(model):
    trace = recorded(model, IDS)
    found = metrics.why(trace, "blocks.3.attn", 2, 5, 4)
    assert found.score == pytest.approx(trace["blocks.3.attn.scores"][0, 2, 5, 4], rel=1e-9)
    assert found.pairs.sum() == pytest.approx(found.score, rel=1e-9)
    assert {writer.layer for writer in found.key_writers} == {-1, 0}
    assert {writer.layer for writer in found.query_writers} == {-1, 0, 1, 2}


def test_what_needs_a_stream_that_is_a_sum_is_refused(model):
    sentence = "needs a stream to which attention and feed-forward layers add, and nothing else, but blocks.0 of"
    with pytest.raises(RegardError, match=f"reading circuits {sentence}"):
        _ = model.circuits
    with pytest.raises(RegardError, match=f"logit attribution {sentence}"):
        metrics.logit_attribution(model, recorded(model, IDS), 5)
    with pytest.raises(RegardError, match=f"a graph of paths {sentence}"):
        model.paths(IDS, 5, baseline="mean")


def test_a_run_cannot_start_after_a_layer_whose_keys_are_read_later(model):
    start = {"blocks.2.output": recorded(model, IDS)["blocks.2.output"]}
    with pytest.raises(RegardError, match=r"start= names blocks\.2, but later blocks of .* read keys of blocks\.1"):
        recorded(model, IDS, start=start)


def test_heads_are_patched_in_layers_from_which_no_run_can_start(model):
    other = [4, 6, 7, 8, 9, 4]
    grid = metrics.patch_grid(model, IDS, other, (5, 6), over="head")
    context = recorded(model, IDS)["blocks.4.attn.context"]

    def edit(x):
        x[:, 2] = context[:, 2]
        return x

    logits = model(other, edit={"blocks.4.attn.context": edit}).logits[0, -1]
    assert grid.values[4, 2] == pytest.approx(logits[5] - logits[6], rel=1e-9)


@pytest.mark.parametrize("into", ["k", "v"])
def test_a_path_changes_keys_of_its_receiver_and_not_of_the_layers_that_read_them_too(model, into):
    other = [4, 6, 7, 8, 9, 4]
    clean, corrupted = recorded(model, IDS), recorded(model, other)
    sent = freeze(corrupted, "blocks.0.attn.context") | patch(clean, (0, 1))
    name, receiver = f"blocks.1.attn.{into}", (1, 2)
    entered = recorded(model, other, edit=sent)
    read = recorded(model, other, edit=patch(entered, name, heads=1))
    logits = model(other, edit=patch(read, receiver)).logits[0, -1]
    found = metrics.path_patching(model, IDS, other, (5, 6), sender=(0, 1), receiver=receiver, into=into)
    assert found.value == pytest.approx(logits[5] - logits[6], rel=1e-9)
    assert found.value != pytest.approx(found.corrupted, rel=1e-6)


def test_a_direct_path_passes_no_input_of_a_layer(model):
    other = [4, 6, 7, 8, 9, 4]
    clean, corrupted = recorded(model, IDS), recorded(model, other)
    steps = [f"blocks.0.{part}" for part in ("attn.context", "mlp.output", "layer_input.output")]
    entered = recorded(model, other, edit=freeze(corrupted, *steps) | patch(clean, (0, 1)))
    read = recorded(model, other, edit=patch(entered, "blocks.1.attn.q", heads=2))
    logits = model(other, edit=patch(read, (1, 2))).logits[0, -1]
    options = {"sender": (0, 1), "receiver": (1, 2), "freeze_mlps": True}
    found = metrics.path_patching(model, IDS, other, (5, 6), **options)
    assert found.value == pytest.approx(logits[5] - logits[6], rel=1e-9)


def test_what_published_files_have_besides_is_not_read(changed):
    """Sizes of heads as transformers wrote them first, and keys of layers that read those of another."""
    extra = {f"model.layers.3.self_attn.{name}_norm.weight": np.ones(4, np.float32) for name in "kv"}
    extra |= {f"model.layers.4.self_attn.{name}_proj.weight": np.ones((24, 12), np.float32) for name in "kv"}
    fields = {"per_layer_config": None, "global_head_dim": 8, "num_global_key_value_heads": None}
    published = regard.load(changed(SHARED, fields, extra=extra))
    np.testing.assert_array_equal(published(IDS).hidden, regard.load(golden.FOLDER / SHARED)(IDS).hidden)
    assert published.config == regard.load(golden.FOLDER / SHARED).config


def test_integrated_gradients_of_a_deep_model_are_those_of_float64_and_say_that_they_are_not_exact():
    """Beside a baseline of 0 norms change within a hair of it: what misses there is the quadrature, no rounding."""
    config = json.loads((golden.FOLDER / "gemma4_text/plain/config.json").read_text(encoding="utf-8"))
    del config["per_layer_config"]
    types = ["sliding_attention"] * 5 + ["full_attention"]
    config |= {
        "vocab_size": 257,
        "vocab_size_per_layer_input": 257,
        "num_hidden_layers": 60,
        "layer_types": types * 10,
        "num_kv_shared_layers": 0,
    }
    found = []
    for dtype in (np.float32, np.float64):
        made = training.new_model(config, tiny_decoder.tokenizer(), dtype=dtype)
        found.append(metrics.attribute(made.model, [3, 7, 9, 11, 5], 5, method="integrated", steps=8))
    single, double = found
    np.testing.assert_allclose(single.scores, double.scores, rtol=0, atol=1e-3 * np.abs(double.scores).max())
    assert single.is_complete is double.is_complete is False
    assert "not exact: the sum of the scores is off by" in single._repr_html_()
