"""What is explored: texts with their models, and traces, as far as they were recorded."""

import json

import numpy as np
import pytest
from explorations import explored, long_exploration, recorded, thumbnails_of, whole

import golden
import regard
from regard import Trace
from regard.explorer import Exploration, launch, run as run_module
from regard.explorer.queries.cell import cell_inputs

CELL = ("q", "k", "scale", "scaled", "biased", "lse", "weight")


def assert_same(cell, known, names):
    for name in names:
        assert cell[name] == pytest.approx(known[name], rel=1e-4), name


def test_a_saved_trace_answers_as_the_run_did(bert, short, tmp_path):
    for maps in (True, False):
        trace = Trace(maps=maps, only="*")
        bert("the cat sat", trace=trace)
        trace.save(tmp_path / "run.safetensors")
        loaded = Exploration(Trace.load(tmp_path / "run.safetensors"))
        np.testing.assert_allclose(whole(loaded, 0, 1, 2), whole(short, 0, 1, 2), atol=2e-7)
        assert_same(loaded.cell(0, 1, 2, 3, 1), short.cell(0, 1, 2, 3, 1), CELL)
        assert not loaded.manifest()["can"]["ablate"]


def test_whether_a_saved_run_rotates_is_not_known(causal, tmp_path):
    exploration = explored(causal, "some text")
    exploration.runs[0].trace.save(tmp_path / "run.safetensors")
    assert exploration.cell(0, 0, 0, 1, 0)["rotated"] is True
    assert Exploration(Trace.load(tmp_path / "run.safetensors")).cell(0, 0, 0, 1, 0)["rotated"] is None


def test_arrays_tell_as_much_as_was_recorded(causal):
    whole_run, arrays, weights = Trace(), Trace(only=["*attn.weights", "*attn.v", "*.q", "*.k"]), Trace(only="*weights")
    for trace in (whole_run, arrays, weights):
        causal("some text that is not short", trace=trace)
    known, some, few = (Exploration(trace, models=[causal]) for trace in (whole_run, arrays, weights))
    heads, kv_heads = (known.manifest()["runs"][0]["layers"][0][name] for name in ("heads", "kv_heads"))
    assert kv_heads < heads
    assert some.manifest()["runs"][0]["layers"][0]["kv_heads"] == kv_heads
    assert few.manifest()["runs"][0]["layers"][0]["kv_heads"] is None
    size = len(known.cell(0, 0, 0, 0, 0)["q"])
    cells = [
        known.cell(0, layer, head, i, j) for layer in (0, 1) for head in range(heads) for i in (3, 5) for j in (0, 4)
    ]
    assert [cell["scale"] for cell in cells] == pytest.approx([size**-0.5] * len(cells), abs=1e-6)
    assert (some.cell(0, 0, 5, 2, 1)["kv_head"], few.cell(0, 0, 5, 2, 1)["kv_head"]) == (kv_heads - 1, None)
    for name in ("v", "weight"):
        assert some.cell(0, 0, 5, 2, 1)[name] == pytest.approx(known.cell(0, 0, 5, 2, 1)[name])
    for exploration in (some, few):  # where no scores are known, a weight of 0 may be masked or small
        assert [exploration.cell(0, 0, 0, i, j)["masked"] for i, j in ((2, 1), (1, 2))] == [False, None]
    assert [known.cell(0, 0, 0, i, j)["masked"] for i, j in ((2, 1), (1, 2))] == [False, True]


def test_values_alone_tell_how_many_key_value_heads_there_are(causal):
    trace = Trace(only=["*attn.weights", "*attn.v"])
    causal("some text", trace=trace)
    exploration, known = Exploration(trace, models=[causal]), explored(causal, "some text")
    np.testing.assert_allclose(whole(exploration, 0, 1, 5, "norms"), whole(known, 0, 1, 5, "norms"), rtol=1e-5)
    assert exploration.cell(0, 0, 5, 1, 1)["v"] == known.cell(0, 0, 5, 1, 1)["v"]


def test_of_a_long_text_one_layer_may_be_all_that_is_recorded(monkeypatch, causal):
    text = "some text that is long"
    monkeypatch.setattr(run_module, "MAX_MOVEMENT_TOKENS", 3)
    trace = run_module.recorded(causal, text, layer=1)
    assert {name.rpartition(".")[0] for name in trace.names()} == {"blocks.1.attn"}
    assert Exploration(trace, layer=1).initial_head[0] == Exploration(trace, layer=-1).initial_head[0] == 0
    for layer in (1, -1):
        exploration = launch.exploration_of([text], causal, layer=layer)
        assert [each["number"] for each in exploration.manifest()["runs"][0]["layers"]] == [1]
    assert {name.split(".")[-1] for name in run_module.recorded(causal, text).names()} == {"weights", "v"}
    assert long_exploration(5).manifest()["runs"][0]["layers"][0]["number"] == 0


