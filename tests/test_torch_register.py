"""`regard.torch.register` where transformers is missing, does not import, or is too old."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

import regard.torch
from regard import RegardError


def test_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(RegardError, match=r"^register needs transformers 5 or later: pip install \"transformers>=5\"$"):
        regard.torch.register()


def test_without_pytorch():
    """The package imports, arrays of other libraries are computed, and what needs tensors says so."""
    code = """
import sys
sys.modules["torch"] = None
import numpy as np
import regard.torch
from regard import RegardError
x = np.ones((1, 2, 3, 4))
assert regard.attention(x, x, x).shape == x.shape
for call in (lambda: regard.torch.attention(x, x, x), lambda: regard.torch.use_regard().__enter__()):
    try:
        call()
    except RegardError as error:
        print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    advice = "needs PyTorch: pip install 'regard[torch]'"
    assert result.stdout.splitlines() == [f"regard.torch.attention {advice}", f"use_regard {advice}"]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("raise ImportError('tokenizers>=0.22 is needed,\\n found 0.13')", "tokenizers>=0.22 is needed, found 0.13"),
        ("from transformers import part", "cannot import name 'part' from partially initialized module "),
        ("import missing_package", "No module named 'missing_package'"),
        ("import transformers.missing_part", "No module named 'transformers.missing_part'"),
        (
            "__version__ = '5.24.0'\n"
            "def __getattr__(name):\n"
            "    try:\n"
            "        import missing_package\n"
            "    except ImportError as error:\n"
            "        raise ModuleNotFoundError(f'Could not import {name}. Are its requirements right?') from error\n",
            "No module named 'missing_package'",
        ),
    ],
    ids=["requirement", "name", "package", "part", "lazily"],
)  # fmt: skip
def test_with_one_that_does_not_import(lines, reason, monkeypatch, tmp_path):
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").write_text(lines)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(RegardError) as caught:
        regard.torch.register()
    sys.modules.pop("transformers", None)
    assert str(caught.value).startswith(
        f"register needs transformers 5 or later, which is there but does not import: {reason}"
    )
    assert "\n" not in str(caught.value)


def test_with_an_old_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(__version__="4.57.1"))
    with pytest.raises(RuntimeError, match=r"^register needs transformers 5 or later, got 4\.57\.1: pip install"):
        regard.torch.register()
