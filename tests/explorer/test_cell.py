"""The steps of a cell add up to what the map shows, and agree with the model, computed independently here."""

import json

import numpy as np
import pytest
from explorations import bare, explored, whole

import golden
import regard
from regard import Trace
from regard.explorer.queries.cell import bias_note
from regard.functional.biases.distance import ALiBi, RelativePositionBias
from regard.metrics.layer_maps import LayerMap


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


def test_a_row_of_scores_becomes_a_row_of_weights(short):
    row = short.cell(0, 1, 2, 3, 1)["row"]
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


@pytest.mark.parametrize("mode", ["raw", "rollout", "norms"])
def test_the_mean_of_heads_has_what_each_head_has(short, mode):
    cell = short.cell(0, 1, "mean", 3, 1, mode=mode)
    heads = [short.whole(0, 1, head, "raw" if mode == "rollout" else mode)[3, 1] for head in range(3)]
    np.testing.assert_allclose(cell["mean"]["heads"], heads, rtol=1e-5)
    value = cell["rollout"]["value"] if mode == "rollout" else cell["mean"]["value"]
    assert value == pytest.approx(short.whole(0, 1, "mean", mode)[3, 1], rel=1e-5)
    assert cell["weight"] is None


def test_a_weight_times_its_value_has_the_length_on_the_map(short):
    cell = short.cell(0, 1, 2, 3, 1, mode="norms")
    assert cell["weight"] * cell["value_length"] == pytest.approx(short.whole(0, 1, 2, "norms")[3, 1], rel=1e-5)
    assert short.cell(0, 1, 2, 3, 1)["value_length"] is None


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
    exploration = bare(q, k, v, bias=bias, softcap=3.0, sinks=np.array([0.3, 2.0]))
    row = [exploration.cell(0, 0, 1, 2, j) for j in range(5)]
    cell = row[4]
    assert exploration.manifest()["runs"][0]["layers"][0]["row_sum_error"] is None  # the sink has its share
    assert (cell["softcap"], cell["sink"]) == (3.0, 2.0)
    assert cell["capped"] == pytest.approx(3 * np.tanh(cell["scaled"] / 3))
    assert cell["bias"] == pytest.approx(bias[0, 1, 2, 4])
    assert np.exp(cell["biased"] - cell["lse"]) == pytest.approx(cell["weight"])
    assert cell["lse"] == pytest.approx(np.log(np.sum(np.exp([*(each["biased"] for each in row), 2.0]))))
    total = sum(each["weight"] for each in row)
    assert cell["row_sum"] == pytest.approx(total) == pytest.approx(1 - np.exp(2.0 - cell["lse"]))


@pytest.mark.parametrize("maps", [True, False])
def test_what_is_no_number_is_told_as_nothing(rng, maps):
    q, k, v = rng.standard_normal((3, 1, 2, 5, 4))
    k[..., 4, :], v[..., 4, :] = np.nan, np.inf
    exploration = bare(q, k, v, keep="qkv", maps=maps, causal=True)
    cell, last = (json.loads(json.dumps(exploration.cell(0, 0, 0, i, 4), allow_nan=False)) for i in (1, 4))
    assert (cell["masked"], cell["weight"], cell["v"], cell["k"]) == (True, 0, [None] * 4, [None] * 4)
    assert last["weight"] is None


def test_scores_that_are_no_multiple_of_products_have_no_scale(bert):
    trace = Trace(edit={"blocks.0.attn.scores": lambda scores: scores + 1})
    bert("the cat sat", trace=trace)
    exploration = regard.explorer.Exploration(trace)
    assert exploration.cell(0, 0, 1, 2, 3)["scale"] is None
    assert exploration.cell(0, 1, 1, 2, 3)["scale"] == pytest.approx(0.5)


def test_a_bias_that_falls_with_the_distance_is_named(rng):
    n, slope = 6, 0.25
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    q, k = rng.normal(size=(2, 1, n, 4))

    def named(bias):
        layer = LayerMap("blocks.0.attn", regard.AttentionMap(q, k, bias=bias), 1, n)
        return bias_note(layer, layer.source.bias, 0, 4, 1)

    for bias in (-slope * distance[None], ALiBi(np.array([slope]))):
        assert named(bias) == "ALiBi: −0.25 for each token of distance; these are 3 tokens apart."
    assert "to the score of this query and key; they are 3 tokens apart" in named(rng.normal(size=(1, n, n)))


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
    assert note.endswith(said)
    assert str(own[j]) in note
    assert str(abs(same.max())) in note


@pytest.mark.parametrize("case", [
    "llama/plain", "llama/yarn-mscale", "llama/dynamic", "phi3/partial", "gpt_neox/half", "smollm3/plain",
    "qwen3/plain", "gemma2/plain", "gemma3_text/plain", "modernbert/plain", "nomic_bert/plain",
    "cohere/plain", "cohere2/plain", "deepseek_v3/yarn", "llama4_text/plain",
])  # fmt: skip
def test_the_rotation_of_a_cell_undoes_and_adds_up(case):
    model, text, (i, j) = regard.load(golden.FOLDER / case), "some text that is not short", (4, 1)
    exploration = explored(model, text)
    projected = Trace(optional=["*projected_q", "*projected_k"])  # a latent has no such keys
    model(text, trace=projected)
    for layer in range(len(exploration.runs[0].layers)):
        cell = exploration.cell(0, layer, 1, i, j)
        rotation = cell["rotation"]
        if (case, layer) in (("smollm3/plain", 3), ("cohere2/plain", 3), ("llama4_text/plain", 1)):  # not rotated
            assert (cell["rotated"], rotation) == (False, None)
            continue
        assert cell["rotated"] is True
        assert rotation["distance"] == 3
        rest = set(range(len(cell["q"]))) - {d for pair in rotation["pairs"] for d in pair["dims"]}
        products = sum(pair["product"] for pair in rotation["pairs"])
        others = sum(cell["q"][d] * cell["k"][d] for d in rest)
        assert products + others == pytest.approx(np.dot(cell["q"], cell["k"]), rel=1e-5, abs=1e-6)
        normed = any(family in case for family in ("gemma3", "llama4", "qwen3"))  # between projection and rotation
        for pair in rotation["pairs"]:
            for name, at, head in (("q", i, 1), ("k", j, cell["kv_head"])):
                before, after = pair[name]
                np.testing.assert_allclose(after, np.array(cell[name])[pair["dims"]], rtol=1e-6)
                if not normed and f"blocks.{layer}.attn.projected_{name}" in projected:
                    known = projected[f"blocks.{layer}.attn.projected_{name}"][0, head, at][pair["dims"]]
                    np.testing.assert_allclose(before, known, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["llama/plain", "gpt2/plain", "bert/gelu", "nomic_bert/plain", "modernbert/plain",
                                  "albert/shared", "electra/silu", "granite/biased", "gemma2/plain",
                                  "olmo2/plain"])  # fmt: skip
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
