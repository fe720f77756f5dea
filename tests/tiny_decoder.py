"""A Llama small enough to be written by a test, with a tokenizer of single bytes."""

import json
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from regard.formats.safetensors import write_safetensors
from regard.text import SubwordTokenizer

END = 256
CONFIG = {
    "model_type": "llama",
    "vocab_size": 257,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 40,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
    "tie_word_embeddings": False,
    "eos_token_id": END,
}


def tensors(**sizes: int) -> dict[str, np.ndarray]:
    """Return random weights for `CONFIG` with some sizes changed, under the names of a Hugging Face checkpoint."""
    config = {**CONFIG, **sizes}
    rng = np.random.default_rng(7)
    E, F, D = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * D, config["num_key_value_heads"] * D
    shapes = {
        "model.embed_tokens.weight": (config["vocab_size"], E),
        "model.norm.weight": (E,),
        "lm_head.weight": (config["vocab_size"], E),
    }
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        for name, shape in {"q_proj": (q, E), "k_proj": (kv, E), "v_proj": (kv, E), "o_proj": (E, q)}.items():
            shapes[f"{layer}.self_attn.{name}.weight"] = shape
        for name, shape in {"gate_proj": (F, E), "up_proj": (F, E), "down_proj": (E, F)}.items():
            shapes[f"{layer}.mlp.{name}.weight"] = shape
        shapes[f"{layer}.input_layernorm.weight"] = shapes[f"{layer}.post_attention_layernorm.weight"] = (E,)
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def backend() -> Tokenizer:
    """Return a tokenizer whose ids are the bytes in the order of their signs, and `END` what ends a text."""
    tokenizer = Tokenizer(BPE({sign: i for i, sign in enumerate(sorted(ByteLevel.alphabet()))}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    return tokenizer


def tokenizer() -> SubwordTokenizer:
    """Return that tokenizer as a model has it."""
    return SubwordTokenizer(backend())


def write(folder: Path, config=None, changed=None, drop=()) -> Path:
    """Write the model to `folder`, with changes to its configuration and tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = {**CONFIG, **(config or {})}
    (folder / "config.json").write_text(
        json.dumps({name: value for name, value in fields.items() if value != "absent"})
    )
    backend().save(str(folder / "tokenizer.json"))
    kept = {name: value for name, value in {**tensors(), **(changed or {})}.items() if name not in drop}
    write_safetensors(folder / "model.safetensors", kept)
    return folder
