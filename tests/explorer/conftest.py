"""Small runs to explore: a toy, a BERT and a Llama of a few numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import regard
import tiny_bert
from regard.formats.safetensors import write_safetensors

BART = Path(__file__).parent.parent / "models" / "golden" / "bart" / "tied"
CAUSAL = Path(__file__).parent.parent / "models" / "golden" / "qwen2" / "plain"


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """Return a model of 2 layers × 3 heads that reads at most 7 tokens."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(tiny_bert.CONFIG))
    (folder / "vocab.txt").write_text("\n".join(tiny_bert.PIECES))
    write_safetensors(folder / "model.safetensors", tiny_bert.tensors())
    return regard.load(folder)


@pytest.fixture(scope="session")
def causal():
    """Return a causal model with grouped key/value heads and rotary embeddings."""
    return regard.load(CAUSAL)


@pytest.fixture(scope="session")
def bart():
    """Return a model whose encoder reads the text."""
    return regard.load(BART)
