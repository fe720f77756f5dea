"""The figure of paths: labels inside and apart, edges in proportion, both themes."""

import dataclasses
import itertools

import numpy as np
import pytest

import regard
from figure_geometry import assert_apart_and_inside
from regard import RegardError
from regard.metrics import PathEdge, Reader, Writer
from regard.plot import get_style, paths


@pytest.fixture(scope="module")
def model():
    return regard.load("induction")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("edges", [1, 5, 30])
def test_nothing_covers_another(model, edges, theme):
    graph = model.paths("xK3bQxK3", "b", "Q", corrupted="xK4bQxK3", edges=edges)
    texts = [text.get_text() for text in assert_apart_and_inside(paths(graph, theme=theme))]
    assert "logits" in texts
    assert {node.label for node in graph.nodes} - {"token embedding"} <= set(texts)


def test_edges_are_as_wide_as_they_are_large_and_blue_where_they_raise(model):
    graph = model.paths("qzkfqz", "k", "f", corrupted="qxkfqz", edges=12)
    style = get_style("light")
    lines = paths(graph).axes[0].lines[::-1]  # the strongest is drawn last
    assert len(lines) == len(graph.edges)
    widths = np.array([line.get_linewidth() for line in lines]) - 0.5
    scores = np.array([edge.score for edge in graph.edges])
    np.testing.assert_allclose(widths * np.abs(scores).max(), np.abs(scores) * widths.max())
    colors = [line.get_color() for line in lines]
    assert colors == [style.sequential[5] if score > 0 else style.negative[5] for score in scores]


def crossings(figure):
    """Return the lines and boxes that meet where the box is not an end of the line."""
    ax = figure.axes[0]
    boxes = np.array([[*patch.get_xy(), patch.get_width(), patch.get_height()] for patch in ax.patches])
    low, high = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
    met = []
    for number, line in enumerate(ax.lines):
        points = line.get_xydata()
        steps = np.linspace(0, 1, 50)[:, None, None]
        x, y = (points[:-1] + steps * (points[1:] - points[:-1])).reshape(-1, 2).T[:, :, None]
        inside = (low[:, 0] < x) & (x < high[:, 0]) & (low[:, 1] + 1e-6 < y) & (y < high[:, 1] - 1e-6)
        met += [(number, box) for box in np.flatnonzero(inside.any(0)).tolist()]
    return met


@pytest.mark.parametrize("seed", range(3))
def test_no_edge_passes_through_a_box(model, seed):
    """Edges between random heads of twelve layers, at random tokens."""
    rng, graph = np.random.default_rng(seed), model.paths("qzkfqz", "k", "f", corrupted="qxkfqz", edges=1)
    edges = [PathEdge(Writer("head", 11, 0), Reader("logits"), 1.0, 5, "z:2")]
    for _ in range(60):
        low, high = sorted(rng.choice(12, 2, replace=False).tolist())
        head, other, position = rng.integers([4, 4, 6]).tolist()
        edges.append(PathEdge(Writer("head", low, head), Reader("kqv"[head % 3], high, other), 0.5, position, ""))
    read = [edge.reader for edge in edges if edge.reader.kind != "logits"]
    edges += [PathEdge(reader.node, Reader("logits"), -0.1, int(rng.integers(6)), "") for reader in read]
    figure = paths(dataclasses.replace(graph, edges=tuple(edges)))
    assert crossings(figure) == []
    assert_apart_and_inside(figure)


def test_edges_of_one_column_go_around_its_boxes_on_lanes_of_their_own(model):
    """A chain of twenty feed-forward layers at one token, and an edge from each to the logits."""
    graph = model.paths("qzkfqz", "k", "f", corrupted="qxkfqz", edges=1)
    layers = [Writer("token_embeddings"), *(Writer("mlp", layer) for layer in range(20))]
    last = len(graph.encoding) - 1
    chain = [PathEdge(one, Reader("mlp", other.layer), 1.0, last, "z:2") for one, other in itertools.pairwise(layers)]
    skips = [PathEdge(one, Reader("logits"), 0.5, last, "z:2") for one in layers]
    figure = paths(dataclasses.replace(graph, edges=(*chain, *skips)))
    assert crossings(figure) == []
    assert_apart_and_inside(figure)
    ax = figure.axes[0]
    (left, right), seen = ax.get_xlim(), set()
    for line in ax.lines:
        points = line.get_xydata()
        assert left < points[:, 0].min()
        assert points[:, 0].max() < right
        step = np.diff(points, axis=0)
        beside = np.isclose(step[:, 0], 0) & np.isclose(step[:, 1], ax.patches[0].get_height())
        lanes = set(map(tuple, points[:-1][beside].round(6).tolist()))
        assert not lanes & seen
        seen |= lanes
    assert len(seen) == 20 * 21 / 2  # the edge from the nth box passes 21 - n others


def test_tokens_that_repeat_are_numbered(model):
    graph = model.paths("qzkfqz", "k", "f", corrupted="qxkfqz", edges=12)
    texts = {text.get_text() for text in assert_apart_and_inside(paths(graph))}
    named = {edge.token for edge in graph.edges if edge.writer.kind == "token_embeddings"}
    assert "z:1" in named
    assert named <= texts


def test_every_column_has_its_token_at_its_foot(model):
    """Also that of the logits, at whose token no edge begins."""
    graph = model.paths("qzkfqz", "k", "f", corrupted="qxkfqz", edges=12)
    ax = paths(graph).axes[0]
    places = {text.get_text(): text.get_position() for text in ax.texts}
    begins = {edge.position for edge in graph.edges if edge.writer.kind == "token_embeddings"}
    assert len(graph.encoding) - 1 not in begins
    assert places["z:2"][1] == places["z:1"][1]
    assert places["z:2"][0] >= places["logits"][0]


def test_a_large_graph_is_an_error(model):
    graph = model.paths("qzkfqz", "k", "f", corrupted="qxkfqz", edges=12)
    with pytest.raises(RegardError, match="at most 200 edges, this graph has 204"):
        paths(dataclasses.replace(graph, edges=graph.edges * 17))
