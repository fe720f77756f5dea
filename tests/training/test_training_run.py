"""The folder of a run: the loss of every step whatever ended it, and the text to look at its checkpoints with."""

import csv
import re

import numpy as np
import pytest

import regard
from regard import RegardError, training
from regard.training.run_folder import LOSSES

OPTIONS = {"steps": 6, "learning_rate": 1e-3, "save_every": 2, "evaluate_every": 3}


def train(folder, task=None, **options):
    task = task or training.make_task("induction", batch_size=4)
    held_out = options.pop("evaluation", task.held_out(1))
    return regard.train(task.new_model(), task.batches(), folder=folder, evaluation=held_out, **{**OPTIONS, **options})


def stop_after(step):
    def progress(done, _):
        if done.step == step:
            raise InterruptedError

    return progress


def test_losses_are_those_of_the_steps(tmp_path):
    result = train(tmp_path)
    losses = training.TrainingRun(tmp_path).losses()
    assert losses.steps == [1, 2, 3, 4, 5, 6]
    assert losses.values == [step.loss for step in result.steps]
    assert losses.evaluation_steps == [3, 6]
    assert losses.evaluation_values == [result.steps[n].evaluation_loss for n in (2, 5)]


@pytest.mark.parametrize("cut", [0, 7])
def test_a_resumed_run_has_the_file_of_one_that_was_not_interrupted(tmp_path, cut):
    train(tmp_path / "whole")
    with pytest.raises(InterruptedError):
        train(tmp_path / "stopped", progress=stop_after(5))
    file = tmp_path / "stopped" / LOSSES
    assert len(file.read_text().splitlines()) == 6
    if cut:  # as a kill leaves it
        file.write_bytes(file.read_bytes()[:-cut])
        assert training.TrainingRun(tmp_path / "stopped").losses().steps == [1, 2, 3, 4]
    train(tmp_path / "stopped", resume=True)
    assert file.read_bytes() == (tmp_path / "whole" / LOSSES).read_bytes()


def test_only_new_rows_are_read_and_a_replaced_file_is_read_again(tmp_path):
    train(tmp_path, steps=2)
    run = training.TrainingRun(tmp_path)
    first = run.losses()
    file = tmp_path / LOSSES
    with file.open("a") as stream:
        stream.write("3,0.5,0.25\n4,0.")
    assert run.losses() == (*(a + b for a, b in zip(first[:2], ([3], [0.5]), strict=True)), [2, 3], [first[3][0], 0.25])
    assert first.steps == [1, 2]  # a list of its own
    with file.open("a") as stream:
        stream.write("25,\n")
    assert run.losses().values[-1] == 0.25
    assert run.losses().steps == [1, 2, 3, 4]
    file.unlink()
    assert run.losses().steps == []
    file.write_text("step,loss,evaluation_loss\n1,2.0,\n")
    assert run.losses() == ([1], [2.0], [], [])


def test_a_row_that_is_none_is_an_error(tmp_path):
    train(tmp_path, steps=2)
    (tmp_path / LOSSES).write_text("step,loss,evaluation_loss\n1,<script>,\n")
    with pytest.raises(RegardError, match="not a step of a run"):
        training.TrainingRun(tmp_path).losses()


def test_a_loss_that_is_no_number_is_left_out(tmp_path):
    train(tmp_path, steps=2)
    (tmp_path / LOSSES).write_text("step,loss,evaluation_loss\n1,2.0,\n2,nan,inf\n3,inf,1.0\n")
    assert training.TrainingRun(tmp_path).losses() == ([1], [2.0], [3], [1.0])


def test_a_number_of_steps_without_end_is_an_error(tmp_path):
    train(tmp_path, steps=2)
    state = training.checkpoints(tmp_path)[2] / "training.json"
    state.write_text(re.sub(r'"steps": 2\b', f'"steps": {10**400}', state.read_text()))
    with pytest.raises(RegardError, match=r"lacks options\.steps"):
        training.TrainingRun(tmp_path)


def test_checkpoints_of_a_run(tmp_path):
    train(tmp_path, save_start=True)
    run = training.TrainingRun(tmp_path)
    assert list(run.checkpoints) == [0, 2, 4, 6]
    assert (run.num_steps, run.name) == (6, tmp_path.name)
    task = training.make_task("induction", batch_size=4)
    start = run.load(0)
    assert start.name == f"{tmp_path.name}, step 0"
    ids = np.arange(5)[None]
    np.testing.assert_allclose(start(ids).logits, task.new_model().model(ids).logits, atol=1e-6)
    assert np.abs(run.load(6)(ids).logits - start(ids).logits).max() > 1e-4
    with pytest.raises(RegardError, match="no checkpoint of step 3"):
        run.load(3)


def test_a_saved_start_can_be_resumed(tmp_path):
    train(tmp_path / "whole")
    with pytest.raises(InterruptedError):
        train(tmp_path / "run", save_start=True, progress=stop_after(1))
    assert list(training.checkpoints(tmp_path / "run")) == [0]
    train(tmp_path / "run", save_start=True, resume=True)
    for name in ("model.safetensors", "optimizer.safetensors"):
        whole, run = ((tmp_path / which / "step-000006" / name).read_bytes() for which in ("whole", "run"))
        assert whole == run


@pytest.mark.parametrize("name", ["induction", "reverse", "addition"])
def test_the_text_is_the_first_that_was_held_out(tmp_path, name):
    task = training.make_task(name, batch_size=4)
    train(tmp_path, task, steps=1)
    run = training.TrainingRun(tmp_path)
    batch = task.held_out(1)[0]
    model = run.load(1)
    ids = run.encode(model).ids
    assert ids == tuple(batch.ids[0, : len(ids)])
    assert (batch.targets[0, len(ids) :] == -100).all()
    assert batch.targets[0, len(ids) - 1] != -100
    assert run.encode(model, "ab").ids == model.tokenizer("ab").ids


def test_a_masked_text_is_whole_and_without_padding(tmp_path):
    task = training.text_task("a cat sat on the mat. " * 300, masked=True, context=16, batch_size=4)
    train(tmp_path, task, steps=1)
    run = training.TrainingRun(tmp_path)
    batch = task.held_out(1)[0]
    length = batch.ids.shape[1] if batch.mask is None else int(batch.mask[0].sum())
    assert len(run.encode(run.load(1)).ids) <= length


def test_a_run_without_what_is_needed(tmp_path):
    with pytest.raises(RegardError, match="no checkpoint"):
        training.TrainingRun(tmp_path)
    train(tmp_path / "run", evaluation=())
    run = training.TrainingRun(tmp_path / "run")
    assert run.losses().evaluation_steps == []
    with pytest.raises(RegardError, match="give a text"):
        run.encode(run.load(6))
    (tmp_path / "run" / LOSSES).unlink()
    assert training.TrainingRun(tmp_path / "run").losses().steps == []


def test_the_file_holds_what_a_run_determines(tmp_path):
    train(tmp_path, steps=2)
    assert next(csv.reader((tmp_path / LOSSES).read_text().splitlines())) == ["step", "loss", "evaluation_loss"]


@pytest.mark.parametrize("name", ["x" * 5000, "a\x00b", "missing", ""])
def test_what_is_no_folder_has_no_checkpoints(name):
    assert training.checkpoints(name) == {}
