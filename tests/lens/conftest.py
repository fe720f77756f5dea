"""TransformerLens, without which there is nothing here to run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("transformer_lens") else ["test_*.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.lens)


@pytest.fixture(scope="package", params=("gpt2", "gpt_neox", "llama", "qwen3", "gemma2"))
def pair(request, tmp_path_factory):
    """A tiny model with random numbers in TransformerLens, as it is and with its norms folded, in regard, and a run."""
    import lens_models

    return lens_models.tiny_pair(request.param, tmp_path_factory.mktemp(request.param))
