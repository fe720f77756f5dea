"""What many tests share: a seeded generator and the real model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tiny_bert


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20170612)


@pytest.fixture(scope="session")
def minilm_dir() -> Path:
    """Return the folder with the pretrained files, from wherever this machine has them; an error if nowhere."""
    from regard.models import _sources

    return Path(_sources.find("minilm", download=False))


@pytest.fixture(scope="session")
def minilm(minilm_dir: Path):
    import regard

    return regard.load(minilm_dir)


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """Return the pretrained file, from wherever this machine has it; an error if nowhere."""
    from regard.models import _sources

    (file,) = Path(_sources.find("smollm2", download=False)).glob("*.gguf")
    return file


@pytest.fixture(scope="session")
def our_smollm2():
    import regard

    return regard.load("smollm2", download=False)


@pytest.fixture
def write_bert(tmp_path):
    """Return a function that writes a tiny BERT with changes to its configuration and tensors."""
    from regard._safetensors import write_safetensors

    def write(config=None, tensors=None, drop=(), folder="tiny"):
        target = tmp_path / folder
        target.mkdir(exist_ok=True)
        (target / "config.json").write_text(json.dumps({**tiny_bert.CONFIG, **(config or {})}))
        (target / "vocab.txt").write_text("\n".join(tiny_bert.PIECES))
        kept = {name: value for name, value in {**tiny_bert.tensors(), **(tensors or {})}.items() if name not in drop}
        write_safetensors(target / "model.safetensors", kept)
        return target

    return write
