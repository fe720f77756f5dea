"""Llama: a decoder with rotating positions, gated feed-forward and root-mean-square norms (Touvron et al. 2023).

https://arxiv.org/abs/2302.13971; key/value heads shared by several query heads, https://arxiv.org/abs/2307.09288; the
rotation stretched to longer texts, https://arxiv.org/abs/2407.21783. Mistral and Qwen have its shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.models.build import causal_attention, gated_feed_forward
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.load import Checkpoint
from regard.models.checkpoint.tensors import Tensor
from regard.models.decoder import (
    Decoder,
    Rope,
    check_unsupported_flags,
    common_fields,
    decoder_tensors,
    gated_tensors,
    load_decoder_tensors,
    read_rope,
    read_sizes,
)
from regard.nn import DecoderBlock, RMSNorm


@dataclass(frozen=True, kw_only=True)
class LlamaConfig:
    """The sizes of a Llama: ``V``, ``E``, ``L``, ``H``, ``G``, ``D``, feed-forward width, positions; and its choices.

    `windows` tells for each layer how many tokens it looks at, itself included; None is all.
    """

    vocab_size: int
    embed_dim: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_dim: int
    max_positions: int
    activation: str
    norm_eps: float
    rope: Rope
    tied: bool
    windows: tuple[int | None, ...]
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Take the fields of a Hugging Face config.json; anything unknown is an error."""
        reader.choice("model_type", "llama", ["llama"])
        reader.ignore("pretraining_tp")  # how matrices were cut for training
        reader.choice("is_llama_config", True, [True])
        reader.choice("rope_interleaved", False, [False])
        bias = reader.flag("attention_bias", False)
        sizes = read_sizes(reader)
        return cls._finish(
            reader,
            sizes,
            windows=(None,) * sizes["num_layers"],
            qkv_bias=bias,
            output_bias=bias,
            mlp_bias=reader.flag("mlp_bias", False),
        )

    @classmethod
    def _finish(cls, reader: ConfigReader, sizes: dict[str, Any], **choices: Any) -> Self:
        """Take what all of Llama's shape have in common."""
        check_unsupported_flags(reader)
        config = cls(
            **sizes,
            **choices,
            activation=reader.activation("hidden_act", "silu"),
            rope=read_rope(reader, sizes),
            tied=reader.flag("tie_word_embeddings", False),
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Llama(Decoder):
    """A Llama with its tokenizer."""

    configuration: ClassVar[type[LlamaConfig]] = LlamaConfig

    config: LlamaConfig

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its files."""
        config = cls.configuration.read(checkpoint.config())
        weights = load_decoder_tensors(
            checkpoint, config, _tensors, unused=lambda prefix: _angles(config, prefix), dtype=dtype
        )
        return cls(
            **common_fields(checkpoint, config, weights, name=name),
            blocks=tuple(_block(weights, f"blocks.{i}", config, window) for i, window in enumerate(config.windows)),
            final_norm=RMSNorm(weights["final_norm.weight"], config.norm_eps),
        )


def _block(weights: dict[str, np.ndarray], at: str, config: LlamaConfig, window: int | None) -> DecoderBlock:
    def norm(name: str) -> RMSNorm:
        return RMSNorm(weights[f"{at}.{name}.weight"], config.norm_eps)

    return DecoderBlock(
        norm("attn_norm"),
        causal_attention(
            weights,
            f"{at}.attn",
            num_heads=config.num_heads,
            window=window,
            q_norm=norm("attn.q_norm") if config.qk_norm else None,
            k_norm=norm("attn.k_norm") if config.qk_norm else None,
        ),
        norm("mlp_norm"),
        gated_feed_forward(weights, f"{at}.mlp", config.activation),
    )


def _tensors(config: LlamaConfig, prefix: str) -> Iterator[Tensor]:
    """Yield every tensor but the head, under our name and under that of a Hugging Face checkpoint."""

    def of_block(ours: str, theirs: str) -> Iterator[Tensor]:
        if config.qk_norm:
            yield Tensor(f"{ours}.attn.q_norm.weight", f"{theirs}.self_attn.q_norm.weight", (config.head_dim,))
            yield Tensor(f"{ours}.attn.k_norm.weight", f"{theirs}.self_attn.k_norm.weight", (config.head_dim,))
        yield Tensor(f"{ours}.mlp_norm.weight", f"{theirs}.post_attention_layernorm.weight", (config.embed_dim,))
        yield from gated_tensors(f"{ours}.mlp", f"{theirs}.mlp", config, bias=config.mlp_bias)

    return decoder_tensors(config, prefix, of_block, qkv_bias=config.qkv_bias, output_bias=config.output_bias)


def _angles(config: LlamaConfig, prefix: str) -> tuple[str, ...]:
    """Return the names of the angles that older files keep."""
    return tuple(f"{prefix}layers.{i}.self_attn.rotary_emb.inv_freq" for i in range(config.num_layers))
