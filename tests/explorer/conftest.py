"""Small runs to explore: a toy, a BERT and a Llama of a few numbers."""

import pytest
from explorations import explored

import golden
import regard
import tiny_bert


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """Return a model of 2 layers × 3 heads that reads at most 7 tokens."""
    return regard.load(tiny_bert.write(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="session")
def causal():
    """Return a causal model with grouped key/value heads and rotary embeddings."""
    return regard.load(golden.FOLDER / "qwen2/plain")


@pytest.fixture(scope="session")
def bart():
    """Return a model whose encoder reads the text."""
    return regard.load(golden.FOLDER / "bart/tied")


@pytest.fixture
def short(bert):
    """Return the exploration of 5 tokens, which a test may edit."""
    return explored(bert, "the cat sat")
