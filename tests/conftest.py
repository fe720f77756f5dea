"""What many tests share: a seeded generator, the real models, and which cases are left to the sweep."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import tiny_bert
from fake_traces import SENTENCE, encoding_of, trace_of
from regard import Trace
from sweeps import pairwise_cover

# Neither profile measures time. `nox -s sweep` chooses its own with --hypothesis-profile.
settings.register_profile(
    "quick", max_examples=30, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("sweep", settings.get_profile("quick"), max_examples=200, derandomize=False)
settings.load_profile("quick")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a product of parameters marked `pairwise`, mark as `sweep` the cases that add no pair of values."""
    products = defaultdict(list)
    for item in items:
        if item.get_closest_marker("pairwise") and not item.get_closest_marker("sweep"):
            products[item.nodeid.partition("[")[0]].append(item)
    for cases in products.values():
        cover = pairwise_cover([case.callspec.params for case in cases])
        for number, case in enumerate(cases):
            if number not in cover:
                case.add_marker("sweep")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20170612)


@pytest.fixture(scope="session")
def minilm_dir() -> Path:
    """Return the folder with the pretrained files, from wherever this machine has them; an error if nowhere."""
    from regard.models.hub import resolve

    return Path(resolve.find("minilm", download=False))


@pytest.fixture(scope="session")
def minilm():
    import regard

    return regard.load("minilm", download=False)


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """Return the pretrained file, from wherever this machine has it; an error if nowhere."""
    from regard.models.hub import resolve

    (file,) = Path(resolve.find("smollm2", download=False)).glob("*.gguf")
    return file


@pytest.fixture(scope="session")
def our_smollm2():
    import regard

    return regard.load("smollm2", download=False)


@pytest.fixture
def write_bert(tmp_path):
    """Return a function that writes a tiny BERT with changes to its configuration and tensors."""
    from regard.formats.safetensors import write_safetensors

    def write(config=None, tensors=None, drop=(), folder="tiny"):
        target = tmp_path / folder
        target.mkdir(exist_ok=True)
        (target / "config.json").write_text(json.dumps({**tiny_bert.CONFIG, **(config or {})}))
        (target / "vocab.txt").write_text("\n".join(tiny_bert.PIECES))
        kept = {name: value for name, value in {**tiny_bert.tensors(), **(tensors or {})}.items() if name not in drop}
        write_safetensors(target / "model.safetensors", kept)
        return target

    return write


@pytest.fixture
def trace(rng: np.random.Generator) -> Trace:
    return trace_of(rng, encoding_of(SENTENCE))


@pytest.fixture
def text_trace(rng: np.random.Generator) -> Callable[..., Trace]:
    """Return a function that makes a trace of these words."""
    return lambda words, **sizes: trace_of(rng, encoding_of([[word] for word in words]), **sizes)
