"""OPT: a GPT-2 with ReLU (Zhang et al. 2022, arXiv:2205.01068).

The checkpoint's table of positions begins with two rows that no token has. The model of 350M parameters, which norms
after each sublayer and has narrower embeddings, is not supported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.models.build import causal_attention, embedding, feed_forward, layer_norm, projections
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder_checkpoint import check_unsupported_flags
from regard.models.gpt2 import GPT2
from regard.nn import DecoderBlock, Embedding

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
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="opt", do_layer_norm_before=True, _remove_final_layer_norm=False)
        reader.only(layer_norm_elementwise_affine=True)
        check_unsupported_flags(reader)
        reader.without_effect("dropout", "activation_dropout", "layerdrop", "init_std")  # for training
        embed_dim, num_heads = reader.count("hidden_size"), reader.count("num_attention_heads")
        reader.splits("hidden_size", embed_dim, num_heads)
        reader.choice("word_embed_proj_dim", None, [None, embed_dim])
        return cls(
            vocab_size=reader.count("vocab_size"),
            embed_dim=embed_dim,
            num_layers=reader.num_layers("num_hidden_layers"),
            num_heads=num_heads,
            hidden_dim=reader.count("ffn_dim"),
            max_positions=reader.count("max_position_embeddings"),
            activation=reader.activation("activation_function", "relu"),
            bias=reader.flag("enable_bias", True),
            tied=reader.flag("tie_word_embeddings", True),
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OPT(GPT2):
    """An OPT with its tokenizer; its forward pass is that of GPT-2."""

    config_type: ClassVar[Any] = OPTConfig
    prefix: ClassVar[str] = "model"
    embedding: ClassVar[str] = "decoder.embed_tokens"

    def positions(self, length: int, mask: np.ndarray | None) -> np.ndarray:
        """Return the positions of a whole text, ``T``, or ``B T`` with a mask; padding before it does not count."""
        if mask is None:
            return super().positions(length, mask)
        text = np.cumsum(mask[:, 0, 0], axis=-1)
        return np.asarray(np.maximum(text - 1, 0))

    @classmethod
    def layers(cls, source: TensorSource, config: OPTConfig) -> dict[str, Any]:
        """Return the fields that are layers, except the head."""
        E, decoder = config.embed_dim, source.at("decoder")
        size, rows = config.max_positions, slice(_OFFSET, None)
        return {
            "token_embedding": embedding(source, cls.embedding, config.vocab_size, E, in_blocks=True),
            "position_embedding": Embedding(
                decoder.array("embed_positions.weight", (_OFFSET + size, E), (size, E), rows=rows)
            ),
            "blocks": tuple(cls.block(decoder.at(f"layers.{i}"), config, i) for i in range(config.num_layers)),
            "final_norm": layer_norm(decoder, "final_layer_norm", E, config.norm_eps),
        }

    @classmethod
    def block(cls, source: TensorSource, config: OPTConfig, layer: int) -> DecoderBlock:  # noqa: ARG003
        """Return the block of a layer."""
        E, eps, bias = config.embed_dim, config.norm_eps, config.bias
        names = ("q_proj", "k_proj", "v_proj", "out_proj")
        return DecoderBlock(
            layer_norm(source, "self_attn_layer_norm", E, eps),
            causal_attention(
                projections(source.at("self_attn"), names, E, (E, E), bias=bias, output_bias=bias),
                num_heads=config.num_heads,
            ),
            layer_norm(source, "final_layer_norm", E, eps),
            feed_forward(source, ("fc1", "fc2"), E, config.hidden_dim, config.activation, bias=bias),
        )
