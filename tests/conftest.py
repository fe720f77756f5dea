"""What many tests share: a seeded generator and the real model."""

from __future__ import annotations

import json
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


TINY_CONFIG = {
    "model_type": "bert",
    "vocab_size": 23,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 7,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}
TINY_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the cat sat on mat ##s a b c d e f g h i j k l".split()]


def tiny_tensors() -> dict[str, np.ndarray]:
    """Return random weights for `TINY_CONFIG`, under the names of a Hugging Face checkpoint."""
    rng = np.random.default_rng(11)
    E, F = TINY_CONFIG["hidden_size"], TINY_CONFIG["intermediate_size"]
    shapes = {
        "embeddings.word_embeddings.weight": (TINY_CONFIG["vocab_size"], E),
        "embeddings.position_embeddings.weight": (TINY_CONFIG["max_position_embeddings"], E),
        "embeddings.token_type_embeddings.weight": (TINY_CONFIG["type_vocab_size"], E),
    }
    norms = ["embeddings.LayerNorm"]
    for i in range(TINY_CONFIG["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        maps = dict.fromkeys((f"{layer}.attention.self.{n}" for n in ("query", "key", "value")), (E, E))
        maps[f"{layer}.attention.output.dense"] = (E, E)
        maps[f"{layer}.intermediate.dense"] = (F, E)
        maps[f"{layer}.output.dense"] = (E, F)
        for name, shape in maps.items():
            shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[:1]
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    for name in norms:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (E,)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def write_bert(tmp_path):
    """Return a function that writes a tiny BERT with changes to its configuration and tensors."""
    from regard._safetensors import write_safetensors

    def write(config=None, tensors=None, drop=(), folder="tiny"):
        target = tmp_path / folder
        target.mkdir(exist_ok=True)
        (target / "config.json").write_text(json.dumps({**TINY_CONFIG, **(config or {})}))
        (target / "vocab.txt").write_text("\n".join(TINY_PIECES))
        kept = {name: value for name, value in {**tiny_tensors(), **(tensors or {})}.items() if name not in drop}
        write_safetensors(target / "model.safetensors", kept)
        return target

    return write
