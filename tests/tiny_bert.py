"""A BERT small enough to be written by a test: its configuration, vocabulary and random weights."""

import json
from pathlib import Path

import numpy as np

from regard.formats.safetensors import write_safetensors

CONFIG = {
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
PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat ##s a b c d e f g h i j k l".split()


def tensors() -> dict[str, np.ndarray]:
    """Return random weights for `CONFIG`, under the names of a Hugging Face checkpoint."""
    rng = np.random.default_rng(11)
    E, F = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    shapes = {
        "embeddings.word_embeddings.weight": (CONFIG["vocab_size"], E),
        "embeddings.position_embeddings.weight": (CONFIG["max_position_embeddings"], E),
        "embeddings.token_type_embeddings.weight": (CONFIG["type_vocab_size"], E),
    }
    norms = ["embeddings.LayerNorm"]
    for i in range(CONFIG["num_hidden_layers"]):
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


def write(folder: Path, config=None, changed=None, drop=()) -> Path:
    """Write the model to `folder`, with changes to its configuration and tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **(config or {})}))
    (folder / "vocab.txt").write_text("\n".join(PIECES))
    kept = {name: value for name, value in {**tensors(), **(changed or {})}.items() if name not in drop}
    write_safetensors(folder / "model.safetensors", kept)
    return folder
