"""Patching between two compared runs: the numbers of `patch_grid`, its Python, and what a file holds."""

import json

import numpy as np
import pytest
from decode_page import read_page
from explorations import Left, explored

from regard import RegardError
from regard.explorer.export_html import render_page
from regard.explorer.queries import patching
from regard.metrics import patch_grid, path_patching

TEXT, OTHER = "qzkfqz", "qxkfqx"
STEPS = {"output": ("layer", "position"), "attn": "attn", "mlp": "mlp", "head": "head"}


@pytest.fixture(scope="module")
def compared(induction):
    return explored(induction, TEXT, OTHER)


@pytest.mark.parametrize("over", STEPS)
def test_a_grid_is_that_of_the_metric_and_of_the_python_that_is_shown(compared, induction, over):
    k, f = (induction.tokenizer(letter).ids[0] for letter in "kf")
    answer = compared.patching(0, 1, over=over, token=k, versus=f)
    grid = patch_grid(induction, TEXT, OTHER, ("k", "f"), over=STEPS[over])
    for name in ("values", "recovered"):
        np.testing.assert_allclose(answer[name], getattr(grid, name), rtol=1e-5, atol=1e-6)
    assert (answer["clean"], answer["corrupted"], answer["metric"]) == (grid.clean, grid.corrupted, grid.metric)
    names = {}
    exec(answer["code"].replace("print(grid.recovered)", ""), names)
    np.testing.assert_array_equal(names["grid"].values, grid.values)
    assert json.loads(json.dumps(answer, allow_nan=False)) == json.loads(json.dumps(answer))


def test_by_default_the_likeliest_token_of_a_is_compared_with_that_of_b(compared):
    answer = compared.patching(0, 1)
    of_a, of_b = (compared.next_tokens(run)["tokens"] for run in (0, 1))
    assert answer["token"] == of_a[0]["token"]
    assert answer["versus"] == next(each["token"] for each in (of_b[0], of_a[1]) if each["token"] != answer["token"])
    assert answer["is_default"]
    assert not compared.patching(0, 1, token=answer["versus"])["is_default"]


def test_a_path_is_that_of_the_metric_and_by_default_of_the_heads_that_recover_most(compared, induction):
    answer = compared.patching(0, 1, over="path")
    heads = np.abs(compared.patching(0, 1, over="head")["recovered"])
    assert answer["sender"] == (0, heads[0].argmax())
    assert answer["receiver"] == (1, heads[1].argmax())
    k, f = (induction.tokenizer(letter).ids[0] for letter in "kf")
    chosen = {"sender": (0, 2), "receiver": (1, 3)}
    answer = compared.patching(0, 1, over="path", token=k, versus=f, **chosen)
    expected = [path_patching(induction, TEXT, OTHER, ("k", "f"), into=into, **chosen) for into in "qkv"]
    np.testing.assert_allclose(answer["values"], [[each.value for each in expected]], rtol=1e-5)
    np.testing.assert_allclose(answer["recovered"], [[each.recovered for each in expected]], rtol=1e-5, atol=1e-6)
    told = []
    exec(answer["code"], {"print": told.append})
    assert [each.value for each in told] == [each.value for each in expected]
    assert compared.patching(0, 1, over="path", receiver=(1, 3))["sender"] == (0, heads[0].argmax())
    for wrong, said in (
        ({"sender": (1, 0)}, "later layer: the sender, L1H0, is one of the last"),
        ({"sender": (0, 9)}, "no head"),
        ({"receiver": (0, 1)}, "earlier layer: the receiver, L0H1, is one of the first"),
        ({"receiver": (7, 0)}, "no head"),
    ):
        with pytest.raises(RegardError, match=said):
            compared.patching(0, 1, over="path", **wrong)
    with pytest.raises(RegardError, match="three numbers"):
        compared.patching_figure(0, 1, over="path")
    with pytest.raises(RegardError, match="those of a path, not of 'head'"):
        compared.patching(0, 1, over="head", receiver=(1, 3))


def test_an_encoder_has_the_similarity_with_the_vector_of_a(bert):
    texts = "w5 w6 w7", "w5 w8 w7"
    answer = explored(bert, *texts).patching(0, 1)
    grid = patch_grid(bert, *texts, texts[0])
    np.testing.assert_allclose(answer["values"], grid.values, rtol=1e-5, atol=1e-6)
    assert answer["token"] is None
    assert answer["clean"] == pytest.approx(1)


def test_what_nobody_waits_for_ends_and_is_not_kept(induction):
    exploration, left = explored(induction, TEXT, OTHER), Left(1)
    with pytest.raises(InterruptedError):
        exploration.patching(0, 1, check=left)
    assert left.calls == 1


@pytest.mark.parametrize("format", ["pdf", "svg", "png"])
def test_a_grid_is_drawn_for_print(compared, format):
    begins = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}
    assert compared.patching_figure(0, 1, over="head", format=format, caption=True).startswith(begins[format])
    code = compared.patching_figure(0, 1, over="head", format="py").decode()
    assert "regard.plot.patching(grid, width='column', caption=False)" in code
    compile(code, "figure.py", "exec")


def test_a_file_holds_the_grid_of_the_pair_that_it_opens_with(compared, induction):
    manifest, blob = read_page(render_page(explored(induction, TEXT, OTHER)))
    assert json.loads(blob("patching")) == [json.loads(json.dumps(compared.patching(0, 1)))]
    manifest, _ = read_page(render_page(explored(induction, TEXT, TEXT + "k")))
    assert "patching" not in manifest["blobs"]


def test_a_file_of_what_cannot_be_patched_has_no_grid(induction, bart, monkeypatch):
    assert not explored(bart, "w5 w6 w7", "w5 w8 w7").manifest()["runs"][0]["has_patching"]
    monkeypatch.setattr(patching, "_MAX_TOKENS", len(TEXT) - 1)
    manifest, _ = read_page(render_page(explored(induction, TEXT, OTHER)))
    assert "patching" not in manifest["blobs"]
    monkeypatch.undo()

    def fail(*_, **__):
        raise RegardError("the vectors are not finite")

    monkeypatch.setattr(patching, "patch_grid", fail)
    manifest, _ = read_page(render_page(explored(induction, TEXT, OTHER)))
    assert "patching" not in manifest["blobs"]


def test_the_tokens_of_a_grid_are_among_those_to_choose_from(compared):
    likely = {each["token"] for each in compared.patching(0, 1)["likely"]}
    rare = [token for token in range(64) if token not in likely][:2]
    answer = compared.patching(0, 1, token=rare[0], versus=rare[1])
    assert likely | set(rare) == {each["token"] for each in answer["likely"]}
