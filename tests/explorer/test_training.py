"""A training run as runs of one text: what the page is told of it, also while checkpoints are written."""

import json
import shutil

import numpy as np
import pytest
from decode_page import read_page, unpack_weights
from explorations import at_once, whole

import regard
from regard import RegardError
from regard.explorer import export_html
from regard.explorer.export_html import render_page
from regard.explorer.launch import exploration_of
from regard.explorer.queries.paths import kept_paths
from regard.explorer.query import dispatch
from regard.explorer.training import TrainingExploration
from regard.metrics import head_metrics
from regard.training import TrainingRun
from training_runs import write_run

SAVED = (0, 3, 6, 9, 12)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def exploration(written):
    return TrainingExploration(TrainingRun(written))


def part(written, folder, *steps):
    """Copy some checkpoints of a run, and the losses until the last of them."""
    folder.mkdir(exist_ok=True)
    for step in steps:
        shutil.copytree(written / f"step-{step:06d}", folder / f"step-{step:06d}", dirs_exist_ok=True)
    rows = (written / "losses.csv").read_text().splitlines(keepends=True)
    (folder / "losses.csv").write_text("".join(rows[: 1 + max(steps)]))
    return TrainingRun(folder)


def steps_of(exploration):
    return [each["step"] for each in exploration.manifest()["training"]["checkpoints"]]


def test_checkpoints_are_runs_of_one_text(exploration, written):
    manifest = exploration.manifest()
    training = manifest["training"]
    assert manifest["title"] == "Training of run"
    assert [(each["step"], each["run"]) for each in training["checkpoints"]] == [(s, n) for n, s in enumerate(SAVED)]
    assert [run["model"] for run in manifest["runs"]] == [f"run, step {step}" for step in SAVED]
    assert len({run["text"] for run in manifest["runs"]}) == 1
    run = TrainingRun(written)
    for n, step in enumerate(SAVED):
        model = run.load(step)
        trace = regard.Trace()
        model(run.encode(model), trace=trace)
        expected = np.asarray(trace["blocks.1.attn.weights"])[0, 1]
        np.testing.assert_allclose(whole(exploration, n, 1, 1), expected, atol=1e-6)
    assert np.abs(whole(exploration, 0, 1, 1) - whole(exploration, 4, 1, 1)).max() > 1e-3


def test_losses_and_measures(exploration, written):
    training = exploration.manifest()["training"]
    losses = TrainingRun(written).losses()
    assert training["loss"]["steps"] == list(range(1, 13))
    np.testing.assert_allclose(training["loss"]["values"], losses.values, rtol=1e-4)
    assert training["held_out"]["steps"] == [6, 12]
    assert (training["end"], training["is_live"], training["num_left_out"]) == (12, False, 0)
    run = TrainingRun(written)
    model = run.load(9)
    trace = regard.Trace(maps=True, only="*")
    model(run.encode(model), trace=trace)
    metrics = head_metrics(trace)
    for measure in training["measures"]:
        assert np.shape(measure["values"]) == (5, 2, 2)
        np.testing.assert_allclose(measure["values"][3], metrics.values[measure["key"]][0], atol=1e-6)
        last = np.array(measure["values"][-1])
        assert last[tuple(measure["strongest"][0])] == last.max()
        assert exploration.heads(3)["metrics"][measure["key"]] == measure["values"][3]
    first, second = (list(map(tuple, measure["strongest"])) for measure in training["measures"])
    assert training["prominent"] == {f"{a}.{b}": 0 if (a, b) in first else 1 for a, b in {*first, *second}}


def test_what_is_said_of_a_checkpoint_is_of_its_step(exploration, written):
    said = [each["message"] for each in exploration.manifest()["training"]["checkpoints"]]
    losses = TrainingRun(written).losses()
    held_out = dict(zip(losses.evaluation_steps, losses.evaluation_values, strict=True))
    assert said[0] == "step 0 of 12"
    for step, message in list(zip(SAVED, said, strict=True))[1:]:
        parts = [f"step {step} of 12", f"loss {losses.values[step - 1]:.4g}"]
        assert message == " · ".join(parts + [f"held out {held_out[n]:.4g}" for n in held_out if n == step])


