"""regard attribute, against the Python API."""

import csv
import json

import numpy as np
import pytest

import regard
from regard.cli.tables import write_table
from regard.metrics import Attribution, attribute, attribute_generation
from regard.terminal import attribution_table
from regard.views import AttributionRow
from screens import load_once

TEXT = "The cat sat on the mat"
TO = "A kitten rested"


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch):
    monkeypatch.setattr("regard.cli.input.load", load_once)


def test_json_is_what_the_function_returns(run, minilm):
    status, out, err = run("attribute", TEXT, "--to", TO, "--model", "minilm", "--steps", "8", "--json")
    assert (status, err) == (0, "")
    shown, found = json.loads(out), attribute(minilm, TEXT, TO, steps=8)
    assert shown["method"] == "integrated"
    assert shown["value"] == pytest.approx(found.value, abs=1e-5)
    assert shown["completeness_gap"] == pytest.approx(found.completeness_gap, abs=1e-5)
    assert shown["is_complete"] is found.is_complete is False  # of 8 steps
    assert [token["token"] for token in shown["tokens"]] == list(found.tokens)
    np.testing.assert_allclose([token["score"] for token in shown["tokens"]], found.scores, atol=1e-5)
    np.testing.assert_allclose([token["attended"] for token in shown["tokens"]], found.attended, atol=1e-5)


def test_too_few_steps_are_said(run):
    status, out, err = run("attribute", TEXT, "--to", TO, "--model", "minilm", "--steps", "1")
    assert (status, err) == (0, "")
    assert "not yet exact: give more --steps" in out
    assert "\x1b" not in out


def test_json_says_whether_the_contributions_add_up(run):
    options = ("attribute", TEXT, "--to", TO, "--model", "minilm", "--json")
    assert json.loads(run(*options)[1])["is_complete"] is True
    assert json.loads(run(*options, "--method", "gradient")[1])["is_complete"] is None


def test_the_most_probable_next_token_is_the_default(run):
    model, text = regard.load("induction"), "qzkfbdqzk"
    logits = model(text).logits[0, -1].astype(np.float64)
    token = model.tokenizer.decode([int(logits.argmax())])
    probability = 1 / np.exp(logits - logits.max()).sum()
    _, chosen, _ = run("attribute", text, "--to", token, "--model", "induction", "--json")
    status, out, err = run("attribute", text, "--model", "induction", "--json")
    note = f'"{token}" is the most probable next token ({probability:.2g}): --to TEXT explains another'
    assert (status, err) == (0, "")
    assert json.loads(out) == {**json.loads(chosen), "notes": [note]}
    assert f"\n{note}\n" in run("attribute", text, "--model", "induction")[1]


def test_a_generation_is_what_the_function_returns(run):
    argv = ["attribute", "qzkfbdqzk", "--generate", "2", "--method", "attnlrp", "--model", "induction"]
    found = attribute_generation(regard.load("induction"), "qzkfbdqzk", method="attnlrp", max_new_tokens=2)
    status, out, err = run(*argv, "--json")
    assert (status, err) == (0, "")
    shown = json.loads(out)
    assert (shown["method"], shown["score"], shown["tokens"]) == ("attnlrp", "logit", list(found.tokens))
    assert [row["token"] for row in shown["generated"]] == ["f", "b"]
    for name, values in (("value", found.values), ("scores", found.scores), ("attended", found.attended)):
        np.testing.assert_allclose([row[name] for row in shown["generated"]], values, rtol=1e-6)
    lines = run(*argv)[1].splitlines()
    assert [line.split()[2:4] for line in lines[-2:]] == [["f", "+6.21"], ["b", "+6.65"]]
    assert lines[-4] == "each generated token, its logit, and the three tokens that contributed most"


def test_the_log_probabilities_of_a_generation_are_named(run):
    argv = ["attribute", "qzkfbdqzk", "--generate", "2", "--model", "induction", "--score", "log_probability"]
    assert json.loads(run(*argv, "--json")[1])["score"] == "log_probability"
    heading = "each generated token, its log-probability, and the three tokens that contributed most"
    assert heading in run(*argv)[1].splitlines()


def test_a_second_token_is_compared_with_the_most_probable_one(run):
    argv = ["attribute", "qzkfbdqzk", "--versus", "q", "--model", "induction", "--json"]
    assert json.loads(run(*argv)[1])["metric"] == "logit of 'f' minus that of 'q'"


