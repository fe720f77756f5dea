"""Tiny models in TransformerLens and in regard."""

import pytest


@pytest.fixture(scope="package", params=("gpt2", "gpt_neox", "llama", "qwen3", "gemma2"))
def pair(request, tmp_path_factory):
    """A tiny model with random numbers in TransformerLens, as it is and with its norms folded, in regard, and a run."""
    import lens_models

    return lens_models.tiny_pair(request.param, tmp_path_factory.mktemp(request.param))
