"""Marks every test in this folder; without onnx, whose cases they are made from, there are none."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

collect_ignore = [] if importlib.util.find_spec("onnx") else ["test_onnx.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.conformance)
