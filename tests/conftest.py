"""What many tests share: a seeded generator and the real model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


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