def test_of_an_encoder_decoder_the_encoder_is_explored(bart):
    exploration = explored(bart, "some text")
    run = exploration.manifest()["runs"][0]
    assert {layer["name"].rpartition(".blocks.")[0] for layer in run["layers"]} == {"encoder"}
    assert {len(run["tokens"])} == {layer["rows"] for layer in run["layers"]}
    stages = exploration.movement([0])["stages"]
    assert [name.split(".")[0] for name in stages] == ["encoder"] * (1 + len(run["layers"]))
    assert exploration.cell(0, 0, 0, 1, 1)["embedding"] is not None
    changes = exploration.ablate([[0, 0]])["changes"]
    assert len(changes["cosines"]) == len(run["tokens"])
    assert min(changes["cosines"]) < 1 - 1e-6
    assert len(changes["next_tokens"]) == 10


def test_a_decoder_is_explored_as_a_part_of_its_trace(bart):
    trace = Trace(maps=True, only="*")
    bart(np.array([[3, 4, 5, 2]]), np.array([[2, 3, 6, 5]]), trace=trace)
    exploration = Exploration(trace.subtrace("decoder"))
    assert [layer.name for layer in exploration.runs[0].layers] == ["blocks.0.attn", "blocks.1.attn"]
    assert [token["text"] for token in exploration.manifest()["runs"][0]["tokens"]] == ["w2", "w3", "w6", "w5"]
    np.testing.assert_allclose(exploration.whole(0, 1, 0), trace["decoder.blocks.1.attn.weights"][0, 0], atol=1e-6)


def test_the_trace_of_a_picture_is_explored_as_a_sequence_of_patches():
    trace = Trace(maps=True, only="*")
    regard.load(golden.FOLDER / "vit/plain")(np.zeros((12, 12, 3), np.uint8), trace=trace)
    assert '"r2c1"' in json.dumps(Exploration(trace).manifest())


def test_padding_of_a_batch_does_not_show(bert, short):
    trace = recorded(bert, ["the cat sat", "the cat sat on mat"])
    padded = Exploration(trace, batch=0)
    np.testing.assert_allclose(whole(padded, 0, 1, 2), whole(short, 0, 1, 2), atol=1e-6)
    assert Exploration(trace, batch=1).runs[0].length == 7
    assert padded.runs[0].layers[0].is_map
    assert_same(padded.cell(0, 1, 2, 3, 1), short.cell(0, 1, 2, 3, 1), (*CELL[2:], "capped", "row_sum"))
    assert len(cell_inputs(padded.run(0), 1, 2)[0]) == len(cell_inputs(short.run(0), 1, 2)[0])
    assert np.abs(thumbnails_of(padded).astype(int) - thumbnails_of(short)).max() <= 1


def test_a_trace_takes_the_model_that_is_given_if_it_is_its_own(bert, causal):
    trace = recorded(bert, "the cat sat")
    assert launch.exploration_of([trace], bert).runs[0].model is bert
    assert launch.exploration_of([trace], None).runs[0].model is None
    with pytest.raises(regard.RegardError, match=r"the trace is of .*tiny, not of .*plain: give its model"):
        launch.exploration_of([trace], causal)


def test_the_model_of_a_trace_may_be_given_by_name(causal):
    trace = recorded(causal, "some text")
    for sources in ([trace], [trace, "some text"]):
        exploration = launch.exploration_of(sources, causal.name)
        assert exploration.manifest()["can"]["ablate"]
        assert [run.model.name for run in exploration.runs] == [causal.name] * len(sources)


def test_a_text_is_read_by_minilm_where_no_model_is_given(bert, monkeypatch):
    monkeypatch.setattr(launch, "load", {"minilm": bert}.__getitem__)
    assert [run.model for run in launch.exploration_of(["the cat", "the mat"], None).runs] == [bert, bert]


def test_one_text_is_read_by_two_models(bert, causal):
    exploration = launch.exploration_of(["the cat"], [bert, causal])
    assert [run.trace.model for run in exploration.runs] == [bert.name, causal.name]
    assert exploration.manifest()["difference_blocked_by"] is not None
    assert all(exploration.movement([run])["points"] for run in range(2))
