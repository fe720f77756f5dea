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
from regard.models.checkpoint.tensors import TensorSource
from regard.models.gpt2 import GPT2, GPT2Config, read_sizes
from regard.nn import DecoderBlock, Embedding

_OFFSET = 2  # rows of the table of positions before that of the first token


@dataclass(frozen=True, kw_only=True)
class OPTConfig(GPT2Config):
    """The configuration of an OPT, and whether its linear maps have biases."""

    bias: bool
    norm_eps: float = 1e-5  # the file has no field for it

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="opt", do_layer_norm_before=True, _remove_final_layer_norm=False)
        reader.only(layer_norm_elementwise_affine=True)
        reader.without_effect("dropout", "activation_dropout", "layerdrop", "init_std")  # for training
        names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
        sizes = read_sizes(reader, *names, activation="relu")
        reader.choice("word_embed_proj_dim", None, [None, sizes["embed_dim"]])
        return cls(**sizes, hidden_dim=reader.count("ffn_dim"), bias=reader.flag("enable_bias", True))


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