def test_a_text_of_ones_own_may_leave_measures_without_a_value(written, tmp_path):
    exploration = TrainingExploration(TrainingRun(written), "abc", layer=1, head=0)
    (run, *_) = exploration.manifest()["runs"]
    assert (run["text"], run["initial"]) == ("abc", {"layer": 1, "head": 0, "row": 2, "col": 1})
    training = exploration.manifest()["training"]
    by_name = {measure["key"]: measure for measure in training["measures"]}
    assert by_name["induction"]["strongest"] == []
    assert {x for checkpoint in by_name["induction"]["values"] for row in checkpoint for x in row} == {None}
    json.dumps(training, allow_nan=False)
    regard.explore(TrainingRun(written), "abab", html=tmp_path / "page.html")
    assert read_page((tmp_path / "page.html").read_bytes())[0]["runs"][0]["text"] == "abab"


def test_new_checkpoints_are_added_while_the_run_goes_on(written, tmp_path):
    run = part(written, tmp_path / "run", 0, 3)
    exploration = TrainingExploration(run)
    before = exploration.manifest()["training"]
    assert (before["is_live"], before["end"]) == (True, 12)
    assert dispatch(exploration, "training", {"known": 2})["runs"] == []
    part(written, tmp_path / "run", 6, 9)
    news = dispatch(exploration, "training", {"known": 2})
    assert [each["number"] for each in news["runs"]] == [2, 3]
    assert news["runs"][0]["metadata"]["model"] == "run, step 6"
    assert news["training"]["checkpoints"][-1].items() >= {"step": 9, "run": 3}.items()
    assert news["training"]["loss"]["steps"][-1] == 9
    assert news["training"]["is_live"]
    part(written, tmp_path / "run", 12)
    assert not exploration.training(4)["training"]["is_live"]
    fresh = TrainingExploration(run)
    for number in range(5):
        np.testing.assert_array_equal(whole(exploration, number, 1, 0), whole(fresh, number, 1, 0))


def test_an_ablation_has_a_number_of_its_own(written, tmp_path):
    exploration = TrainingExploration(part(written, tmp_path / "run", 0, 3))
    found = exploration.ablate([(0, 0)], run=1)
    assert (found["run"], found["metadata"]["base_run"]) == (2, 1)
    part(written, tmp_path / "run", 6)
    assert exploration.training(2)["training"]["checkpoints"][-1].items() >= {"step": 6, "run": 3}.items()
    manifest = exploration.manifest()  # of a page that is opened now
    assert [run and run["model"] for run in manifest["runs"]] == ["run, step 0", "run, step 3", None, "run, step 6"]
    assert exploration.ablate([(0, 0)], run=3)["run"] == 4
    with pytest.raises(RegardError, match="it is an ablation itself"):
        exploration.ablate([(0, 1)], run=2)


def test_runs_that_are_not_kept_are_made_again(written, monkeypatch):
    monkeypatch.setattr("regard.explorer.training._MAX_KEPT_BYTES", 0)
    exploration = TrainingExploration(TrainingRun(written))
    number = exploration.ablate([(0, 0)], run=0)["run"]
    fresh = TrainingExploration(TrainingRun(written))
    fresh.ablate([(0, 0)], run=0)
    assert len(list(exploration.store)) == 2
    for run in (*range(5), number, 0):
        np.testing.assert_array_equal(whole(exploration, run, 1, 1), whole(fresh, run, 1, 1))
    assert len(list(exploration.store)) == 2


