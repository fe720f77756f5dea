"""Figures of what the page shows: files over the API, and Python that writes the same files."""

import pytest
from explorations import at_once, explored, long_exploration, recorded
from test_server import served

from regard import Trace, load, train
from regard.explorer import Exploration
from regard.explorer.export_html import render_page
from regard.explorer.query import dispatch
from regard.explorer.training import TrainingExploration
from regard.training import TrainingRun, make_task
from training_runs import small_model

BEGINNINGS = {"pdf": b"%PDF-", "svg": b"<?xml", "png": b"\x89PNG"}


def drawn_again(exploration, folder, params, format="svg"):
    """Return the file of a figure, the one that its Python writes in a folder, and the Python."""
    script = dispatch(exploration, "figure", {**params, "format": "py"}).decode()
    here = script.replace('"attention.pdf"', repr(str(folder / f"attention.{format}")))
    here = here.replace('"run.safetensors"', repr(str(folder / "run.safetensors")))
    exec(compile(here, "script", "exec"), {})
    file = dispatch(exploration, "figure", {**params, "format": format})
    assert file.startswith(BEGINNINGS[format])
    return file, (folder / f"attention.{format}").read_bytes(), script


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
    one, other, _ = drawn_again(explored(bert, "the cats sat", "sat the cats"), tmp_path, params, format)
    assert one == other


@pytest.fixture
def explorations(bert, bart, write_bert, tmp_path):
    """Return explorations of every origin, with what is drawn of each, and lines that its Python has."""
    one = explored(bert, "the cats sat")
    ablated, by_the_page = one.ablate([(0, 1)])["run"], one.run_text("sat the cats")["run"]
    models = [bert, load(write_bert(folder="other"))]
    one.runs[0].trace.save(tmp_path / "run.safetensors")
    task = make_task("induction", batch_size=4)
    model = small_model(task)
    options = {"evaluation": task.held_out(1), "evaluate_every": 1, "save_every": 1}
    train(model, task.batches(), steps=2, learning_rate=0.01, folder=tmp_path / "run", **options)
    training = TrainingExploration(TrainingRun(tmp_path / "run"))
    last = training.manifest()["training"]["checkpoints"][-1]["run"]
    return [
        (one, [[0, 1, 2], [ablated, 1, 2]],
         ["edit=regard.edits.ablate(('blocks.0.attn', 1))", "notes=('', 'without layer 0 head 1')"]),
        (one, [[by_the_page, 1, 2]], ["'sat the cats'"]),
        (Exploration(*(recorded(m, "the cats sat") for m in models), models=models), [[0, 1, 2], [1, 1, 2]], []),
        (Exploration(Trace.load(tmp_path / "run.safetensors")), [[0, 1, 2]], []),
        (training, [[last, 0, 0]], [").load(2)"]),
        (explored(bart, "a text"), [[0, 0, 1]], ["subtrace('encoder')"]),
    ]  # fmt: skip


def test_whatever_is_drawn_is_made_again(explorations, tmp_path):
    for exploration, sides, lines in explorations:
        one, other, script = drawn_again(exploration, tmp_path, {"sides": sides, "caption": True})
        assert one == other
        for line in lines:
            assert line in script
        assert len({run.model for run in exploration.runs}) == 1 or script.count("regard.load(") == 2  # each once


def test_a_text_of_a_batch(bert, tmp_path):
    exploration = Exploration(recorded(bert, ["the", "the cats sat"]), models=[bert], batch=1)
    one, other, script = drawn_again(exploration, tmp_path, {"sides": [[0, 1, 2]], "caption": True})
    assert len(one) == pytest.approx(len(other), rel=0.01)  # weights of a padded text differ by an ulp
    assert "the cats sat" in script


@pytest.mark.parametrize("text", ['"""', "'\"\\", "a\nb", "\u202esat", "$x$ {}"])
def test_a_hostile_text_is_a_string_of_the_python(bert, text):
    script = dispatch(explored(bert, text), "figure", {"sides": [[0, 1, 2]], "format": "py"}).decode()
    assert repr(text) in script
    compile(script, "script", "exec")


def test_of_a_long_text_a_range_is_drawn():
    params = {"sides": [[0, 0, 1]], "first": 2000, "end": 2100}
    assert dispatch(long_exploration(2100), "figure", params).startswith(b"%PDF")


def test_over_http_a_figure_is_bytes_with_the_headers_of_all_answers(bert):
    exploration = explored(bert, "the cats sat")
    assert exploration.manifest()["can"]["figures"] is True
    assert b'"can":{"ablate":false,"tiles":false,"figures":false}' in render_page(exploration)
    params = {"sides": [[0, 1, 2]], "format": "svg", "caption": True}
    with served(exploration) as client:
        status, headers, content = client.api("figure", {**params, "special": True, "words": False})
        assert status == 200
        assert headers["content-type"] == "application/octet-stream"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert content == dispatch(exploration, "figure", params)
        assert client.api("figure?sides=0.1.2&format=exe")[0] == 400


def test_figures_are_drawn_from_several_threads(bert):
    exploration, params = explored(bert, "the cats sat"), {"sides": [[0, 1, 2]], "caption": True}
    assert len(set(at_once(4, lambda _: dispatch(exploration, "figure", params)))) == 1
