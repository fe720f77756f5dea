"""The peers, loaded once."""

import functools
import warnings

import pytest
import torch

torch.set_num_threads(1)  # of small tensors; those of two workers on two processors would wait for each other


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Let no chat template fail because this machine is busy."""
    monkeypatch.setattr("regard.text.chat._TIMEOUT", 120)


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