def test_many_checkpoints_are_thinned(written):
    exploration = TrainingExploration(TrainingRun(written), max_checkpoints=3)
    assert steps_of(exploration) == [0, 6, 12]
    assert exploration.manifest()["training"]["num_left_out"] == 2
    assert steps_of(exploration.fewer()) == [0, 12]
    assert exploration.fewer().fewer() is None
    first, last = exploration.paths(0), exploration.paths(2)
    exploration.paths(1)
    fewer = exploration.fewer()
    assert [kept_paths(fewer, run) for run in fewer.numbers] == [[first], [last]]


def test_checkpoints_closer_than_can_be_shown_are_passed_over(written, tmp_path):
    exploration = TrainingExploration(part(written, tmp_path / "run", 0), max_checkpoints=2)  # 6 steps apart
    part(written, tmp_path / "run", 3, 6, 9)
    shown = [each["step"] for each in exploration.training()["training"]["checkpoints"]]
    assert shown == [0, 6, 9]  # the newest in any case


def test_two_pages_that_ask_at_once_add_a_checkpoint_once(written, tmp_path):
    exploration = TrainingExploration(part(written, tmp_path / "run", 0))
    part(written, tmp_path / "run", 3, 6, 9, 12)
    at_once(8, lambda _: exploration.training())
    assert steps_of(exploration) == list(SAVED)


def test_the_file_has_every_checkpoint(exploration):
    page = render_page(exploration)
    assert len(page) <= 2_000_000
    manifest, blob = read_page(page)
    assert manifest["training"] == json.loads(json.dumps(exploration.manifest()["training"]))
    length, decimals = len(manifest["runs"][0]["tokens"]), manifest["decimals"]
    for run in range(5):
        for layer, head in np.ndindex(2, 2):
            weights = unpack_weights(blob(f"weights/{run}/{layer}/{head}"), (length, length), decimals)
            np.testing.assert_allclose(weights, whole(exploration, run, layer, head), atol=10.0**-decimals)
        moved = json.loads(blob(f"movement/{run}"))
        np.testing.assert_allclose(moved["points"][0], exploration.movement([run])["points"][0], atol=1e-5)


def test_checkpoints_are_left_out_of_a_file_that_is_too_large(exploration, monkeypatch):
    two = render_page(exploration.fewer().fewer())
    blobs = read_page(two)[0]["blobs"]
    limit = len(two) - sum(size for name, (_, size) in blobs.items() if name.startswith("cell_inputs")) + 1000
    monkeypatch.setattr(export_html, "_LIMITS", (limit, limit))
    page = render_page(exploration)
    assert len(page) <= limit
    training = read_page(page)[0]["training"]
    steps = [each["step"] for each in training["checkpoints"]]
    assert (steps[0], steps[-1], len(steps) < 5) == (0, 12, True)
    assert training["num_left_out"] == 5 - len(steps)


def test_a_hostile_name_of_a_run_is_inert(written, tmp_path):
    folder = tmp_path / "&lt;<script>alert(1)<"
    shutil.copytree(written, folder)
    exploration = TrainingExploration(TrainingRun(folder))
    assert exploration.manifest()["title"].endswith("<script>alert(1)<")
    page = render_page(exploration)
    assert b"<script>alert" not in page


@pytest.mark.parametrize(("call", "says"), [
    (lambda x, _: x.training(-1), "known is a number of checkpoints"),
    (lambda x, _: x.run_text("qzkfqz"), "regard explore TEXT"),
    (lambda _, run: TrainingExploration(run, head=7), "there is no head 7"),
    (lambda _, run: exploration_of([run], "minilm"), "leave out model"),
    (lambda _, run: exploration_of([run, "a", "b"], None), "on one text"),
    (lambda _, run: exploration_of([run], None, batch=1), "leave out batch=1"),
])  # fmt: skip
def test_what_a_training_run_does_not_do_is_an_error(exploration, written, call, says):
    assert exploration.manifest()["live_models"] == []
    with pytest.raises(RegardError, match=says):
        call(exploration, TrainingRun(written))
