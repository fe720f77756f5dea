"""The paths behind the next token, as the page asks: those of `model.paths`, laid out as the figure of them."""

import json
import re

import numpy as np
import pytest
from decode_page import read_page
from explorations import Left, explored

import golden
import regard
from regard import RegardError, plot
from regard.explorer.export_html import render_page
from regard.explorer.queries import paths as paths_module
from regard.explorer.query import dispatch

TEXT, OTHER = "qzkfqz", "qxkfqz"


@pytest.fixture(scope="module")
def model():
    return regard.load("induction")


@pytest.fixture(scope="module")
def compared(model):
    return explored(model, TEXT, OTHER)


def token(model, letter):
    return model.tokenizer(letter).ids[0]


def edges_of(answer):
    """Return the edges of an answer as the metric names them."""
    nodes, edges = answer["graph"]["nodes"], answer["graph"]["edges"]
    return [(nodes[edge["writer"]]["label"], edge["read_by"], edge["token"], edge["score"]) for edge in edges]


def edges_in(found):
    return [(edge.writer.label, edge.reader.label, edge.position, float(f"{edge.score:.4g}")) for edge in found.edges]


def assert_is(answer, found):
    """Assert that an answer, which is plain data, has the graph of the metric."""
    assert json.loads(json.dumps(answer, allow_nan=False)) == json.loads(json.dumps(answer))
    assert edges_of(answer) == edges_in(found)
    assert answer["summary"] == found.summary()
    assert answer["faithfulness"] == pytest.approx(found.faithfulness, rel=1e-3)
    tree = [(depth, edges_of(answer)[edge], repeats) for depth, edge, repeats in answer["tree"]]
    of_edge = dict(zip(found.edges, edges_in(found), strict=True))
    assert tree == [(depth, of_edge[edge], repeats) for depth, edge, repeats in found.tree()]


def test_an_answer_is_the_graph_of_the_metric(compared, model):
    params = {"run": 0, "token": token(model, "k"), "versus": token(model, "f"), "corrupted": OTHER}
    answer = dispatch(compared, "paths", params)
    assert_is(answer, model.paths(TEXT, "k", "f", corrupted=OTHER))
    assert (answer["position"], answer["token"], answer["versus"]) == (5, params["token"], params["versus"])


def test_by_default_it_is_of_the_likeliest_token_against_the_text_that_is_compared(compared, model):
    likeliest = compared.next_tokens(0)["tokens"][0]["token"]
    answer = compared.paths(0)
    assert (answer["token"], answer["corrupted"]) == (likeliest, OTHER)
    assert_is(answer, model.paths(TEXT, likeliest, corrupted=OTHER))
    for other in (TEXT, OTHER + "k"):  # the same, or longer
        assert explored(model, TEXT, other).paths(0)["corrupted"] is None
    assert explored(model, TEXT, "qzkfqx").paths(0, position=4)["corrupted"] is None  # the same up to there


@pytest.mark.parametrize("corrupted", [None, OTHER])
def test_after_an_earlier_token_it_is_the_graph_of_the_text_up_to_there(model, corrupted):
    answer = explored(model, TEXT).paths(0, position=3, token=token(model, "q"), corrupted=corrupted)
    assert_is(answer, model.paths(TEXT[:4], "q", corrupted=corrupted and corrupted[:4]))
    assert max(node["token"] for node in answer["graph"]["nodes"]) == 3


def test_a_head_has_the_place_of_its_map(causal):
    answer = explored(causal, "w5 w6 w7 w8").paths(0)
    heads = [node for node in answer["graph"]["nodes"] if node["kind"] == "head"]
    others = [node for node in answer["graph"]["nodes"] if node["kind"] != "head"]
    assert {node["kind"] for node in others} == {"token_embeddings", "mlp", "logits"}
    assert {node["label"] for node in heads} == {f"L{node['layer']}H{node['head']}" for node in heads} != set()
    assert all(node["layer"] is node["head"] is None for node in others)


