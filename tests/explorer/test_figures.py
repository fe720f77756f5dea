"""Figures of what the page shows: files over the API, and Python that writes the same files."""

from __future__ import annotations

import threading

import pytest
from explorations import explored, long_exploration, recorded
from test_server import served
from test_training import small

from regard import RegardError, Trace, load, train
from regard.explorer import Exploration
from regard.explorer.export_html import render_page
from regard.explorer.query import dispatch
from regard.explorer.training import TrainingExploration
from regard.training import TrainingRun

BEGINNINGS = {"pdf": b"%PDF-", "svg": b"<?xml", "png": b"\x89PNG"}


def drawn_again(exploration, folder, params, format="svg"):
    """Return the file of a figure, and the one that its Python writes in a folder."""
    script = dispatch(exploration, "figure", {**params, "format": "py"}).decode()
    script = script.replace('"attention.pdf"', repr(str(folder / f"attention.{format}")))
    script = script.replace('"run.safetensors"', repr(str(folder / "run.safetensors")))
    exec(compile(script, "script", "exec"), {})
    file = dispatch(exploration, "figure", {**params, "format": format})
    assert file.startswith(BEGINNINGS[format])
    return file, (folder / f"attention.{format}").read_bytes()


FIGURES = [
    {"sides": [[0, 1, 2]]},
    {"sides": [[0, 1, "mean"]], "special": False, "words": True, "width": "page", "caption": True},
    {"sides": [[0, 1, 2], [1, 1, 2]], "caption": True},
    {"sides": [[0, 0, "all"]], "caption": True},
    {"sides": [[0, 0, "all"], [1, 0, "all"]], "width": "page"},
    {"sides": [[1, 0, 1], [1, 1, 2]], "first": 1, "end": 4},
]


@pytest.mark.parametrize(
    ("params", "format"),
    [
        pytest.param(params, format, marks=[] if number % 3 == kind else pytest.mark.sweep)  # a format each
        for number, params in enumerate(FIGURES)
        for kind, format in enumerate(BEGINNINGS)
    ],
)
def test_the_python_of_a_figure_writes_the_same_file(bert, tmp_path, params, format):
    one, other = drawn_again(explored(bert, "the cats sat", "sat the cats"), tmp_path, params, format)
    assert one == other


def test_an_ablated_run_is_made_again(bert, tmp_path):
    exploration = explored(bert, "the cats sat")
    run = exploration.ablate([(0, 1)])["run"]
    params = {"sides": [[0, 1, 2], [run, 1, 2]], "caption": True}
    one, other = drawn_again(exploration, tmp_path, params)
    assert one == other
    script = dispatch(exploration, "figure", {**params, "format": "py"}).decode()
    assert "edit=regard.edits.ablate(('blocks.0.attn', 1))" in script
    assert "notes=('', 'without layer 0 head 1')" in script


def test_two_models_are_loaded_once_each(bert, write_bert, tmp_path):
    other = load(write_bert(folder="other"))
    exploration = Exploration(*(recorded(model, "the cats sat") for model in (bert, other)), models=[bert, other])
    script = dispatch(exploration, "figure", {"sides": [[0, 1, 2], [1, 1, 2]], "format": "py"}).decode()
    assert script.count("regard.load(") == 2
    one, again = drawn_again(exploration, tmp_path, {"sides": [[0, 1, 2], [1, 1, 2]]})
    assert one == again


def test_a_checkpoint_of_a_training_run_is_loaded_again(tmp_path):
    model, task = small()
    train(
        model, task.batches(), steps=2, learning_rate=0.01, folder=tmp_path / "run", save_every=1,
        evaluation=task.held_out(1), evaluate_every=1,
    )  # fmt: skip
    exploration = TrainingExploration(TrainingRun(tmp_path / "run"))
    run = exploration.manifest()["training"]["checkpoints"][-1]["run"]
    one, other = drawn_again(exploration, tmp_path, {"sides": [[run, 0, 0]], "caption": True})
    assert one == other
    assert ").load(2)" in dispatch(exploration, "figure", {"sides": [[run, 0, 0]], "format": "py"}).decode()


def test_a_text_that_the_page_ran_is_run_again(bert, tmp_path):
    exploration = explored(bert, "the cats sat")
    run = exploration.run_text("sat the cats")["run"]
    one, other = drawn_again(exploration, tmp_path, {"sides": [[run, 1, 2]]})
    assert one == other


