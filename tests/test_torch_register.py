"""`regard.torch.register` where transformers is missing or too old."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import regard.torch
from regard import RegardError


def test_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(RegardError, match=r"^register needs transformers 5 or later: pip install \"transformers>=5\"$"):
        regard.torch.register()


def test_with_an_old_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(__version__="4.57.1"))
    with pytest.raises(RuntimeError, match=r"^register needs transformers 5 or later, got 4\.57\.1: pip install"):
        regard.torch.register()
