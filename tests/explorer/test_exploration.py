"""Every answer of an exploration agrees with the trace and the model, computed independently here."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace

import numpy as np
import pytest
from explorations import explored, long_exploration, recorded, thumbnails_of, whole

import golden
import regard
from regard import RegardError, Trace
from regard.explorer import (
    Exploration,
    ablation,
    head_metrics,
    launch,
    map_reader,
    progress as progress_module,
    run as run_module,
)
from regard.explorer.cell import bias_note
from regard.explorer.display_modes import rollouts
from regard.explorer.manifest import distinct_texts
from regard.explorer.movement import describe_plane, movement
from regard.functional.biases.distance import ALiBi, RelativePositionBias
from regard.metrics.layer_maps import LayerMap


def test_the_manifest_is_json_that_says_what_there_is(bert):
    manifest = json.loads(json.dumps(explored(bert, "cat sat  on mats").manifest(), allow_nan=False))
    (run,) = manifest["runs"]
    assert manifest["format"] == "regard.explore/1"
    assert [token["text"] for token in run["tokens"]] == ["[CLS]", "cat", "sat", "on", "mat", "##s", "[SEP]"]
    assert [token["word"] for token in run["tokens"]] == [None, 0, 1, 2, 3, 3, None]
    assert manifest["title"] == "cat sat on mats"


@pytest.fixture
def short(bert):
    return explored(bert, "the cat sat")


def test_layers_and_tokens_are_those_of_the_model(short):
    (run,) = short.manifest()["runs"]
    assert [layer["name"] for layer in run["layers"]] == ["blocks.0.attn", "blocks.1.attn"]
    assert {(layer["heads"], layer["kv_heads"], layer["rows"], layer["causal"]) for layer in run["layers"]} == {
        (3, 3, 5, False)
    }
    assert all(layer["row_sum_error"] < 1e-6 for layer in run["layers"])
    tokens = run["tokens"]
    assert [token["special"] for token in tokens] == [True, False, False, False, True]
    assert [run["text"][token["start"] : token["end"]] for token in tokens[1:-1]] == ["the", "cat", "sat"]
    assert short.manifest()["provenance"].startswith("float32 · ")


def test_places_in_the_text_count_as_javascript_does():
    model = regard.models.toy(["a 😀 b"])
    tokens = explored(model, "a 😀 b").manifest()["runs"][0]["tokens"]
    utf16 = "a 😀 b".encode("utf-16-le")
    spelled = [utf16[2 * token["start"] : 2 * token["end"]].decode("utf-16-le") for token in tokens]
    assert "".join(spelled).replace(" ", "") == "a😀b"
    assert spelled[-1] == "b"


def test_parts_of_a_character_read_as_it_with_their_numbers(our_smollm2):
    encoding = our_smollm2.tokenizer("עולם, naïve 🧑‍🔬")
    labels = run_module._readable_labels(encoding)
    assert labels[:6] == ["ע₁", "ע₂", "ו", "ל", "ם₁", "ם₂"]
    assert not any("\\x" in label for label in labels)
    assert "naïve" in "".join(labels)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("head", [0, 2])
def test_a_tile_of_single_cells_is_exact(bert, short, layer, head):
    trace = Trace()
    bert("the cat sat", trace=trace)
    weights = trace[f"blocks.{layer}.attn.weights"][0, head]
    np.testing.assert_allclose(whole(short, 0, layer, head), weights, atol=2e-7)
    part = short.tile(0, layer, head, row0=1, row1=4, col0=2, col1=5, bin_size=1)
    np.testing.assert_allclose(part, weights[1:4, 2:5], atol=2e-7)
    assert part.dtype == np.float32


def test_the_mean_of_heads_is_their_mean(short):
    heads = [whole(short, 0, 1, head) for head in range(3)]
    np.testing.assert_allclose(whole(short, 0, 1, "mean"), np.mean(heads, axis=0), atol=1e-7)
    np.testing.assert_allclose(short.row(0, 1, "mean", 2), np.mean(heads, axis=0)[2], atol=1e-7)
    np.testing.assert_allclose(short.column(0, 1, "mean", 3), np.mean(heads, axis=0)[:, 3], atol=1e-7)


@pytest.mark.parametrize(("pool", "join"), [("max", np.max), ("mean", np.mean)])
@pytest.mark.parametrize("by", [1, 2, 3, 4, 5, 7])
def test_cells_hold_the_largest_or_the_mean_of_what_they_cover(short, pool, join, by):
    weights = whole(short, 0, 0, 1)[1:]
    found = short.tile(0, 0, 1, row0=1, row1=5, col0=0, col1=5, bin_size=by, pool=pool)
    assert found.shape == (-(-4 // by), -(-5 // by))
    for i, j in np.ndindex(found.shape):
        covered = weights[i * by : (i + 1) * by, j * by : (j + 1) * by]
        assert found[i, j] == pytest.approx(join(covered), abs=1e-7)


def test_rows_and_columns_are_those_of_the_map(short):
    for way in ("raw", "rollout", "norms"):
        weights = whole(short, 0, 1, 2, mode=way)
        np.testing.assert_allclose(short.row(0, 1, 2, 3, mode=way), weights[3], atol=1e-6)
        np.testing.assert_allclose(short.column(0, 1, 2, 1, mode=way), weights[:, 1], atol=1e-6)


def weighted_value(cell):
    return cell["weight"] * np.array(cell["v"])


def test_a_cell_is_its_own_arithmetic(short):
    cell = short.cell(0, 1, 2, 3, 1)
    assert np.dot(cell["q"], cell["k"]) * cell["scale"] == pytest.approx(cell["scaled"], rel=1e-5)
    assert np.exp(cell["biased"] - cell["lse"]) == pytest.approx(cell["weight"], rel=1e-5)
    assert cell["weight"] == pytest.approx(float(whole(short, 0, 1, 2)[3, 1]), abs=1e-7)
    row = [short.cell(0, 1, 2, 3, j) for j in range(5)]
    np.testing.assert_allclose(sum(weighted_value(each) for each in row), cell["output"], atol=1e-5)
    assert (cell["kv_head"], cell["masked"], cell["rotated"], len(cell["embedding"])) == (2, False, False, 8)


def test_a_causal_model_masks_rotates_and_shares_keys(causal):
    exploration = explored(causal, "some text that is not short")
    layer = exploration.manifest()["runs"][0]["layers"][0]
    assert layer["causal"]
    assert layer["kv_heads"] < layer["heads"]
    last = layer["heads"] - 1
    seen, hidden = exploration.cell(0, 0, last, 2, 1), exploration.cell(0, 0, last, 1, 2)
    assert seen["rotated"]
    assert seen["kv_head"] == layer["kv_heads"] - 1
    assert np.dot(seen["q"], seen["k"]) * seen["scale"] == pytest.approx(seen["biased"], rel=1e-4)
    assert (hidden["masked"], hidden["biased"], hidden["bias"], hidden["weight"]) == (True, None, None, 0)
    json.dumps(hidden, allow_nan=False)


def test_biases_caps_and_sinks_show_in_a_cell(rng):
    q, k, v = rng.standard_normal((3, 1, 2, 5, 4))
    bias = rng.standard_normal((1, 2, 5, 5))
    trace = Trace(maps=True)
    regard.attention(q, k, v, bias=bias, softcap=3.0, sinks=np.array([0.3, 2.0]), trace=trace)
    cell = Exploration(trace).cell(0, 0, 1, 2, 4)
    assert cell["softcap"] == 3.0
    assert Exploration(trace).manifest()["runs"][0]["layers"][0]["row_sum_error"] is None  # the sink has its share
    assert cell["capped"] == pytest.approx(3 * np.tanh(cell["scaled"] / 3))
    assert cell["bias"] == pytest.approx(bias[0, 1, 2, 4])
    assert np.exp(cell["biased"] - cell["lse"]) == pytest.approx(cell["weight"])
    logits = [Exploration(trace).cell(0, 0, 1, 2, j)["biased"] for j in range(5)]
    assert cell["lse"] == pytest.approx(np.log(np.sum(np.exp([*logits, 2.0]))))
    weights = [Exploration(trace).cell(0, 0, 1, 2, j)["weight"] for j in range(5)]
    assert cell["sink"] == 2.0
    assert cell["row_sum"] == pytest.approx(sum(weights)) == pytest.approx(1 - np.exp(2.0 - cell["lse"]))


def with_sinks(*sinks):
    """Return a bare layer of a head for each sink; the first looks at one word, the others at all tokens."""
    q, k = np.zeros((2, 1, len(sinks), 4, 2), dtype=np.float32)
    q[:, 0], k[:, 0, 2] = 3, 3
    trace = Trace(maps=True)
    with trace.scope("blocks.0.attn"):
        regard.attention(q, k, k, sinks=np.array(sinks, dtype=np.float32), trace=trace)
    return Exploration(trace)


def test_what_a_sink_takes_is_no_word_s():
    assert with_sinks(-9.0, -9.0).initial_head == (0, 0)
    assert with_sinks(99.0, -9.0).initial_head == (0, 1)  # all that the first gives goes to its sink
    sink = with_sinks(np.log(4.0), -99.0).heads(0)["metrics"]["sink"][0]
    first = with_sinks(np.log(4.0), -99.0).row(0, 0, 0, 1)
    assert sink[0] == pytest.approx(first[0] + 1 - first.sum(), abs=1e-6)
    assert sink[1] == pytest.approx(0.25, abs=1e-6)


def test_a_row_that_sees_nothing_gives_nothing_to_a_sink():
    trace = Trace()
    with trace.scope("blocks.0.attn"):
        trace("weights", np.zeros((1, 1, 3, 3)), "B H T S")
    assert Exploration(trace).heads(0)["metrics"]["sink"] == [[0.0]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_proof_line_has_the_precision_of_the_weights(rng, dtype):
    q, k = rng.standard_normal((2, 1, 2, 40, 8)).astype(dtype)
    look, arrays = Trace(maps=True), Trace()
    for trace in (look, arrays):
        regard.attention(q, k, k, trace=trace)
    computed = Exploration(look).manifest()["provenance"]
    assert computed.startswith(f"{dtype} · from recorded q and k by ")
    assert computed.endswith(f" · regard {regard.__version__}")
    kept = f"{arrays['weights'].dtype} · as recorded"  # by whom, only who recorded it knows
    assert Exploration(arrays).manifest()["provenance"] == kept
    assert Exploration(look, arrays).manifest()["provenance"] == "; ".join(sorted([computed, kept]))
    error = Exploration(look).manifest()["runs"][0]["layers"][0]["row_sum_error"]
    assert 0 < error < 20 * np.finfo(dtype).eps


def test_rows_that_are_wrong_are_not_passed_over():
    weights = np.full((1, 1, 4, 4), 0.25)
    weights[0, 0, 0] = 0  # sees nothing
    for wrong, told in ((-0.25, (2.0, 0)), (np.nan, (0.0, 1))):
        weights[0, 0, 2] = wrong
        trace = Trace()
        trace("weights", weights, "B H T S")
        layer = json.loads(json.dumps(Exploration(trace).manifest(), allow_nan=False))["runs"][0]["layers"][0]
        assert (layer["row_sum_error"], layer["num_nonfinite_rows"]) == told


def test_measures_are_those_that_are_worked_out_by_hand():
    weights = np.zeros((1, 2, 4, 4))
    weights[0, 0, 1:, :-1] = np.eye(3)
    weights[0, 0, 0, 0] = 1  # looks at the token before
    weights[0, 1] = 0.25
    trace = Trace()
    with trace.scope("blocks.0.attn"):
        trace("weights", weights, "B H T S")
    found = Exploration(trace).heads(0)["metrics"]
    assert found["previous_token"] == [[1.0, 0.25]]
    assert found["entropy"][0] == pytest.approx([0, np.log(4)], abs=1e-6)
    assert found["distance"][0] == pytest.approx([0.75, 1.25])
    assert found["sink"][0] == pytest.approx([1 / 3, 0.25], abs=1e-6)
    assert found["duplicate_token"] == [[None, None]]


def test_a_thumbnail_is_the_square_root_of_a_share_of_the_largest(short):
    weights = whole(short, 0, 1, 2)
    np.testing.assert_array_equal(thumbnails_of(short)[1, 2], np.round(255 * np.sqrt(weights / weights.max())))


def test_differences_of_heads_are_those_of_their_weights(bert):
    both = explored(bert, "the cat sat", "the cat on")
    found = both.differences([0, 1])
    expected = np.array([[whole(both, 0, at, h) - whole(both, 1, at, h) for h in range(3)] for at in range(2)])
    np.testing.assert_allclose(found["largest"], np.abs(expected).max((2, 3)), atol=5.1e-7)
    shown = np.frombuffer(base64.b64decode(found["thumbnails"]), np.int8).reshape(expected.shape)
    scaled = 127 * np.sign(expected) * np.sqrt(np.abs(expected) / np.abs(expected).max())
    np.testing.assert_allclose(shown, scaled, atol=0.51)
    assert np.abs(shown).max() == 127
    edited = both.ablate([[0, 2]])["run"]
    assert both.differences([0, edited])["largest"][0] == [0, 0, 0]


def test_a_cell_of_differences_is_the_one_farthest_from_0():
    exploration = Exploration(*(long_exploration(70, heads=2, seed=seed).runs[0].trace for seed in (1, 2)))
    found = exploration.differences([0, 1])
    shown = np.frombuffer(base64.b64decode(found["thumbnails"]), np.int8).reshape(2, 32, 32)
    difference = whole(exploration, 0, 0, 1) - whole(exploration, 1, 0, 1)
    edges = np.arange(33) * 70 // 32
    part = difference[edges[5] : edges[6], edges[3] : edges[4]].ravel()
    farthest = part[np.abs(part).argmax()]
    largest = np.max(found["largest"])
    assert shown[1, 5, 3] == np.sign(farthest) * np.round(127 * np.sqrt(abs(farthest) / largest))


@pytest.mark.parametrize(("runs", "message"), [([0, 1], "A has 5 tokens and B 6"), ([0], "of two runs, not 1")])
def test_heads_that_differ_in_shape_have_no_differences(bert, runs, message):
    with pytest.raises(RegardError, match=message):
        explored(bert, "the cat sat", "the cat sat on").differences(runs)


def test_rollout_mixes_what_every_layer_gives(short):
    expected = np.eye(5)
    for layer in range(2):
        mixed = whole(short, 0, layer, "mean") + np.eye(5)
        expected = mixed / mixed.sum(-1, keepdims=True) @ expected
        np.testing.assert_allclose(whole(short, 0, layer, 0, mode="rollout"), expected, atol=1e-6)


def test_weights_times_values_are_the_lengths_of_what_is_handed_over(bert, short):
    v = short.runs[0].trace["blocks.1.attn.v"][0, 2].astype(np.float64)
    size = v.shape[-1]
    projection = bert.blocks[1].attn.o_proj.weight.astype(np.float64)[2 * size : 3 * size]
    weights = whole(short, 0, 1, 2)
    handed = np.linalg.norm(weights[:, :, None] * (v @ projection), axis=-1)
    np.testing.assert_allclose(whole(short, 0, 1, 2, mode="norms"), handed, rtol=1e-5)


def test_movement_is_on_one_plane_for_both_runs(bert):
    both = explored(bert, "the cat sat", "the cat on")
    moved = both.movement([0, 1])
    assert moved["stages"] == ["embeddings", "blocks.0.output", "blocks.1.output"]
    first = np.array(moved["points"])
    assert first[0].shape == (3, 5, 2)
    np.testing.assert_allclose(first[0][0, 1], first[1][0, 1], atol=1e-4)  # "the" is the same before any layer
    assert moved["left_out"] == [[0, 4], [0, 4]]  # [CLS] and [SEP]
    words = np.concatenate(first[:, :, 1:-1], axis=1)
    np.testing.assert_allclose(words.mean(axis=1), 0, atol=1e-3)


def test_a_run_and_its_edit_stand_on_one_plane(short):
    edited = short.ablate([[0, 0], [0, 1], [0, 2]])
    assert edited["metadata"]["projection_key"] == short.manifest()["runs"][0]["projection_key"]
    before, after = np.array(short.movement([0, edited["run"]])["points"])
    words = np.concatenate([before, after], axis=1)[:, [1, 2, 3, 6, 7, 8]]
    np.testing.assert_allclose(words.mean(axis=1), 0, atol=1e-3)
    np.testing.assert_array_equal(before[0], after[0])  # no head has done anything yet
    assert np.abs(before[1] - after[1]).max() > 0.01


def test_runs_that_share_no_plane_are_not_drawn_on_one(bert, bart):
    trace = regard.Trace(maps=True)
    bart("the cat", trace=trace)
    exploration = launch.exploration_of(["the cat", trace], [bert, bart])
    planes = [run["projection_key"] for run in exploration.manifest()["runs"]]
    assert None not in planes
    assert planes[0] != planes[1]
    with pytest.raises(RegardError, match="share no plane"):
        exploration.movement([0, 1])
    assert exploration.movement([1])["stages"]
    for wrong in ([], [0, 0], [2]):
        with pytest.raises(RegardError):
            exploration.movement(wrong)


def test_movement_keeps_distances_as_far_as_it_says(short):
    vectors = [short.runs[0].trace[name][0, 1:-1].astype(np.float64) for name in short.movement([0])["stages"]]
    clouds = []
    for cloud in vectors:
        centred = cloud - cloud.mean(0)
        clouds.append(centred / np.sqrt((centred**2).sum(-1).mean()))
    singular = np.linalg.svd(np.concatenate(clouds), compute_uv=False) ** 2
    assert short.movement([0])["explained_variance_ratio"] == pytest.approx(singular[:2] / singular.sum())
    points = np.array(short.movement([0])["points"][0])[:, 1:-1]
    assert (points**2).sum() == pytest.approx(singular[:2].sum(), rel=1e-3)


def traced_stages(stages):
    trace = Trace()
    trace("embeddings", stages[0][None], "B T E")
    for number, vectors in enumerate(stages[1:]):
        trace(f"blocks.{number}.output", vectors[None], "B T E")
    return trace


def test_a_sink_takes_no_part_in_the_fit_of_the_plane(rng):
    stages = rng.standard_normal((3, 6, 8))
    sunk = stages.copy()
    sunk[1, 2] *= 200  # as of the first token of a language model, but not the first
    specials = np.zeros(6, dtype=bool)
    without = movement([(traced_stages(np.delete(stages, 2, axis=1)), 0, specials[1:])])
    found = movement([(traced_stages(sunk), 0, specials)])
    assert without["left_out"] == [[]]
    assert found["left_out"] == [[2]]
    assert found["explained_variance_ratio"] == pytest.approx(without["explained_variance_ratio"])
    points = np.array(found["points"][0])
    np.testing.assert_allclose(np.delete(points, 2, axis=1), without["points"][0], atol=1e-4)
    assert np.abs(points[1, 2]).max() > 10 * np.abs(np.delete(points, 2, axis=1)).max()  # it is projected too


@pytest.mark.parametrize(
    ("special", "factors", "left_out"),
    [
        ([1, 0, 0, 0, 1], [1, 1, 1, 1, 1], [0, 4]),
        ([1, 0, 0, 0, 0], [1, 1, 60, 1, 1], [0, 2]),
        ([0, 0, 0, 0, 0], [1, 1, 4, 1, 1], []),  # long, but no sink
        ([1, 1, 0, 0, 1], [1, 1, 1, 1, 1], []),  # 2 tokens span no plane
        ([1, 1, 1, 1, 1], [1, 1, 1, 1, 1], []),
        ([0], [1], []),
        ([1], [1], []),
        ([0, 0], [99, 1], []),
    ],
)
def test_the_fit_leaves_out_special_tokens_and_sinks_while_enough_remain(rng, special, factors, left_out):
    stages = rng.uniform(1, 2, (2, len(factors), 8)) * np.array(factors)[:, None]
    moved = movement([(traced_stages(stages), 0, np.array(special, dtype=bool))])
    assert moved["left_out"] == [left_out]
    assert np.isfinite(moved["points"]).all()


def test_what_is_left_out_of_the_fit_is_named_with_the_reason():
    tokens = [{"text": text, "special": text == "[SEP]"} for text in (" a", "b", "c", "d", "[SEP]", "e")]
    said = describe_plane({"explained_variance_ratio": [0.5, 0.05], "left_out": [[0]]}, [tokens])
    assert said.startswith(
        "The two axes show 55 % of the variance (50 % across, 5.0 % up) and hide 45 %. “a” is left out"
    )
    assert "its vector is more than 10 times as long as the median" in said
    many = describe_plane({"explained_variance_ratio": [0.5, 0.5], "left_out": [[0, 1, 2, 3, 4]]}, [tokens])
    assert "“a”, “b”, “c” and 1 more are left out of the fit: their vectors are" in many
    assert "Special tokens (“[SEP]”) are left out" in many
    nothing = describe_plane({"explained_variance_ratio": [0.5, 0.5], "left_out": [[]]}, [tokens])
    assert "left out" not in nothing


def test_two_texts_are_comparable_when_they_have_as_many_tokens(bert):
    assert explored(bert, "the cat sat", "the cat on").manifest()["difference_blocked_by"] is None
    longer = explored(bert, "the cat", "the cat on").manifest()
    assert longer["difference_blocked_by"] == "A has 4 tokens and B 5: A and B cannot be compared cell by cell"


def test_a_head_that_is_switched_off_hands_nothing_on(bert, short):
    edited = short.ablate([[1, 0], [1, 2]])
    context = short._runs[edited["run"]].trace["blocks.1.attn.context"]
    assert not context[0, [0, 2]].any()
    assert context[0, 1].any()
    before = bert("the cat sat").hidden[0]
    after = bert("the cat sat", edit={"blocks.1.attn.context": _without_0_and_2}).hidden[0]
    cosines = (before * after).sum(-1) / np.linalg.norm(before, axis=-1) / np.linalg.norm(after, axis=-1)
    assert edited["changes"]["cosines"] == pytest.approx(cosines.tolist(), abs=1e-5)
    assert edited["changes"]["next_tokens"] is None
    assert edited["metadata"]["title"] == "without layer 1 head 0, layer 1 head 2"


def test_a_head_that_is_switched_off_has_no_share_in_what_is_handed_over(short):
    run = short.ablate([[1, 0], [1, 2]])["run"]
    before, after = (short.value_norms(each, 1) for each in (0, run))
    np.testing.assert_array_equal(after[[0, 2]], 0)
    np.testing.assert_allclose(after[1], before[1], rtol=1e-6)
    whole_before, whole_after = (whole(short, each, 1, 1, mode="norms") for each in (0, run))
    np.testing.assert_allclose(whole_after, whole_before, rtol=1e-6)
    np.testing.assert_allclose(whole(short, run, 1, "mean", mode="norms"), whole_after / 3, rtol=1e-6)
    below = np.array(whole(short, 0, 0, 0, mode="rollout"))
    mixed = whole(short, run, 1, 1) / 3 + np.eye(5)  # the heads that are off mix nothing in
    rolled = mixed / mixed.sum(-1, keepdims=True) @ below
    np.testing.assert_allclose(whole(short, run, 1, 0, mode="rollout"), rolled, rtol=1e-5)
    np.testing.assert_array_equal(whole(short, run, 0, 0, mode="rollout"), below)


def test_the_steps_of_a_head_tell_whether_it_is_off(short):
    run = short.ablate([[1, 0]])["run"]
    off, on = (short.cell(run, 1, head, 3, 2) for head in (0, 1))
    assert off["ablated"] is True
    assert not any(off["output"])
    assert off["weight"] == pytest.approx(short.cell(0, 1, 0, 3, 2)["weight"])
    assert [on["ablated"], short.cell(0, 1, 0, 3, 2)["ablated"]] == [False, False]
    row = [short.cell(run, 1, 1, 3, j) for j in range(5)]
    np.testing.assert_allclose(sum(weighted_value(each) for each in row), on["output"], atol=1e-6)


def _without_0_and_2(context):
    context[:, [0, 2]] = 0
    return context


def test_an_edit_tells_where_weights_change_and_that_none_do_before_it(causal):
    exploration = explored(causal, "some text that is not short")
    edited = exploration.ablate([[0, 1]])
    changed = edited["changes"]["heads"]
    assert set(changed[0]) == {0.0}
    for layer, heads in list(enumerate(changed))[1:]:
        for head, by in enumerate(heads):
            before, after = (exploration.whole(run, layer, head) for run in (0, edited["run"]))
            assert by == pytest.approx(np.abs(before - after).max(), abs=1e-6)
            assert by > 0


def test_either_of_two_texts_is_edited(bert):
    exploration = explored(bert, "the cat sat", "the cat on")
    answer = exploration.ablate([[0, 1]], run=1)
    assert answer["metadata"]["text"] == "the cat on"
    assert answer["metadata"]["base_run"] == 1
    with pytest.raises(RegardError, match="there is no run to ablate 2"):
        exploration.ablate([[0, 1]], run=answer["run"])


def test_an_edit_tells_what_a_language_model_expects_next(causal):
    changes = explored(causal, "some text").ablate([[0, 0]])["changes"]["next_tokens"]
    assert len(changes) == 10
    differences = [abs(change["after"] - change["before"]) for change in changes]
    assert differences == sorted(differences, reverse=True)
    assert differences[0] > 0


def test_of_an_encoder_decoder_the_encoder_is_explored(bart):
    exploration = explored(bart, "some text")
    run = exploration.manifest()["runs"][0]
    assert {layer["name"].rpartition(".blocks.")[0] for layer in run["layers"]} == {"encoder"}
    assert {len(run["tokens"])} == {layer["rows"] for layer in run["layers"]}
    assert [name.split(".")[0] for name in exploration.movement([0])["stages"]] == ["encoder"] * (
        1 + len(run["layers"])
    )
    assert exploration.cell(0, 0, 0, 1, 1)["embedding"] is not None
    changes = exploration.ablate([[0, 0]])["changes"]
    assert len(changes["cosines"]) == len(run["tokens"])
    assert min(changes["cosines"]) < 1 - 1e-6
    assert len(changes["next_tokens"]) == 10


def test_a_decoder_is_explored_as_a_part_of_its_trace(bart):
    trace = regard.Trace(maps=True)
    bart(np.array([[3, 4, 5, 2]]), np.array([[2, 3, 6, 5]]), trace=trace)
    exploration = Exploration(trace.subtrace("decoder"))
    (run,) = exploration.runs
    assert [layer.name for layer in run.layers] == ["blocks.0.attn", "blocks.1.attn"]
    assert [token["text"] for token in exploration.manifest()["runs"][0]["tokens"]] == ["w2", "w3", "w6", "w5"]
    np.testing.assert_allclose(exploration.whole(0, 1, 0), trace["decoder.blocks.1.attn.weights"][0, 0], atol=1e-6)


def test_of_many_edits_the_last_stay_and_another_is_run_again(short):
    first = short.ablate([[0, 1]])["run"]
    maps, thumbnails = (whole(short, first, 1, 2), short.thumbnails(first))
    numbers = [short.ablate([[0, n % 3]])["run"] for n in range(9)]
    assert [first, *numbers] == list(range(1, 11))
    assert len(list(short._runs)) == 1 + 8
    np.testing.assert_array_equal(whole(short, first, 1, 2), maps)
    assert short.thumbnails(first) == thumbnails
    assert short.memory()["runs"] > 0
    assert len(list(short._runs)) == 1 + 8
    with pytest.raises(RegardError, match="there is no run 11: choose from 0 to 10"):
        short.thumbnails(11)


def test_a_saved_trace_answers_as_the_run_did(bert, short, tmp_path):
    for maps in (True, False):
        trace = Trace(maps=maps)
        bert("the cat sat", trace=trace)
        trace.save(tmp_path / "run.safetensors")
        loaded = Exploration(Trace.load(tmp_path / "run.safetensors"))
        np.testing.assert_allclose(whole(loaded, 0, 1, 2), whole(short, 0, 1, 2), atol=2e-7)
        cell, known = loaded.cell(0, 1, 2, 3, 1), short.cell(0, 1, 2, 3, 1)
        for name in ("q", "k", "scale", "scaled", "biased", "lse", "weight"):
            assert cell[name] == pytest.approx(known[name], rel=1e-4), name
        assert not loaded.manifest()["can"]["ablate"]


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
    exploration = Exploration(trace, models=[causal])
    known = explored(causal, "some text")
    np.testing.assert_allclose(whole(exploration, 0, 1, 5, "norms"), whole(known, 0, 1, 5, "norms"), rtol=1e-5)
    assert exploration.cell(0, 0, 5, 1, 1)["v"] == known.cell(0, 0, 5, 1, 1)["v"]


def test_scores_that_are_no_multiple_of_products_have_no_scale(bert):
    trace = Trace(edit={"blocks.0.attn.scores": lambda scores: scores + 1})
    bert("the cat sat", trace=trace)
    exploration = Exploration(trace)
    assert exploration.cell(0, 0, 1, 2, 3)["scale"] is None
    assert exploration.cell(0, 1, 1, 2, 3)["scale"] == pytest.approx(0.5)


@pytest.mark.parametrize("maps", [True, False])
def test_what_is_no_number_is_told_as_nothing(rng, maps):
    q, k, v = rng.standard_normal((3, 1, 2, 5, 4))
    k[..., 4, :], v[..., 4, :] = np.nan, np.inf
    trace = Trace(maps=maps)
    for name, value, axes in (("q", q, "... H T D"), ("k", k, "... G S D"), ("v", v, "... G S Dv")):
        trace(name, value, axes)
    regard.attention(q, k, v, causal=True, trace=trace)
    cell = json.loads(json.dumps(Exploration(trace).cell(0, 0, 0, 1, 4), allow_nan=False))
    assert (cell["masked"], cell["weight"], cell["v"], cell["k"]) == (True, 0, [None] * 4, [None] * 4)
    last = Exploration(trace).cell(0, 0, 0, 4, 4)
    assert json.dumps(last, allow_nan=False)
    assert last["weight"] is None


def test_whether_a_saved_run_rotates_is_not_known(causal, tmp_path):
    trace = recorded(causal, "some text")
    trace.save(tmp_path / "run.safetensors")
    assert explored(causal, "some text").cell(0, 0, 0, 1, 0)["rotated"] is True
    assert Exploration(Trace.load(tmp_path / "run.safetensors")).cell(0, 0, 0, 1, 0)["rotated"] is None


def test_a_model_that_is_not_the_trace_s_own_is_not_used(bert, causal):
    trace = recorded(bert, "the cat sat")
    assert launch.exploration_of([trace], bert).runs[0].model is bert
    assert launch.exploration_of([trace], None).runs[0].model is None
    with pytest.raises(RegardError, match=r"the trace is of .*tiny, not of .*plain: give its model"):
        launch.exploration_of([trace], causal)


def test_a_text_is_read_by_minilm_where_no_model_is_given(bert, monkeypatch):
    monkeypatch.setattr(launch, "load", {"minilm": bert}.__getitem__)
    assert [run.model for run in launch.exploration_of(["the cat", "the mat"], None).runs] == [bert, bert]


def test_the_model_of_a_trace_may_be_given_by_name(causal, tmp_path):
    trace = recorded(causal, "some text")
    for sources in ([trace], [trace, "some text"]):
        exploration = launch.exploration_of(sources, causal.name)
        assert exploration.manifest()["can"]["ablate"]
        assert [run.model.name for run in exploration.runs] == [causal.name] * len(sources)
    with pytest.raises(RegardError, match="no-such-model"):
        launch.exploration_of([trace], tmp_path / "no-such-model")


def test_one_text_is_read_by_two_models(bert, causal):
    exploration = launch.exploration_of(["the cat"], [bert, causal])
    assert [run.trace.model for run in exploration.runs] == [bert.name, causal.name]
    assert exploration.manifest()["difference_blocked_by"] is not None
    assert all(exploration.movement([run])["points"] for run in range(2))
    with pytest.raises(RegardError, match="got 2 models for 1 texts or traces"):
        launch.exploration_of([recorded(bert, "the cat")], [bert, causal])


def test_padding_of_a_batch_does_not_show(bert, short):
    trace = recorded(bert, ["the cat sat", "the cat sat on mat"])
    np.testing.assert_allclose(whole(Exploration(trace, batch=0), 0, 1, 2), whole(short, 0, 1, 2), atol=1e-6)
    assert Exploration(trace, batch=1).runs[0].length == 7
    padded = Exploration(trace, batch=0)
    assert padded.runs[0].layers[0].is_map
    cell, known = padded.cell(0, 1, 2, 3, 1), short.cell(0, 1, 2, 3, 1)
    for name in ("scale", "scaled", "capped", "biased", "lse", "weight", "row_sum"):
        assert cell[name] == pytest.approx(known[name], rel=1e-4), name
    assert len(padded.cell_inputs(0, 1, 2)[0]) == len(short.cell_inputs(0, 1, 2)[0])
    assert np.abs(thumbnails_of(padded).astype(int) - thumbnails_of(short)).max() <= 1


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (lambda x: x.row(0, 2, 0, 0), "there is no layer 2: choose from 0 to 1"),
        (lambda x: x.row(1, 0, 0, 0), "there is no run 1"),
        (lambda x: x.row(0, 0, 3, 0), "there is no head 3"),
        (lambda x: x.row(0, 0, 0, 5), "there is no token 5"),
        (lambda x: x.row(0, 0, 0, -1), "there is no token -1"),
        (lambda x: x.row(0, 0, 0, 0, mode="deep"), "no display mode 'deep'"),
        (lambda x: x.cell(0, 0, "mean", 0, 5), "there is no token 5"),
        (lambda x: x.ablate([]), "no head to ablate"),
        (lambda x: x.ablate([[0]]), "pairs \\(layer, head\\)"),
        (lambda x: x.ablate([[0, 0.5]]), "pairs \\(layer, head\\)"),
        (lambda x: x.ablate("ab"), "pairs \\(layer, head\\)"),
        (lambda x: x.ablate([[7, 0]]), "there is no layer 7"),
        (lambda x: x.tile(0, 0, 0, row0=0, row1=6, col0=0, col1=5, bin_size=1), "rows 0–6 out of range \\(5 tokens\\)"),
        (lambda x: x.tile(0, 0, 0, row0=0, row1=5, col0=3, col1=3, bin_size=1), "columns 3–3"),
        (lambda x: x.tile(0, 0, 0, row0=0, row1=5, col0=0, col1=5, bin_size=0), "bin_size 1 or more, got 0"),
        (lambda x: x.tile(0, 0, 0, row0=0, row1=5, col0=0, col1=5, bin_size=1, pool="min"), "not 'min'"),
    ],
)
def test_what_is_not_there_is_said(short, question, says):
    with pytest.raises(RegardError, match=says):
        question(short)


def test_what_cannot_be_explored_is_said(bert):
    empty = Trace(only=())
    bert("the cat", trace=empty)
    with pytest.raises(RegardError, match="the trace has no self-attention"):
        Exploration(empty)
    nothing = Trace(maps=True)
    regard.attention(*np.zeros((3, 1, 2, 0, 4)), trace=nothing)
    with pytest.raises(RegardError, match=r"weights \(1, 2, 0, 0\) has no tokens"):
        Exploration(nothing)
    with pytest.raises(RegardError, match="an Exploration is of traces"):
        Exploration("the cat")
    with pytest.raises(RegardError, match="give one text or trace, or two to compare; got 0"):
        Exploration()
    with pytest.raises(RegardError, match="there is no sequence 1 in a batch of 1"):
        Exploration(recorded(bert, "the cat"), batch=1)
    with pytest.raises(RegardError, match="there is no layer 5"):
        Exploration(recorded(bert, "the cat"), layer=5)
    with pytest.raises(RegardError, match="explore a text with a model"):
        Exploration(recorded(bert, "the cat")).ablate([[0, 0]])


def test_an_argument_that_would_do_nothing_is_refused(bert, rng, tmp_path):
    for more in ({"port": 80}, {"browser": False}):
        with pytest.raises(RegardError, match="port and browser are for the server"):
            regard.explore("the cat", model=bert, html=tmp_path / "page.html", **more)
    q, k, v = rng.standard_normal((3, 2, 5, 4))
    trace = Trace(maps=True)
    regard.attention(q, k, v, trace=trace)
    with pytest.raises(RegardError, match="there is no sequence 3 in a batch of 1"):
        Exploration(trace, batch=3)


def test_an_empty_text_has_its_special_tokens(bert):
    exploration = explored(bert, "")
    assert [token["special"] for token in exploration.manifest()["runs"][0]["tokens"]] == [True, True]
    assert whole(exploration, 0, 0, 0).shape == (2, 2)
    assert exploration.heads(0)["metrics"]["sink"] == [[None] * 3] * 2


def test_a_long_map_is_pooled_from_its_overview():
    exploration = long_exploration(6000)
    layer = exploration.runs[0].layers[0]
    weights = layer.tile(1, None, None)
    off = exploration.tile(0, 0, 1, row0=5, row1=5997, col0=0, col1=6000, bin_size=24)
    assert exploration.memory()["overviews"] == 4 * 2048**2
    assert off.shape == (250, 250)
    for i, j in ((0, 0), (100, 40), (249, 249)):
        a, b, c, d = 5 + i * 24, min(5997, 5 + (i + 1) * 24), j * 24, (j + 1) * 24
        around = weights[max(0, a - 3) : b + 3, max(0, c - 3) : d + 3].max()
        assert weights[a:b, c:d].max() <= off[i, j] + 1e-6
        assert off[i, j] <= around + 1e-6


def test_a_long_text_is_measured_from_some_of_its_rows():
    exploration = long_exploration(3000)
    entry = exploration.manifest()["runs"][0]
    assert entry["num_sampled_rows"] == 512
    rows = np.arange(512) * 3000 // 512
    weights = exploration.runs[0].layers[0].tile(1, rows, None).astype(np.float64)
    entropy = -(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1).mean()
    assert exploration.heads(0)["metrics"]["entropy"][0][1] == pytest.approx(entropy, rel=1e-5)
    assert [way["key"] for way in exploration.manifest()["modes"]] == ["raw"]


def test_of_a_long_text_one_layer_may_be_all_that_is_recorded(monkeypatch, causal):
    monkeypatch.setattr(run_module, "MAX_MOVEMENT_TOKENS", 3)
    trace = run_module.recorded(causal, "some text that is long", layer=1)
    assert {name.rpartition(".")[0] for name in trace.names()} == {"blocks.1.attn"}
    assert Exploration(trace, layer=1).initial_head[0] == Exploration(trace, layer=-1).initial_head[0] == 0
    for layer in (1, -1):
        exploration = launch.exploration_of(["some text that is long"], causal, layer=layer)
        assert [each["number"] for each in exploration.manifest()["runs"][0]["layers"]] == [1]
    with pytest.raises(RegardError, match="there is no layer 5: choose from 0 to 1"):
        launch.exploration_of(["some text that is long"], causal, layer=5)
    with pytest.raises(RegardError, match="there is no layer 5"):
        Exploration(trace, layer=5)
    assert {name.split(".")[-1] for name in run_module.recorded(causal, "some text that is long").names()} == {
        "weights",
        "v",
    }


@pytest.fixture
def second_layer(causal):
    """Return an exploration of the second of two layers alone, with its model."""
    trace = recorded(causal, "some text that is not short", only=["blocks.1.attn.weights", "blocks.1.attn.v"])
    return Exploration(trace, models=[causal], layer=1)


def test_an_edit_has_the_layers_that_were_recorded(causal, second_layer):
    edited = second_layer.ablate([[0, 1]])
    assert [layer["name"] for layer in edited["metadata"]["layers"]] == ["blocks.1.attn"]
    before, after = (second_layer.row(run, 0, 0, 3) for run in (0, edited["run"]))
    np.testing.assert_array_equal(before, after)  # heads of one layer know nothing of each other
    assert second_layer._runs[edited["run"]].trace.names() == second_layer.runs[0].trace.names()
    assert edited["changes"]["cosines"] != [1.0] * len(edited["changes"]["cosines"])


def test_a_layer_has_the_number_that_it_has_in_its_model(bert, causal, second_layer):
    assert [layer["number"] for layer in second_layer.manifest()["runs"][0]["layers"]] == [1]
    assert second_layer.ablate([[0, 1]])["metadata"]["title"] == "without layer 1 head 1"
    assert [layer["number"] for layer in explored(bert, "the cat").manifest()["runs"][0]["layers"]] == [0, 1]
    assert long_exploration(5).manifest()["runs"][0]["layers"][0]["number"] == 0
    with pytest.raises(RegardError, match="there is no layer 0: choose from 1"):
        Exploration(second_layer.runs[0].trace, layer=0)


def test_layers_of_different_numbers_have_no_difference(causal):
    one, other = (recorded(causal, "some text", only=f"blocks.{n}.attn.weights") for n in range(2))
    assert Exploration(one, other).manifest()["difference_blocked_by"] == "A and B have different layers and heads"


def test_an_edit_is_held_against_one_run_of_the_model(short, monkeypatch):
    model, runs = short.runs[0].model, []
    run = type(model).forward
    monkeypatch.setattr(type(model), "forward", lambda self, *x, **kw: runs.append(1) or run(self, *x, **kw))
    for head in range(3):
        short.ablate([[0, head]])
    assert len(runs) == 4


def test_what_a_run_holds_is_counted(short):
    trace = short.runs[0].trace
    vectors = [trace[name].nbytes for name in trace.names() if not name.endswith("weights")]
    maps = [trace.map(f"blocks.{layer}.attn").nbytes for layer in range(2)]
    assert short.memory()["runs"] == sum(vectors) + sum(maps)


def test_a_smaller_run_opens_with_a_head_that_it_has(bert):
    model = regard.models.toy(["the cat sat"])
    exploration = Exploration(recorded(bert, "the cat sat"), recorded(model, "the cat sat"), layer=1, head=2)
    opened = [run["initial"] for run in exploration.manifest()["runs"]]
    assert opened == [{"layer": 1, "head": 2}, {"layer": 0, "head": 0}]


@pytest.mark.parametrize("length", [100, 3000])
def test_a_cell_of_a_thumbnail_is_the_largest_weight_that_it_covers(length):
    exploration = long_exploration(length)
    run, found = exploration.runs[0], thumbnails_of(exploration)[0, 1]
    side = len(found)
    weights = run.layers[0].tile(1, run.sampled_rows(), None)
    assert side < len(weights)
    rows, cols = ([i * n // side for i in range(side)] for n in weights.shape)
    largest = np.maximum.reduceat(np.maximum.reduceat(weights, rows, 0), cols, 1)
    np.testing.assert_allclose(found, 255 * np.sqrt(largest / largest.max()), atol=0.51)


def test_a_single_token_does_not_show_whether_a_model_is_causal():
    assert [long_exploration(n).manifest()["runs"][0]["layers"][0]["causal"] for n in (1, 2)] == [False, True]


def test_a_run_with_arrays_of_weights_holds_them_once(bert):
    trace = Trace(only=("*weights", "*output"))
    bert("the cat sat", trace=trace)
    held = [trace[name].nbytes for name in trace.names()]
    assert Exploration(trace).memory()["runs"] == sum(held)


def test_memory_stays_below_its_bound():
    exploration = long_exploration(6000, heads=3)
    exploration._cache.limit = 40_000_000
    for head in range(3):
        for pool in ("max", "mean"):
            exploration.tile(0, 0, head, row0=0, row1=6000, col0=0, col1=6000, bin_size=600, pool=pool)
    memory = exploration.memory()
    assert 16_000_000 < memory["overviews"] <= memory["overviews_limit"] == 40_000_000


def test_work_is_left_off_when_nobody_waits():
    calls = []

    def check():
        calls.append(1)
        if len(calls) > 1:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        long_exploration(3000, heads=5).thumbnails(0, check=check)
    assert len(calls) == 2


def test_an_overview_is_left_off_too():
    exploration = long_exploration(9000)
    calls = []

    def check():
        calls.append(1)
        if len(calls) > 4:
            raise InterruptedError

    asked = {"row0": 0, "row1": 9000, "col0": 0, "col1": 9000, "bin_size": 36}
    with pytest.raises(InterruptedError):
        exploration.tile(0, 0, 1, **asked, check=check)
    assert exploration.memory()["overviews"] == 0
    assert exploration.tile(0, 0, 1, **asked, check=lambda: calls.append(2)).max() > 0
    assert calls.count(2) > 10


@pytest.mark.parametrize("way", ["rollout", "norms"])
def test_a_row_and_a_column_are_left_off_too(bert, way):
    def check():
        raise InterruptedError

    exploration = explored(bert, "the cat sat")
    for ask in (exploration.row, exploration.column):
        with pytest.raises(InterruptedError):
            ask(0, 1, 0, 2, mode=way, check=check)


def test_the_rollouts_of_two_runs_stay_beside_each_other(monkeypatch, bert):
    made = []
    monkeypatch.setattr(map_reader, "rollouts", lambda *of: made.append(1) or rollouts(*of))
    exploration = explored(bert, "the cat sat", "the cat on")
    assert all(run.rollout_nbytes <= run_module._MAX_ROLLOUT_BYTES for run in exploration.runs)
    exploration._cache.limit = 3 * exploration.runs[0].rollout_nbytes
    exploration.thumbnails(0)
    for _ in range(4):
        for run in (0, 1):
            exploration.row(run, 1, 0, 2, mode="rollout")
    assert len(made) == 2


def test_a_tile_of_large_cells_is_that_of_the_overview_where_it_is_as_fine():
    exploration = long_exploration(8192)
    layer = exploration.runs[0].layers[0]
    asked = {"row0": 4096, "row1": 8192, "col0": 0, "col1": 4096, "bin_size": 16}
    found = exploration.tile(0, 0, 1, **asked)
    assert exploration.memory()["overviews"] == 4 * 2048**2
    weights = layer.tile(1, slice(4096, 8192), slice(0, 4096))
    np.testing.assert_allclose(found, weights.reshape(256, 16, 256, 16).max((1, 3)), atol=1e-6)


def test_what_a_page_asks_for_first_is_worked_out_ahead(monkeypatch):
    exploration = long_exploration(8192)
    exploration.prepare()
    monkeypatch.setattr(map_reader.pooling, "overview", None)
    assert exploration.tile(0, 0, 0, row0=0, row1=8192, col0=0, col1=8192, bin_size=32).shape == (256, 256)


def test_work_ahead_is_left_off_when_told():
    def check():
        raise InterruptedError

    with pytest.raises(InterruptedError):
        long_exploration(8192).prepare(check)


def test_the_trace_of_a_picture_is_explored_as_a_sequence_of_patches():
    trace = Trace(maps=True)
    regard.load(golden.FOLDER / "vit/plain")(np.zeros((12, 12, 3), np.uint8), trace=trace)
    assert '"r2c1"' in json.dumps(Exploration(trace).manifest())


def test_how_far_an_ablation_is_grows_and_ends(bert, monkeypatch):
    exploration, seen = explored(bert, "the cat sat"), []
    compare = ablation._changed_outputs
    tap = regard.Trace.__call__

    def observed(trace, name, value, axes):
        seen.append(exploration.progress()["ablate"]["share"])
        return tap(trace, name, value, axes)

    monkeypatch.setattr(regard.Trace, "__call__", observed)
    monkeypatch.setattr(
        ablation,
        "_changed_outputs",
        lambda *x: [seen.append(exploration.progress()["ablate"]["share"]), compare(*x)][1],
    )
    exploration.ablate([[0, 1]])
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert len(set(seen)) > 3
    assert seen[-1] == 1
    assert exploration.progress() == {}


def test_the_time_that_is_left_follows_from_the_share(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])
    progress = progress_module.Progress()
    with progress.watch("heads") as watch:
        assert progress.describe() == {"heads": {"share": 0, "seconds_left": None}}
        clock[0] += 10
        watch(lambda: 0.25)
        assert progress.describe() == {"heads": {"share": 0.25, "seconds_left": 30}}
    assert progress.describe() == {}


def test_metrics_say_how_far_they_are(monkeypatch):
    exploration, seen = long_exploration(300), []
    measured = head_metrics.layer_metrics
    monkeypatch.setattr(
        head_metrics, "layer_metrics", lambda *x: [seen.append(exploration.progress()), measured(*x)][1]
    )
    exploration.heads(0)
    assert seen == [{"heads": {"share": 0, "seconds_left": None}}]


def test_two_long_texts_are_named_by_where_they_part():
    begin = "The animal did not cross the street because it was too"
    runs = [SimpleNamespace(encoding=SimpleNamespace(text=f"{begin} {end}")) for end in ("tired", "wide")]
    assert distinct_texts(runs) == ["…it was too tired", "…it was too wide"]
    runs = [SimpleNamespace(encoding=SimpleNamespace(text=text)) for text in ("a cat", "a dog")]
    assert distinct_texts(runs) == ["a cat", "a dog"]


def test_a_row_of_scores_becomes_a_row_of_weights(short):
    steps = short.cell(0, 1, 2, 3, 1)
    row = steps["row"]
    scores = np.array(row["scores"])
    assert row["columns"] == [0, 1, 2, 3, 4]
    assert row["max"] == scores.max()
    assert row["sum"] == pytest.approx(np.exp(scores - scores.max()).sum(), rel=1e-5)
    np.testing.assert_allclose(row["weights"], np.exp(scores) / np.exp(scores).sum(), rtol=1e-5)
    np.testing.assert_allclose(row["weights"], short.row(0, 1, 2, 3), rtol=1e-5)


def test_weights_times_values_sum_to_what_the_head_writes(bert, short):
    steps, run = short.cell(0, 1, 2, 3, 1), short.run(0)
    terms = steps["terms"]
    v = run.trace["blocks.1.attn.v"][0, 2]
    for column, vector in zip(terms["columns"], terms["vectors"], strict=True):
        np.testing.assert_allclose(vector, short.row(0, 1, 2, 3)[column] * v[column], rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(np.sum([*terms["vectors"], terms["rest"]], axis=0), steps["output"], atol=1e-5)
    projection = np.asarray(bert.blocks[1].attn.o_proj.weight, np.float64)
    context = np.asarray(run.trace["blocks.1.attn.context"][0, :, 3], np.float64)  # H Dv
    written = np.einsum("hd,hde->he", context, projection.reshape(*context.shape, -1))
    projected = steps["projected"]
    assert projected["width"] == projection.shape[1]
    total, bias = written.sum(0), np.asarray(bert.blocks[1].attn.o_proj.bias, np.float64)
    np.testing.assert_allclose(projected["vector"], written[2], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(projected["attention"], total + bias, rtol=1e-4, atol=1e-5)
    assert projected["lengths"]["vector"] == pytest.approx(np.linalg.norm(written[2]), rel=1e-4)
    assert projected["share"] == pytest.approx(written[2] @ total / (total @ total), rel=1e-3)


def test_the_terms_of_rollout_sum_to_the_cell_of_the_map(short):
    for layer in (0, 1):
        terms = short.cell(0, layer, 2, 3, 1, mode="rollout")["rollout"]
        shown = short.whole(0, layer, "mean", "rollout")[3, 1]
        assert (terms["mixed"] + terms["before"]) / terms["total"] == pytest.approx(shown, rel=1e-5)
        assert terms["mixed"] == pytest.approx(np.dot(terms["means"], terms["previous"]), rel=1e-6)
    assert short.cell(0, 1, 2, 3, 1)["rollout"] is None


def test_a_bias_that_falls_with_the_distance_is_named():
    n, slope = 6, 0.25
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    rng = np.random.default_rng(3)
    q, k = rng.normal(size=(2, 1, n, 4))

    def named(bias):
        layer = LayerMap("blocks.0.attn", regard.AttentionMap(q, k, bias=bias), 1, n)
        return bias_note(layer, layer.source.bias, 0, 4, 1)

    assert named(-slope * distance[None]) == "ALiBi: −0.25 for each token of distance; these are 3 tokens apart."
    assert "to the score of this query and key; they are 3 tokens apart" in named(rng.normal(size=(1, n, n)))
    assert named(ALiBi(np.array([slope]))) == "ALiBi: −0.25 for each token of distance; these are 3 tokens apart."


@pytest.mark.parametrize(("bidirectional", "i", "j", "said"), [
    (True, 20, 3, "bucket 10 of 32, j − i = −22 to −16."),
    (True, 1, 3, "bucket 18 of 32, j − i = 2."),
    (False, 20, 3, "bucket 16 of 32, j − i = −18 to −16."),
    (True, 190, 3, "bucket 15 of 32, j − i = −128 to −91, and all beyond."),
])  # fmt: skip
def test_a_bias_of_a_table_names_its_bucket(rng, bidirectional, i, j, said):
    n = 200
    q, k = rng.normal(size=(2, 1, n, 4))
    rule = RelativePositionBias(rng.normal(size=(32, 1)), bidirectional=bidirectional)
    layer = LayerMap("blocks.0.attn", regard.AttentionMap(q, k, bias=rule), 1, n)
    own = rule.buckets(np.arange(n) - i)
    same = np.flatnonzero(own == own[j]) - i
    note = bias_note(layer, rule, 0, i, j)
    assert note is not None
    assert note.endswith(said)
    assert str(own[j]) in note
    assert str(abs(same.max())) in note


@pytest.mark.parametrize("case", [
    "llama/plain", "llama/yarn-mscale", "llama/dynamic", "phi3/partial", "gpt_neox/half", "smollm3/plain",
    "qwen3/plain", "gemma2/plain", "gemma3_text/plain", "modernbert/plain", "nomic_bert/plain",
    "deepseek_v3/yarn",
])  # fmt: skip
def test_the_rotation_of_a_cell_undoes_and_adds_up(case):
    model, text, (i, j) = regard.load(golden.FOLDER / case), "some text that is not short", (4, 1)
    exploration = explored(model, text)
    projected = Trace(optional=["*projected_q", "*projected_k"])  # a latent has no such keys
    model(text, trace=projected)
    for layer in range(len(exploration.runs[0].layers)):
        cell = exploration.cell(0, layer, 1, i, j)
        rotation = cell["rotation"]
        if case == "smollm3/plain" and layer == 3:  # a layer without rotation
            assert (cell["rotated"], rotation) == (False, None)
            continue
        assert cell["rotated"] is True
        assert rotation["distance"] == 3
        rest = set(range(len(cell["q"]))) - {d for pair in rotation["pairs"] for d in pair["dims"]}
        products = sum(pair["product"] for pair in rotation["pairs"])
        others = sum(cell["q"][d] * cell["k"][d] for d in rest)
        assert products + others == pytest.approx(np.dot(cell["q"], cell["k"]), rel=1e-5, abs=1e-6)
        normed = "gemma3" in case or "qwen3" in case  # between projection and rotation
        for pair in rotation["pairs"]:
            for name, at, head in (("q", i, 1), ("k", j, cell["kv_head"])):
                before, after = pair[name]
                np.testing.assert_allclose(after, np.array(cell[name])[pair["dims"]], rtol=1e-6)
                if not normed and f"blocks.{layer}.attn.projected_{name}" in projected:
                    known = projected[f"blocks.{layer}.attn.projected_{name}"][0, head, at][pair["dims"]]
                    np.testing.assert_allclose(before, known, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["llama/plain", "gpt2/plain", "bert/gelu", "nomic_bert/plain", "modernbert/plain",
                                  "albert/shared", "electra/silu", "gemma2/plain", "olmo2/plain"])  # fmt: skip
def test_the_residual_stream_of_a_cell_is_the_model_s(case):
    model, text = regard.load(golden.FOLDER / case), "some text that is not short"
    exploration, residual = explored(model, text), Trace(only="*attn_residual")
    model(text, trace=residual)
    for layer in range(len(exploration.runs[0].layers)):
        projected = exploration.cell(0, layer, 1, 4, 1)["projected"]
        if case in ("gemma2/plain", "olmo2/plain"):  # norms what attention writes, before it is added
            assert (projected["normed"], projected["after"]) == (True, None)
            continue
        known = residual[f"blocks.{layer}.attn_residual"][0, 4]
        after = np.array(projected["after"], np.float32)
        if not getattr(model.blocks[layer], "norm_first", True):  # the step is recorded after the norm
            after = model.blocks[layer].attn_norm(after)
        np.testing.assert_allclose(after, known, rtol=1e-4, atol=1e-5)
        assert projected["lengths"]["after"] == pytest.approx(np.linalg.norm(projected["after"]), rel=1e-6)


@pytest.mark.parametrize("mode", ["raw", "rollout", "norms"])
def test_the_mean_of_heads_has_what_each_head_has(short, mode):
    cell = short.cell(0, 1, "mean", 3, 1, mode=mode)
    shown = short.whole(0, 1, "mean", mode)[3, 1]
    heads = [short.whole(0, 1, head, "raw" if mode == "rollout" else mode)[3, 1] for head in range(3)]
    np.testing.assert_allclose(cell["mean"]["heads"], heads, rtol=1e-5)
    value = cell["rollout"]["value"] if mode == "rollout" else cell["mean"]["value"]
    assert value == pytest.approx(shown, rel=1e-5)
    assert cell["weight"] is None


def test_a_weight_times_its_value_has_the_length_on_the_map(short):
    cell = short.cell(0, 1, 2, 3, 1, mode="norms")
    assert cell["weight"] * cell["value_length"] == pytest.approx(short.whole(0, 1, 2, "norms")[3, 1], rel=1e-5)
    assert short.cell(0, 1, 2, 3, 1)["value_length"] is None
