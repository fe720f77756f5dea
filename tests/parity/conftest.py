"""The peers, loaded once; without them there is nothing here to run."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from pathlib import Path

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.parity)


@pytest.fixture(scope="session")
def transformers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the peers warn of among themselves is not ours to mend
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        return transformers


@pytest.fixture(scope="session")
def peer(transformers, minilm_dir):
    """Return transformers' own tokenizer and model of the same files, computing attention step by step."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm_dir)
    model = transformers.AutoModel.from_pretrained(minilm_dir, attn_implementation="eager").eval()
    return tokenizer, model


@pytest.fixture
def pair(transformers):
    """Return a function that makes a random model, and the same one that computes attention step by step."""
    from capture_models import make_pair

    return functools.partial(make_pair, transformers)