def test_page_and_figure_have_one_layout(compared, model):
    graph = compared.paths(0)["graph"]
    figure = plot.paths(model.paths(TEXT, compared.paths(0)["token"], corrupted=OTHER))
    boxes = np.array([patch.get_xy() for patch in figure.axes[0].patches])  # their lower left corners
    places = np.array([(node["x"], -node["y"]) for node in graph["nodes"]])
    for ours, drawn in zip(places.T, boxes.T, strict=True):
        order = np.sign((ours[:, None] - ours).round(1))
        assert np.array_equal(order, np.sign((drawn[:, None] - drawn).round(3)))


def test_lines_lead_from_box_to_box_inside_the_graph(compared):
    graph = compared.paths(0)["graph"]
    width, height = graph["box"]
    for node in graph["nodes"]:
        assert width / 2 <= node["x"] <= graph["width"] - width / 2
        assert height / 2 <= node["y"] <= graph["height"] - height / 2
    for edge in graph["edges"]:
        points = np.array([each.split() for each in re.split("[ML]", edge["line"])[1:]], float)
        start, end = graph["nodes"][edge["writer"]], graph["nodes"][edge["reader"]]
        np.testing.assert_allclose(points[0], (start["x"], start["y"] - height / 2), atol=0.2)
        assert points[-1][1] == pytest.approx(end["y"] + height / 2, abs=0.2)
        side = {"query": -1, "value": 1}.get(edge["read_by"].split()[-1], 0)
        assert points[-1][0] - end["x"] == pytest.approx(0.3 * side * width, abs=0.2)
        assert ((points >= 0) & (points <= (graph["width"], graph["height"]))).all()


def test_what_has_no_paths_says_so_before_it_is_asked(bart, model):
    exploration, latent = explored(model, TEXT), explored(regard.load(golden.FOLDER / "deepseek_v3" / "plain"), [1, 2])
    ablated = exploration.ablate([(0, 1)])["run"]
    assert exploration.manifest()["runs"][0]["has_paths"]
    assert not latent.manifest()["runs"][0]["has_paths"]
    assert not paths_module.has_paths(explored(bart, "w5 w6 w7").run(0))
    assert not paths_module.has_paths(exploration.run(ablated))


def test_what_nobody_waits_for_ends_and_is_not_kept(model):
    exploration = explored(model, TEXT)
    left = Left(3)
    with pytest.raises(InterruptedError):
        exploration.paths(0, check=left)
    assert left.calls == 3
    assert paths_module.kept_paths(exploration, 0) == []


def test_the_memory_that_it_takes_is_bounded(model, monkeypatch):
    exploration = explored(model, TEXT)
    monkeypatch.setattr(paths_module, "_MAX_BYTES", 1000)
    with pytest.raises(RegardError, match=r"after 6 tokens take 0\.0 GB, .* choose a word further up"):
        exploration.paths(0)


def test_one_question_in_two_ways_is_computed_once(compared):
    compared.paths(0, position=4)
    first = compared.paths(0)
    ways = compared.paths(0, position=5), compared.paths(0, token=first["token"]), compared.paths(0, corrupted=OTHER)
    assert all(each is first for each in ways)
    assert first["is_default"]


def held(exploration, run=0):
    manifest, blob = read_page(render_page(exploration))
    return json.loads(blob(f"paths/{run}")) if f"paths/{run}" in manifest["blobs"] else []


def test_a_file_holds_the_graphs_that_were_computed(model):
    exploration = explored(model, TEXT)
    assert held(exploration) == []
    answers = [exploration.paths(0), exploration.paths(0, corrupted=OTHER)]
    assert held(exploration) == json.loads(json.dumps(answers))
    assert [each["is_default"] for each in answers] == [True, False]
    for position in range(1, 6):
        for versus in (0, 1):
            exploration.paths(0, position=position, versus=versus)
    assert [each["position"] for each in held(exploration)] == [2, 2, 3, 3, 4, 4, 5, 5]
