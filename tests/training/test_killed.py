"""A run killed at random moments always has a checkpoint that loads, and in the end the bits of one that was not."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.formats.safetensors import SafetensorsFile
from regard.training import TrainingRun, checkpoints

STEPS, MOST = 40, 600  # of 16 files opened, renamed or made for each step
RUN = f"""
from regard import training
config = {{"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64}}
task = training.make_task("reverse", batch_size=8)
model = training.new_model({{**config, "vocab_size": task.tokenizer.vocab_size}}, task.tokenizer, seed=1)
training.train(model, task.batches(1), steps={STEPS}, dropout=0.1, save_every=1, folder=folder, resume=True)
"""

# It ends at once, as if killed, before it opens, renames or removes a file of its folder for the n-th time.
KILLED = (
    """
import os, sys
folder, left = sys.argv[1], int(sys.argv[2])
def count(event, arguments):
    global left
    if event in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir") and str(arguments[0]).startswith(folder):
        left -= 1
        if left < 0:
            os._exit(9)
sys.addaudithook(count)
"""
    + RUN
)


def run(folder):
    exec(RUN, {"folder": str(folder)})


def contents(path: Path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.sweep)])
def test_killed_at_random_moments(tmp_path, kills):
    moments = random.Random(kills)
    for _ in range(kills):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "killed"), str(moments.randint(0, MOST // kills))]
        assert subprocess.run(command, check=False).returncode == 9
        if found := checkpoints(tmp_path / "killed"):
            assert TrainingRun(tmp_path / "killed").losses().steps[: max(found)] == list(range(1, max(found) + 1))
        for path in list(found.values())[-2:]:
            assert regard.load(path).head is not None
            assert len(SafetensorsFile(path / "optimizer.safetensors")) == 2 * len(
                SafetensorsFile(path / "model.safetensors")
            )
    for name in ("killed", "whole"):
        run(tmp_path / name)
    killed, whole = (checkpoints(tmp_path / name) for name in ("killed", "whole"))
    assert list(killed) == list(whole) == list(range(1, STEPS + 1))
    for step in whole:
        assert contents(killed[step]) == contents(whole[step])
    assert (tmp_path / "killed" / "losses.csv").read_bytes() == (tmp_path / "whole" / "losses.csv").read_bytes()
    assert not [path for path in (tmp_path / "killed").iterdir() if path.name.startswith(".")]
