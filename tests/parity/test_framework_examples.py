"""The examples with JAX, PyTorch and transformers run anywhere, say what they should, and leave nothing behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(tmp_path):
    """Return a function that runs an example in an empty folder and returns its lines."""

    def run(name, *options):
        environment = os.environ | {"PYTHONPATH": str(Path(regard.__file__).parents[1]), "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [sys.executable, *options, EXAMPLES / name],
            cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert list(tmp_path.iterdir()) == []
        return done.stdout.splitlines()

    return run


def losses(line):
    """Return the first and the last loss."""
    first, last = (float(x) for x in re.findall(r"\d+\.\d+", line))
    return first, last


@pytest.mark.parametrize(("name", "share"), [("jax_training_step.py", 0.3), ("torch_gpt.py", 0.75)])
def test_the_loss_falls(run, name, share):
    first, last = losses(run(name, "-W", "error")[0])
    assert last < share * first


def test_a_model_of_transformers_is_trained_generates_and_is_captured(run):
    difference, loss, generated, weights = run("transformers_model.py")
    assert float(difference.rpartition(" ")[2]) < 2**-15
    first, last = losses(loss)
    assert last < first / 2
    assert "(2, 12), 100%" in generated
    assert weights.endswith("(2, 8, 12, 12), each row sums to 1.000")
