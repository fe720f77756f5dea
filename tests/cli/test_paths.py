"""``regard paths``: the graph behind a prediction as a tree, a picture and JSON."""

from __future__ import annotations

import json

import pytest

import regard

ARGUMENTS = ("--model", "induction", "--to", "k", "--versus", "f", "--corrupted", "qxkfqz", "--edges", "8")


@pytest.fixture(scope="module")
def graph():
    return regard.load("induction").paths("qzkfqz", "k", "f", corrupted="qxkfqz", edges=8)


def test_the_tree_has_every_edge_below_what_reads_it(run, graph):
    status, out, _ = run("paths", "qzkfqz", *ARGUMENTS)
    assert status == 0
    lines = out.replace("−", "-").splitlines()
    assert graph.summary() in " ".join(" ".join(lines).split())
    rows = lines[next(i for i, line in enumerate(lines) if line.split() == ["effect", "from", "read", "by"]) + 1 :]
    for line, (depth, edge, repeats) in zip(rows, graph.tree(), strict=False):
        number, rest = line.split(maxsplit=1)
        assert float(number) == pytest.approx(edge.score, abs=6e-4)
        node = f"{edge.writer.label} at {edge.token!r}{' …' * repeats}"
        assert " ".join(rest.split()) == f"{node} {edge.reader.label}"
        assert line.index(node) == rows[0].index("L1") + 2 * depth


def test_json_is_the_graph(run, graph):
    status, out, _ = run("paths", "qzkfqz", *ARGUMENTS, "--json")
    assert status == 0
    told = json.loads(out)
    assert (told["model"], told["text"]) == ("induction", "qzkfqz")
    assert {name: told[name] for name in graph.to_dict()} == graph.to_dict()


@pytest.mark.parametrize(
    ("arguments", "little"),
    [(("--edges", "1"), True), (("--edges", "1", "--corrupted", "qxkfqz"), False), (("--edges", "60"), False)],
)
def test_a_graph_that_keeps_little_says_what_to_give(run, arguments, little):
    give = "give --corrupted, a text of as many tokens that lacks what decides, or more --edges"
    note = f"these edges keep little: {give}"
    common = ("paths", "qzkfqz", "--model", "induction", "--to", "k", "--versus", "f", *arguments)
    _, out, _ = run(*common)
    _, told, _ = run(*common, "--json")
    assert (note in " ".join(out.split())) == little
    assert json.loads(told)["notes"] == [note] * little


def test_it_is_drawn(run, tmp_path):
    status, _, err = run("paths", "qzkfqz", *ARGUMENTS, "-o", str(tmp_path / "paths.svg"))
    assert status == 0
    assert "the graph of the paths" in err
    assert (tmp_path / "paths.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "minilm", "--to", "k"], "is not a decoder"),
        (["--toy", "--to", "k"], "is not a decoder"),
        ([*ARGUMENTS, "--baseline", "zero"], "corrupted and baseline both say"),
        ([*ARGUMENTS[:-4], "--corrupted", "qx"], "both texts must have the same number of tokens, got 6 and 2"),
    ],
)
def test_a_mistake_is_one_line(run, arguments, message):
    status, out, err = run("paths", "qzkfqz", *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
