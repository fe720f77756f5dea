"""A resumed run is the same run, and there is one in a folder at a time."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import regard
from regard import RegardError, training
from regard.formats.safetensors import SafetensorsFile, write_safetensors
from regard.training.run_folder import LOSSES

OPTIONS = {"steps": 6, "learning_rate": 1e-3, "save_every": 2}


def train(folder, task="reverse", **options):
    task = training.make_task(task, batch_size=2)
    return regard.train(task.new_model(), task.batches(), folder=folder, **{**OPTIONS, **options})


@pytest.fixture(scope="module")
def cut_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cut") / "run"

    def stop(step, _):
        if step.step == 5:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train(folder, progress=stop, data={"task": "reverse"})
    return folder


@pytest.fixture
def cut(cut_once, tmp_path):
    """Return the folder of a run that ended after 4 of 6 steps."""
    return shutil.copytree(cut_once, tmp_path / "run")


def resume(cut, **options):
    return train(cut, resume=True, **{"data": {"task": "reverse"}, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 1500}, "steps=6, not 1500"),
        ({"steps": 5}, "steps=6, not 5"),
        ({"learning_rate": 1e-5}, "learning_rate=0.001, not 1e-05"),
        ({"dropout": 0.5, "betas": (0.5, 0.9)}, r"betas=\[0.9, 0.999\], not \[0.5, 0.9\]; dropout=0.0, not 0.5"),
        ({"max_norm": None}, "max_norm=1.0, not None"),
        ({"seed": 2, "accumulate": 3}, "accumulate=1, not 3; seed=0, not 2"),
        ({"data": {"task": "sort"}}, "task='reverse', not 'sort'"),
        ({"data": None}, "task='reverse', not None"),
    ],
)
def test_another_run_is_refused_and_the_differences_are_named(cut, options, message):
    before = (cut / LOSSES).read_bytes()
    with pytest.raises(RegardError, match=message):
        resume(cut, **options)
    assert list(training.checkpoints(cut)) == [2, 4]
    assert (cut / LOSSES).read_bytes() == before


def test_a_run_whose_steps_are_done_goes_on_with_more(tmp_path):
    train(tmp_path)
    train(tmp_path, steps=8, resume=True)
    assert list(training.checkpoints(tmp_path)) == [2, 4, 6, 8]
    assert training.TrainingRun(tmp_path).num_steps == 8
    with pytest.raises(RegardError, match="steps=8, not 6"):
        train(tmp_path, resume=True)


def test_data_is_what_json_can_hold(tmp_path):
    with pytest.raises(RegardError, match="data must be"):
        train(tmp_path / "run", data={"task": object()})
    assert not (tmp_path / "run").exists()


def test_a_second_run_in_the_folder_is_refused(tmp_path):
    def other(step, _):
        if step.step == 3:
            with pytest.raises(RegardError, match="another run is training in"):
                train(tmp_path, resume=True)

    train(tmp_path, progress=other, save_every=1)
    assert list(training.checkpoints(tmp_path)) == [1, 2, 3, 4, 5, 6]
    assert training.TrainingRun(tmp_path).losses().steps == [1, 2, 3, 4, 5, 6]


RUN = """
import sys, time
from regard.training.run_lock import locked
from pathlib import Path
with locked(Path(sys.argv[1])):
    print("holds", flush=True)
    time.sleep(600)
"""


def test_the_lock_of_another_process_ends_with_it(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "holds\n"
        with pytest.raises(RegardError, match="another run is training in"):
            train(tmp_path)
        assert not (tmp_path / LOSSES).exists()
    finally:
        process.kill()
        process.communicate()
    train(tmp_path)
    assert max(training.checkpoints(tmp_path)) == 6


def test_moments_of_another_model_are_an_error(cut, tmp_path):
    train(tmp_path / "other", task="induction", steps=1)
    moments = training.checkpoints(tmp_path / "other")[1] / "optimizer.safetensors"
    (training.checkpoints(cut)[4] / "optimizer.safetensors").write_bytes(moments.read_bytes())
    with pytest.raises(RegardError, match="moments"):
        resume(cut)


def test_json_lines_that_are_no_steps_are_an_error(cut, tmp_path):
    for row in ("[1]", '{"step": 1e400}', '{"step": ' + "[" * 100_000):
        (tmp_path / "log.jsonl").write_text(f"{row}\n")
        with pytest.raises(RegardError, match="not a step of a run"):
            resume(cut, log=tmp_path / "log.jsonl")


def test_a_file_is_no_checkpoint(tmp_path):
    (tmp_path / "step-000009").write_text("")
    assert training.checkpoints(tmp_path) == {}
    train(tmp_path, steps=1)
    assert list(training.checkpoints(tmp_path)) == [1]


@pytest.mark.parametrize("name", [LOSSES, "lock", "step-000004/training.json", "notes"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_nothing_but_plain_files_is_followed(cut, tmp_path, name, kind):
    """A link would lead what is written out of the folder, a pipe would hang."""
    precious = tmp_path / "precious"
    precious.write_text("step,loss,evaluation_loss\n")
    (cut / name).unlink(missing_ok=True)
    (cut / name).symlink_to(precious) if kind == "link" else os.mkfifo(cut / name)
    with pytest.raises(RegardError, match=re.escape(f"{name} is {'a link' if kind == 'link' else 'no plain file'}")):
        resume(cut)
    with pytest.raises(RegardError, match=re.escape(name)):
        training.TrainingRun(cut)
    assert precious.read_text() == "step,loss,evaluation_loss\n"


def change_state(cut, **changes):
    """Change fields of the state of step 4, or take them out where the value is None."""
    file = training.checkpoints(cut)[4] / "training.json"
    fields = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in fields.items() if value is not None}))


def change_moment(cut, kind, value):
    path = training.checkpoints(cut)[4] / "optimizer.safetensors"
    file = SafetensorsFile(path)
    tensors = {name: file[name].copy() for name in file}
    next(x for name, x in tensors.items() if name.startswith(kind)).flat[0] = value
    write_safetensors(path, tensors)


DAMAGE = [
    *(
        (lambda cut, changes={field: value}: change_state(cut, **changes), f"training.json lacks .*{field}")
        for field in ("step", "optimizer_steps", "options", "data")
        for value in ("x", None)
    ),
    (lambda cut: training.checkpoints(cut)[4].rename(cut / "step-000005"), "it is of step 4, .* may have been renamed"),
    (lambda cut: change_state(cut, optimizer_steps=0), "its optimizer has made 0 steps"),
    (lambda cut: change_state(cut, optimizer_steps=10**400), "has made 1000"),
    (lambda cut: change_state(cut, step=-4, optimizer_steps=-4), "of step -4"),
    *(
        (lambda cut, change=change: change_moment(cut, *change), "moments .* are not finite, or squares are negative")
        for change in (("first", np.nan), ("second", -1.0), ("second", np.inf))
    ),
    *(
        (lambda cut, content=content: (cut / LOSSES).write_bytes(content), re.escape(LOSSES))
        for content in (b"\xff\xfe\n", b"step,loss\n\xff,1\n")
    ),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE)
def test_a_damaged_checkpoint_is_an_error(cut, damage, message):
    damage(cut)
    with pytest.raises(RegardError, match=message):
        resume(cut)
