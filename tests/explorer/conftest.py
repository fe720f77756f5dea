"""Small runs to explore: a toy, a BERT and a Llama of a few numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard

BART = Path(__file__).parent.parent / "models" / "golden" / "bart" / "tied"
CAUSAL = Path(__file__).parent.parent / "models" / "golden" / "qwen2" / "plain"


@pytest.fixture
def bert(write_bert):
    """Return a model of 2 layers × 3 heads that reads at most 7 tokens."""
    return regard.load(write_bert())


@pytest.fixture
def causal():
    """Return a causal model with grouped key/value heads and rotary embeddings."""
    return regard.load(CAUSAL)


@pytest.fixture
def bart():
    """Return a model whose encoder reads the text."""
    return regard.load(BART)
