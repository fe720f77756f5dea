"""GPT-Neo: a GPT-2 with a sliding window in every second layer, and scores that are not scaled (Black et al. 2021).

"GPT-Neo: large scale autoregressive language modeling with Mesh-TensorFlow", https://doi.org/10.5281/zenodo.5297715.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.models.build import causal_attention, feed_forward, layer_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.tensors import TensorSpec, linear_tensors, norm_tensors
from regard.models.decoder_checkpoint import MAX_LAYERS, check_unsupported_flags
from regard.models.gpt2 import GPT2, ignore_summary
from regard.nn import DecoderBlock


@dataclass(frozen=True)
class GPTNeoConfig(ModelConfig):
    """The sizes of a GPT-Neo and its choices; `windows` as in `DecoderConfig`."""

    vocab_size: int
    embed_dim: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    max_positions: int
    activation: str
    norm_eps: float
    windows: tuple[int | None, ...]
    tied: bool

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="gpt_neo")
        check_unsupported_flags(reader)
        reader.ignore("resid_dropout", "embed_dropout")  # for training
        ignore_summary(reader)
        embed_dim, num_heads = reader.count("hidden_size"), reader.count("num_heads")
        reader.splits("hidden_size", embed_dim, num_heads)
        num_layers = reader.count("num_layers")
        reader.require(num_layers <= MAX_LAYERS, f"num_layers {num_layers} is more than the maximum of {MAX_LAYERS}")
        config = cls(
            vocab_size=reader.count("vocab_size"),
            embed_dim=embed_dim,
            num_layers=num_layers,
            num_heads=num_heads,
            hidden_dim=reader.optional_count("intermediate_size") or 4 * embed_dim,
            max_positions=reader.count("max_position_embeddings"),
            activation=reader.activation("activation_function", "gelu_new"),
            norm_eps=reader.positive("layer_norm_epsilon", 1e-5),
            windows=_read_windows(reader, min(num_layers, MAX_LAYERS)),
            tied=reader.flag("tie_word_embeddings", True),
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GPTNeo(GPT2):
    """A GPT-Neo with its tokenizer; its forward pass is that of GPT-2."""

    config_type: ClassVar[Any] = GPTNeoConfig

    @classmethod
    def block(cls, weights: dict[str, np.ndarray], layer: int, config: GPTNeoConfig) -> DecoderBlock:
        """Return the block of a layer."""
        at, window = f"blocks.{layer}", config.windows[layer]
        return DecoderBlock(
            layer_norm(weights, f"{at}.attn_norm", config.norm_eps),
            causal_attention(weights, f"{at}.attn", num_heads=config.num_heads, window=window, scale=1.0),
            layer_norm(weights, f"{at}.mlp_norm", config.norm_eps),
            feed_forward(weights, f"{at}.mlp", config.activation),
        )

    @classmethod
    def tensors(cls, config: GPTNeoConfig, prefix: str) -> Iterator[TensorSpec]:
        """Yield every tensor except the head."""
        E, F = config.embed_dim, config.hidden_dim
        yield TensorSpec("token_embedding.weight", f"{prefix}wte.weight", (config.vocab_size, E), table=True)
        yield TensorSpec("position_embedding.weight", f"{prefix}wpe.weight", (config.max_positions, E))
        for i in range(config.num_layers):
            name, hf_name = f"blocks.{i}", f"{prefix}h.{i}"
            yield from norm_tensors(f"{name}.attn_norm", f"{hf_name}.ln_1", E)
            for part in "qkv":
                hf_part = f"{hf_name}.attn.attention.{part}_proj"
                yield from linear_tensors(f"{name}.attn.{part}_proj", hf_part, E, E, bias=False)
            yield from linear_tensors(f"{name}.attn.o_proj", f"{hf_name}.attn.attention.out_proj", E, E)
            yield from norm_tensors(f"{name}.mlp_norm", f"{hf_name}.ln_2", E)
            yield from linear_tensors(f"{name}.mlp.up_proj", f"{hf_name}.mlp.c_fc", E, F)
            yield from linear_tensors(f"{name}.mlp.down_proj", f"{hf_name}.mlp.c_proj", F, E)
        yield from norm_tensors("final_norm", f"{prefix}ln_f", E)


def _read_windows(reader: ConfigReader, num_layers: int) -> tuple[int | None, ...]:
    """Read ``attention_types``: lists of ``global`` and ``local`` layers, each with how often it is repeated."""
    window, types = reader.count("window_size", 256), reader.take("attention_types", [[["global", "local"], 12]])
    kinds: list[Any] = []
    try:
        for names, times in types:
            kinds += list(names) * min(times, num_layers + 1)
    except (TypeError, ValueError):
        kinds = []
    fits = len(kinds) == num_layers and all(kind in ("global", "local") for kind in kinds)
    reader.require(fits, f"attention_types must make global or local of each of {num_layers} layers, got {types!r}")
    reader.choice("attention_layers", kinds, [kinds])  # repeats them
    return tuple(window if kind == "local" else None for kind in kinds) if fits else (None,) * num_layers
