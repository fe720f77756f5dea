"""``regard paths``: the graph behind a prediction as a picture and JSON; its tree is a screen."""

import json

import pytest

import regard

ARGUMENTS = ("--model", "induction", "--to", "k", "--versus", "f", "--corrupted", "qxkfqz", "--edges", "8")


@pytest.fixture(scope="module")
def graph():
    return regard.load("induction").paths("qzkfqz", "k", "f", corrupted="qxkfqz", edges=8)


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
