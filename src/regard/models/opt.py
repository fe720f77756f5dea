"""OPT: a GPT-2 with ReLU (Zhang et al. 2022, arXiv:2205.01068).

The checkpoint's table of positions begins with two rows that no token has. The model of 350M parameters, which norms
after each sublayer and has narrower embeddings, is not supported.
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
from regard.models.gpt2 import GPT2
from regard.nn import DecoderBlock

_OFFSET = 2  # rows of the table of positions before that of the first token


@dataclass(frozen=True)
class OPTConfig(ModelConfig):
    """The sizes of an OPT, its activation, and whether its linear maps have biases."""

    vocab_size: int
    embed_dim: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    max_positions: int
    activation: str
    bias: bool
    tied: bool
    norm_eps: float = 1e-5  # the file has no field for it

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="opt", do_layer_norm_before=True, _remove_final_layer_norm=False)
        reader.only(layer_norm_elementwise_affine=True)
        check_unsupported_flags(reader)
        reader.ignore("dropout", "activation_dropout", "layerdrop", "init_std")  # for training
        embed_dim, num_heads = reader.count("hidden_size"), reader.count("num_attention_heads")
        reader.splits("hidden_size", embed_dim, num_heads)
        reader.choice("word_embed_proj_dim", None, [None, embed_dim])
        num_layers = reader.count("num_hidden_layers")
        reader.require(
            num_layers <= MAX_LAYERS, f"num_hidden_layers {num_layers} is more than the maximum of {MAX_LAYERS}"
        )
        config = cls(
            vocab_size=reader.count("vocab_size"),
            embed_dim=embed_dim,
            num_layers=num_layers,
            num_heads=num_heads,
            hidden_dim=reader.count("ffn_dim"),
            max_positions=reader.count("max_position_embeddings"),
            activation=reader.activation("activation_function", "relu"),
            bias=reader.flag("enable_bias", True),
            tied=reader.flag("tie_word_embeddings", True),
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OPT(GPT2):
    """An OPT with its tokenizer; its forward pass is that of GPT-2."""

    config_type: ClassVar[Any] = OPTConfig
    prefix: ClassVar[str] = "model."
    embedding: ClassVar[str] = "decoder.embed_tokens.weight"

    def positions(self, length: int, mask: np.ndarray | None) -> np.ndarray:
        """Return the positions of a whole text, ``T``, or ``B T`` with a mask; padding before it does not count."""
        if mask is None:
            return super().positions(length, mask)
        text = np.cumsum(mask[:, 0, 0], axis=-1)
        return np.asarray(np.maximum(text - 1, 0))

    @classmethod
    def block(cls, weights: dict[str, np.ndarray], layer: int, config: OPTConfig) -> DecoderBlock:
        """Return the block of a layer."""
        at = f"blocks.{layer}"
        return DecoderBlock(
            layer_norm(weights, f"{at}.attn_norm", config.norm_eps),
            causal_attention(weights, f"{at}.attn", num_heads=config.num_heads),
            layer_norm(weights, f"{at}.mlp_norm", config.norm_eps),
            feed_forward(weights, f"{at}.mlp", config.activation),
        )

    @classmethod
    def tensors(cls, config: OPTConfig, prefix: str) -> Iterator[TensorSpec]:
        """Yield every tensor except the head."""
        E, F, bias, hf = config.embed_dim, config.hidden_dim, config.bias, f"{prefix}decoder"
        positions = (config.max_positions + _OFFSET, E)
        yield TensorSpec("token_embedding.weight", f"{hf}.embed_tokens.weight", (config.vocab_size, E), table=True)
        yield TensorSpec(
            "position_embedding.weight", f"{hf}.embed_positions.weight", positions, rows=slice(_OFFSET, None)
        )
        for i in range(config.num_layers):
            name, hf_name = f"blocks.{i}", f"{hf}.layers.{i}"
            yield from norm_tensors(f"{name}.attn_norm", f"{hf_name}.self_attn_layer_norm", E)
            for part, hf_part in {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}.items():
                yield from linear_tensors(f"{name}.attn.{part}_proj", f"{hf_name}.self_attn.{hf_part}", E, E, bias=bias)
            yield from norm_tensors(f"{name}.mlp_norm", f"{hf_name}.final_layer_norm", E)
            yield from linear_tensors(f"{name}.mlp.up_proj", f"{hf_name}.fc1", E, F, bias=bias)
            yield from linear_tensors(f"{name}.mlp.down_proj", f"{hf_name}.fc2", F, E, bias=bias)
        yield from norm_tensors("final_norm", f"{hf}.final_layer_norm", E)
