"""The example of a model of transformers runs anywhere and says what it should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import regard

EXAMPLE = Path(__file__).parents[2] / "examples" / "transformers_model.py"


def test_the_example_trains_generates_and_captures(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(Path(regard.__file__).parents[1]), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, EXAMPLE], cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    difference, loss, generated, weights = done.stdout.splitlines()
    assert float(difference.rpartition(" ")[2]) < 2**-15
    first, last = (float(x) for x in re.findall(r"\d+\.\d+", loss))
    assert last < first / 2
    assert "(2, 12), 100%" in generated
    assert weights.endswith("(2, 8, 12, 12), each row sums to 1.000")