@pytest.mark.minilm
def test_where_nothing_mattered_it_is_said(run):
    """A text that is its own baseline."""
    baseline = ("--method", "integrated", "--baseline", "pad", "--steps", "2")
    status, out, _ = run("attribute", "[PAD]", "--to", "cat", "--model", "minilm", *baseline)
    assert status == 0
    assert "\nnothing mattered: every contribution is 0\n" in out
    assert "mattered most" not in out


def test_words_of_several_tokens_are_summed(run):
    argv = ["attribute", "unbelievable strawberries", "--to", "fruit", "--model", "minilm", "--steps", "2", "--json"]
    (_, apart, _), (_, merged, _) = run(*argv), run(*argv, "--merge-subwords")
    apart, merged = (json.loads(out)["tokens"] for out in (apart, merged))
    assert len(merged) < len(apart)
    assert [row["token"] for row in merged] == ["[CLS]", "unbelievable", "strawberries", "[SEP]"]
    assert sum(row["score"] for row in merged) == pytest.approx(sum(row["score"] for row in apart))


def test_files(run, tmp_path):
    picture, table = tmp_path / "cat.png", tmp_path / "cat.csv"
    argv = ["attribute", "= cat sat", "--to", TO, "--model", "minilm", "--method", "relevance"]
    status, _, err = run(*argv, "-o", str(picture), "-o", str(table))
    assert status == 0
    assert "cat.png: each token with its contribution" in err
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [row["token"] for row in rows] == ["[CLS]", "'=", "cat", "sat", "[SEP]"]  # no formula of a spreadsheet
    assert [list(row) for row in rows] == [["token", "score", "attended"]] * 5
    found = attribute(regard.load("minilm", download=False), "= cat sat", TO, method="relevance")
    np.testing.assert_allclose([float(row["score"]) for row in rows], found.scores, atol=1e-6)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_text_in_a_table_is_no_formula_of_a_spreadsheet(tmp_path, text):
    path = tmp_path / "a.csv"
    write_table(str(path), {"token": [text, "a" + text], "score": np.array([-1.5, 2.0])})
    assert path.read_bytes().decode() == f"token,score\n'{text},-1.5\na{text},2.0\n"


@pytest.mark.smollm2
def test_a_token_that_is_likelier_with_a_space_is_named(run, monkeypatch):
    """Whatever the contributions are."""

    def attributed(model, encoding, *_, **__):
        nothing = np.zeros(len(encoding))
        return Attribution("gradient", "a logit", 0.0, encoding, nothing, nothing)

    monkeypatch.setattr("regard.cli.commands.attribute.attribute", attributed)
    text, model = "The capital of France is", load_once("smollm2")
    logits = model(text).logits[0, -1].astype(np.float64)
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    chosen, other = (shares[model.tokenizer.token_to_id(token)] for token in ("Paris", "ĠParis"))
    note = (
        f'" Paris", with a space before it, is likelier to come next ({other:.2g}) than "Paris" ({chosen:.2g}): '
        'give --to " Paris" to explain that'
    )
    assert note in " ".join(run("attribute", text, "--to", "Paris")[1].split())
    assert json.loads(run("attribute", text, "--to", "Paris", "--json")[1])["notes"] == [note]
    assert json.loads(run("attribute", text, "--to", " Paris", "--json")[1])["notes"] == []
    _, out, _ = run("attribute", "Dogs bark. Cats me", "--to", " Paris", "--versus", " ow", "--json")
    (note,) = json.loads(out)["notes"]
    assert note.startswith('"ow", without a space before it, is likelier')
    assert note.endswith('give --versus "ow" to explain that')


def test_the_sign_is_a_symbol_and_colour_only_where_there_is_any():
    rows = [AttributionRow("up", 1.0, 0.25), AttributionRow("down", -0.5, 0.75), AttributionRow("none", 0.0, 0.0)]
    plain, colored = attribution_table(rows, width=60), attribution_table(rows, width=60, color=True)
    assert plain.plain == colored.plain
    up, down, none = plain.plain.splitlines()[1:]
    assert (up.count("+"), down.count("−"), up.count("−"), down.count("+")) == (16, 9, 0, 0)
    assert set(none) & set("−█") == set()
    assert len([span for span in colored.spans if getattr(span.style, "bgcolor", None)]) == 2
    assert not [span for span in plain.spans if getattr(span.style, "bgcolor", None)]
