"""The examples of training in JAX and PyTorch run anywhere, learn, and leave nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(("name", "share"), [("jax_training_step.py", 0.3), ("torch_gpt.py", 0.75)])
def test_the_loss_falls(name, share, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(Path(regard.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    first, last = (float(x) for x in re.findall(r"\d+\.\d+", done.stdout.splitlines()[0]))
    assert last < share * first
