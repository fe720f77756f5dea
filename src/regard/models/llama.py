"""Llama: a decoder with rotating positions, gated feed-forward and root-mean-square norms (Touvron et al. 2023).

https://arxiv.org/abs/2302.13971; key/value heads shared by several query heads, https://arxiv.org/abs/2307.09288; the
rotation stretched to longer texts, https://arxiv.org/abs/2407.21783. Mistral and Qwen have its shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.models._build import linear
from regard.models._checkpoint import Checkpoint, take, tokenizer_for
from regard.models._config import ConfigReader
from regard.models._decoder import (
    Decoder,
    Rope,
    prefix_of,
    read_bookkeeping,
    read_rope,
    read_sizes,
)
from regard.models._language import end_ids
from regard.models._weights import Tensor, linear_tensors
from regard.nn import CausalAttention, DecoderBlock, Embedding, GatedFeedForward, RMSNorm


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
        reader.ignore(
            "pretraining_tp", "transformers.js_config"
        )  # how matrices were cut for training, and are in a browser
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
        read_bookkeeping(reader)
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
        prefix = prefix_of(checkpoint.tensors(), "model.", "embed_tokens.weight")
        weights = take(
            checkpoint,
            _tensors(config, prefix),
            num_layers=config.num_layers,
            unused=_unused(config, prefix),
            dtype=dtype,
        )
        return cls(
            name=name,
            config=config,
            tokenizer=tokenizer_for(checkpoint, config.vocab_size),
            end_ids=end_ids(checkpoint),
            token_embedding=Embedding(weights["token_embedding.weight"]),
            blocks=tuple(_block(weights, f"blocks.{i}", config, window) for i, window in enumerate(config.windows)),
            final_norm=RMSNorm(weights["final_norm.weight"], config.norm_eps),
            lm_head=None if config.tied else linear(weights, "lm_head"),
        )


def _block(weights: dict[str, np.ndarray], at: str, config: LlamaConfig, window: int | None) -> DecoderBlock:
    def norm(name: str) -> RMSNorm:
        return RMSNorm(weights[f"{at}.{name}.weight"], config.norm_eps)

    return DecoderBlock(
        norm("attn_norm"),
        CausalAttention(
            linear(weights, f"{at}.attn.q_proj"),
            linear(weights, f"{at}.attn.k_proj"),
            linear(weights, f"{at}.attn.v_proj"),
            linear(weights, f"{at}.attn.o_proj"),
            num_heads=config.num_heads,
            q_norm=norm("attn.q_norm") if config.qk_norm else None,
            k_norm=norm("attn.k_norm") if config.qk_norm else None,
            window=None if window is None else (window - 1, 0),
        ),
        norm("mlp_norm"),
        GatedFeedForward(
            linear(weights, f"{at}.mlp.gate_proj"),
            linear(weights, f"{at}.mlp.up_proj"),
            linear(weights, f"{at}.mlp.down_proj"),
            activation=config.activation,
        ),
    )


def _tensors(config: LlamaConfig, prefix: str) -> Iterator[Tensor]:
    """Yield every tensor, under our name and under that of a Hugging Face checkpoint."""
    E, F, D = config.embed_dim, config.hidden_dim, config.head_dim
    q_width, kv_width = config.num_heads * D, config.num_kv_heads * D
    yield Tensor("token_embedding.weight", f"{prefix}embed_tokens.weight", (config.vocab_size, E))
    for i in range(config.num_layers):
        ours, theirs = f"blocks.{i}", f"{prefix}layers.{i}"
        yield Tensor(f"{ours}.attn_norm.weight", f"{theirs}.input_layernorm.weight", (E,))
        attn, stored = f"{ours}.attn", f"{theirs}.self_attn"
        yield from linear_tensors(f"{attn}.q_proj", f"{stored}.q_proj", E, q_width, bias=config.qkv_bias)
        yield from linear_tensors(f"{attn}.k_proj", f"{stored}.k_proj", E, kv_width, bias=config.qkv_bias)
        yield from linear_tensors(f"{attn}.v_proj", f"{stored}.v_proj", E, kv_width, bias=config.qkv_bias)
        yield from linear_tensors(f"{attn}.o_proj", f"{stored}.o_proj", q_width, E, bias=config.output_bias)
        if config.qk_norm:
            yield Tensor(f"{attn}.q_norm.weight", f"{stored}.q_norm.weight", (D,))
            yield Tensor(f"{attn}.k_norm.weight", f"{stored}.k_norm.weight", (D,))
        yield Tensor(f"{ours}.mlp_norm.weight", f"{theirs}.post_attention_layernorm.weight", (E,))
        mlp, stored = f"{ours}.mlp", f"{theirs}.mlp"
        yield from linear_tensors(f"{mlp}.gate_proj", f"{stored}.gate_proj", E, F, bias=config.mlp_bias)
        yield from linear_tensors(f"{mlp}.up_proj", f"{stored}.up_proj", E, F, bias=config.mlp_bias)
        yield from linear_tensors(f"{mlp}.down_proj", f"{stored}.down_proj", F, E, bias=config.mlp_bias)
    yield Tensor("final_norm.weight", f"{prefix}norm.weight", (E,))
    if not config.tied:
        yield from linear_tensors("lm_head", "lm_head", E, config.vocab_size, bias=False)


def _unused(config: LlamaConfig, prefix: str) -> tuple[str, ...]:
    """Return what may be there besides: angles that older files keep, and the embeddings once more."""
    angles = (f"{prefix}layers.{i}.self_attn.rotary_emb.inv_freq" for i in range(config.num_layers))
    return (*angles, *(("lm_head.weight",) if config.tied else ()))
