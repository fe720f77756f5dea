"""Why a token attends to another, as the page asks: the pairs of `regard.metrics.why`, and the maps of their heads."""

import json

import numpy as np
import pytest
from decode_page import read_page
from explorations import explored

import golden
import regard
from regard.explorer import Exploration, export_html
from regard.explorer.export_html import render_page
from regard.explorer.opening import strongest_cell
from regard.explorer.run import recorded
from regard.metrics import why

TEXT = "some text that is not short"


def written(answer):
    return [(pair["query"]["label"], pair["key"]["label"]) for pair in answer["pairs"]]


def test_an_answer_has_the_largest_pairs_and_the_others_together(causal):
    trace = regard.Trace()
    causal(TEXT, trace=trace)
    score = why(trace, 1, 2, 4, 1)
    answer = Exploration(recorded(causal, TEXT), models=[causal]).why(0, 1, 2, 4, 1)
    order = np.argsort(-np.abs(score.pairs), axis=None)[:10]
    at = list(zip(*np.unravel_index(order, score.pairs.shape), strict=True))
    assert written(answer) == [(score.query_writers[i].label, score.key_writers[j].label) for i, j in at]
    values = [pair["value"] for pair in answer["pairs"]]
    np.testing.assert_allclose(values, [score.pairs[place] for place in at], rtol=1e-3)
    assert answer["score"] == pytest.approx(score.score, rel=1e-3)
    assert sum(values) + answer["others"] == pytest.approx(score.score, abs=1e-2 * np.abs(values).max())
    assert answer["num_others"] == score.pairs.size - 10
    assert answer["versus"] is None


def test_a_head_has_the_layer_of_its_map(causal):
    answer = explored(causal, TEXT).why(0, 1, 2, 4, 1)
    writers = [pair[side] for pair in answer["pairs"] for side in ("query", "key")]
    heads = [writer for writer in writers if writer["kind"] == "head"]
    assert heads
    assert {writer["label"] for writer in heads} == {f"L{writer['layer']}H{writer['head']}" for writer in heads}
    assert all(writer["layer"] is writer["head"] is None for writer in writers if writer not in heads)


@pytest.mark.parametrize("target", [" → w8 w6 w9", ""])
def test_of_an_encoder_decoder_each_map_has_its_own(bart, target):
    exploration = Exploration(recorded(bart, f"w5 w6 w7 w8{target}"), models=[bart])
    run = exploration.runs[0]
    for layer in range(len(run.layers)):
        rows, cols = run.block(layer)
        answer, steps = (ask(0, layer, 1, rows[-1], cols[1]) for ask in (exploration.why, exploration.cell))
        assert answer["score"] == pytest.approx(steps["scaled"], rel=1e-3)
        for writer in (pair[side] for pair in answer["pairs"] for side in ("query", "key")):
            if writer["kind"] == "head":
                number, _, where = writer["label"].partition(" ")
                stack = where[-8:-1]
                name = f"{stack}.blocks.{number[1]}.{'cross_attn' if 'cross' in where else 'attn'}"
                assert run.layers[writer["layer"]].name == name
        assert exploration.why(0, layer, 1, rows[-1], cols[1], contrast=True)["versus"] in set(cols) - {cols[1]}


def test_with_a_contrast_the_strongest_other_word_is_subtracted(causal):
    exploration = explored(causal, TEXT)
    n = exploration.runs[0].length - 1
    scores = [exploration.cell(0, 1, 2, n, j)["scaled"] for j in range(n + 1)]
    order = [j for j in np.argsort(scores)[::-1] if j > 0]  # the first token is no word
    for chosen, other in ((order[0], order[1]), (order[3], order[0])):
        answer = exploration.why(0, 1, 2, n, int(chosen), contrast=True)
        assert answer["versus"] == other
        assert answer["score"] == pytest.approx(scores[chosen] - scores[other], rel=1e-3)


def test_after_an_ablation_it_is_of_the_run_without_the_heads(causal):
    exploration = explored(causal, TEXT)
    ablated = exploration.ablate([(0, head) for head in range(len(exploration.runs[0].layers[0].heads))])["run"]
    answer = exploration.why(ablated, 1, 2, 4, 1)
    assert answer["score"] == pytest.approx(exploration.cell(ablated, 1, 2, 4, 1)["scaled"], rel=1e-3)
    assert answer["score"] != pytest.approx(exploration.why(0, 1, 2, 4, 1)["score"], rel=1e-2)
    for number, are_zero in ((0, False), (ablated, True)):
        run = exploration.run(number)
        pairs = why(run.trace, 1, 2, 4, 1, model=causal).to_columns()
        of_layer_0 = [
            value
            for *labels, value in zip(*pairs.values(), strict=True)
            if any(label.startswith("L0H") for label in labels)
        ]
        assert of_layer_0
        assert (not any(of_layer_0)) == are_zero


def test_what_a_cap_or_a_bias_adds_is_apart():
    for case, name, steps in (
        ("gemma2/capped", "softcap", ("scaled", "capped")),
        ("mpnet/plain", "bias", ("capped", "biased")),
    ):
        exploration = explored(regard.load(golden.FOLDER / case), TEXT)
        cell = exploration.cell(0, 1, 1, 3, 2)
        assert exploration.why(0, 1, 1, 3, 2)["terms"][name] == pytest.approx(cell[steps[1]] - cell[steps[0]], rel=1e-3)


def held(page):
    manifest, blob = read_page(page)
    return json.loads(blob("why")) if "why" in manifest["blobs"] else {}


def test_a_file_holds_the_opening_cell_and_the_strongest_of_each_head(causal):
    exploration = explored(causal, TEXT, "some text")
    answers = held(render_page(exploration))
    initial = [run["initial"] for run in exploration.manifest()["runs"]]
    expected = {(run, at["layer"], at["head"], at["row"], at["col"]) for run, at in enumerate(initial) if "row" in at}
    assert len(expected) == 1  # the other text is shorter
    for number, run in enumerate(exploration.runs):
        for layer, of_layer in enumerate(run.layers):
            for head in range(len(of_layer.heads)):
                expected.add((number, layer, head, *strongest_cell(run, layer, head)))
    assert {tuple(map(int, at.split("/"))) for at in answers} == expected
    for at in expected:
        assert answers["/".join(map(str, at))] == exploration.why(*at)


def test_a_file_holds_as_many_as_fit_from_the_opening_cell_on(causal, monkeypatch):
    exploration = explored(causal, TEXT)
    full = render_page(exploration)
    monkeypatch.setattr(export_html, "_MAX_WHY", 3)
    few = held(render_page(exploration))
    assert len(few) == 4
    monkeypatch.undo()
    whole = held(full)
    monkeypatch.setattr(export_html, "cell_inputs", lambda *_: None)
    room = len(render_page(exploration)) - 300
    monkeypatch.setattr(export_html, "_LIMITS", (room, room))
    page = render_page(exploration)
    assert len(page) <= room
    assert list(held(page)) == list(whole)[: len(held(page))]
    assert 0 < len(held(page)) < len(whole)


def test_a_file_of_a_run_without_a_model_holds_none(causal):
    assert held(render_page(Exploration(recorded(causal, TEXT)))) == {}