def test_a_saved_trace_is_read_again(bert, tmp_path):
    trace = recorded(bert, "the cats sat")
    trace.save(tmp_path / "run.safetensors")
    one, other = drawn_again(Exploration(Trace.load(tmp_path / "run.safetensors")), tmp_path, {"sides": [[0, 1, 2]]})
    assert one == other


def test_a_text_of_a_batch(bert, tmp_path):
    trace = Trace(maps=True)
    bert(["the", "the cats sat"], trace=trace)
    one, other = drawn_again(
        Exploration(trace, models=[bert], batch=1), tmp_path, {"sides": [[0, 1, 2]], "caption": True}
    )
    assert len(one) == pytest.approx(len(other), rel=0.01)  # weights of a padded text differ by an ulp
    assert (
        "the cats sat"
        in dispatch(
            Exploration(trace, models=[bert], batch=1), "figure", {"sides": [[0, 1, 2]], "format": "py"}
        ).decode()
    )


def test_of_an_encoder_decoder_the_encoder_is_drawn(bart, tmp_path):
    exploration = explored(bart, "a text")
    one, other = drawn_again(exploration, tmp_path, {"sides": [[0, 0, 1]], "caption": True})
    assert one == other
    assert "subtrace('encoder')" in dispatch(exploration, "figure", {"sides": [[0, 0, 1]], "format": "py"}).decode()


@pytest.mark.parametrize("text", ['"""', "'\"\\", "a\nb", "\u202esat", "$x$ {}"])
def test_a_hostile_text_is_a_string_of_the_python(bert, text):
    script = dispatch(explored(bert, text), "figure", {"sides": [[0, 1, 2]], "format": "py"}).decode()
    assert repr(text) in script
    compile(script, "script", "exec")


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "figure needs sides"),
        ({"sides": [[0, 1]]}, r"sides is a list of \[a whole number, a whole number, a whole number or"),
        ({"sides": [[0, 1, 2], [0, 1, 1], [0, 1, 0]]}, "one side or of two, not of 3"),
        ({"sides": [[7, 1, 2]]}, "run"),
        ({"sides": [[0, 9, 2]]}, "layer"),
        ({"sides": [[0, 1, 9]]}, "head"),
        ({"sides": [[0, 1, 2]], "format": "exe"}, "format is one of pdf, svg, png, py"),
        ({"sides": [[0, 1, 2]], "mode": "rollout"}, "figures are of weights"),
        ({"sides": [[0, 1, 2]], "width": "wide"}, "width is 'column' or 'page'"),
        ({"sides": [[0, 1, 2]], "caption": "true"}, "caption is true or false"),
        ({"sides": [[0, 1, 2]], "first": 50}, "no token is shown"),
        ({"sides": [[0, 1, 2]], "theme": "dark"}, "figure takes"),
    ],
)
def test_what_cannot_be_drawn_is_an_error(bert, params, said):
    with pytest.raises(RegardError, match=said):
        dispatch(explored(bert, "the cats sat"), "figure", params)


def test_a_long_text_needs_a_range():
    exploration = long_exploration(2100)
    with pytest.raises(RegardError, match="at most 2,048 tokens, not 2,100: choose some under Display"):
        dispatch(exploration, "figure", {"sides": [[0, 0, 1]]})
    assert dispatch(exploration, "figure", {"sides": [[0, 0, 1]], "first": 2000, "end": 2100}).startswith(b"%PDF")


def test_over_http_a_figure_is_bytes_with_the_headers_of_all_answers(bert):
    exploration = explored(bert, "the cats sat")
    with served(exploration) as client:
        status, headers, content = client.api(
            "figure", {"sides": [[0, 1, 2]], "format": "svg", "special": True, "words": False, "caption": True}
        )
        assert status == 200
        assert headers["content-type"] == "application/octet-stream"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert content == dispatch(exploration, "figure", {"sides": [[0, 1, 2]], "format": "svg", "caption": True})
        assert client.api("figure?sides=0.1.2&format=exe")[0] == 400


def test_figures_are_drawn_from_several_threads(bert):
    exploration = explored(bert, "the cats sat")
    found = []

    def draw():
        found.append(dispatch(exploration, "figure", {"sides": [[0, 1, 2]], "caption": True}))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


def test_a_page_says_whether_it_has_figures(bert):
    exploration = explored(bert, "the cats sat")
    assert exploration.manifest()["can"]["figures"] is True
    assert b'"can":{"ablate":false,"tiles":false,"figures":false}' in render_page(exploration)
