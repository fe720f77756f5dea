"""Gemma 2: windows in every second layer, scores and logits held below a cap, norms on both sides of each step.

Gemma Team (2024), "Gemma 2: Improving open language models at a practical size", https://arxiv.org/abs/2408.00118.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from regard._recorder import SILENT, Recorder
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
    read_windows,
)
from regard.models._language import end_ids
from regard.models._weights import Tensor, linear_tensors
from regard.nn import CausalAttention, DecoderBlock, Embedding, GatedFeedForward, RMSNorm


@dataclass(frozen=True, kw_only=True)
class Gemma2Config:
    """The sizes of a Gemma 2: ``V``, ``E``, ``L``, ``H``, ``G``, ``D``, feed-forward width, positions; and its choices.

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
    attn_bias: bool
    score_scale: float
    score_softcap: float | None
    logit_softcap: float | None

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Take the fields of a Hugging Face config.json; anything unknown is an error."""
        reader.choice("model_type", "gemma2", ["gemma2"])
        reader.choice("use_bidirectional_attention", None, [None, False])
        reader.ignore("cache_implementation")
        read_bookkeeping(reader)
        sizes = read_sizes(reader, head_dim=256, num_kv_heads=4)
        layers, window = sizes["num_layers"], reader.optional_count("sliding_window", 4096)
        activation = reader.activation("hidden_activation", "gelu_pytorch_tanh")
        reader.choice("hidden_act", activation, [activation])
        config = cls(
            **sizes,
            activation=activation,
            rope=read_rope(reader, sizes),
            tied=reader.flag("tie_word_embeddings", True),
            windows=read_windows(reader, layers, window, [i % 2 == 0 for i in range(layers)]),
            attn_bias=reader.flag("attention_bias", False),
            score_scale=1 / math.sqrt(reader.positive("query_pre_attn_scalar", 256)),
            score_softcap=reader.optional_positive("attn_logit_softcapping", 50.0),
            logit_softcap=reader.optional_positive("final_logit_softcapping", 30.0),
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Gemma2(Decoder):
    """A Gemma 2 with its tokenizer."""

    config: Gemma2Config

    def embed_tokens(self, ids: np.ndarray, positions: np.ndarray, *, trace: Recorder = SILENT) -> np.ndarray:  # noqa: ARG002
        """Return the embeddings times √E, ``B T E``; taps ``token_embeddings`` and ``embeddings``."""
        tokens = trace("token_embeddings", self.token_embedding(ids), "B T E")
        embeddings: np.ndarray = trace("embeddings", tokens * tokens.dtype.type(math.sqrt(tokens.shape[-1])), "B T E")
        return embeddings

    def head(self, hidden: np.ndarray) -> np.ndarray:
        """Return a score for each entry of the vocabulary, ``... V``, held below the cap."""
        logits, cap = super().head(hidden), self.config.logit_softcap
        return logits if cap is None else cap * np.tanh(logits / cap)

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its files."""
        config = Gemma2Config.read(checkpoint.config())
        prefix = prefix_of(checkpoint.tensors(), "model.", "embed_tokens.weight")
        weights = take(
            checkpoint,
            _tensors(config, prefix),
            num_layers=config.num_layers,
            unused=("lm_head.weight",) if config.tied else (),
            dtype=dtype,
        )
        return cls(
            name=name,
            config=config,
            tokenizer=tokenizer_for(checkpoint, config.vocab_size),
            end_ids=end_ids(checkpoint),
            token_embedding=Embedding(weights["token_embedding.weight"]),
            blocks=tuple(_block(weights, f"blocks.{i}", config, window) for i, window in enumerate(config.windows)),
            final_norm=_norm(weights, "final_norm", config),
            lm_head=None if config.tied else linear(weights, "lm_head"),
        )


def _block(weights: dict[str, np.ndarray], at: str, config: Gemma2Config, window: int | None) -> DecoderBlock:
    return DecoderBlock(
        _norm(weights, f"{at}.attn_norm", config),
        CausalAttention(
            linear(weights, f"{at}.attn.q_proj"),
            linear(weights, f"{at}.attn.k_proj"),
            linear(weights, f"{at}.attn.v_proj"),
            linear(weights, f"{at}.attn.o_proj"),
            num_heads=config.num_heads,
            window=None if window is None else (window - 1, 0),
            scale=config.score_scale,
            softcap=config.score_softcap,
        ),
        _norm(weights, f"{at}.mlp_norm", config),
        GatedFeedForward(
            linear(weights, f"{at}.mlp.gate_proj"),
            linear(weights, f"{at}.mlp.up_proj"),
            linear(weights, f"{at}.mlp.down_proj"),
            activation=config.activation,
        ),
        attn_post_norm=_norm(weights, f"{at}.attn_post_norm", config),
        mlp_post_norm=_norm(weights, f"{at}.mlp_post_norm", config),
    )


def _norm(weights: dict[str, np.ndarray], at: str, config: Gemma2Config) -> RMSNorm:
    """Return a norm; the file holds by how much its weight differs from 1."""
    return RMSNorm(1 + weights[f"{at}.weight"], config.norm_eps)


def _tensors(config: Gemma2Config, prefix: str) -> Iterator[Tensor]:
    """Yield every tensor, under our name and under that of a Hugging Face checkpoint."""
    E, F = config.embed_dim, config.hidden_dim
    q_width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    yield Tensor("token_embedding.weight", f"{prefix}embed_tokens.weight", (config.vocab_size, E))
    for i in range(config.num_layers):
        ours, theirs = f"blocks.{i}", f"{prefix}layers.{i}"
        yield Tensor(f"{ours}.attn_norm.weight", f"{theirs}.input_layernorm.weight", (E,))
        attn, stored = f"{ours}.attn", f"{theirs}.self_attn"
        yield from linear_tensors(f"{attn}.q_proj", f"{stored}.q_proj", E, q_width, bias=config.attn_bias)
        yield from linear_tensors(f"{attn}.k_proj", f"{stored}.k_proj", E, kv_width, bias=config.attn_bias)
        yield from linear_tensors(f"{attn}.v_proj", f"{stored}.v_proj", E, kv_width, bias=config.attn_bias)
        yield from linear_tensors(f"{attn}.o_proj", f"{stored}.o_proj", q_width, E, bias=config.attn_bias)
        yield Tensor(f"{ours}.attn_post_norm.weight", f"{theirs}.post_attention_layernorm.weight", (E,))
        yield Tensor(f"{ours}.mlp_norm.weight", f"{theirs}.pre_feedforward_layernorm.weight", (E,))
        mlp, stored = f"{ours}.mlp", f"{theirs}.mlp"
        yield from linear_tensors(f"{mlp}.gate_proj", f"{stored}.gate_proj", E, F, bias=False)
        yield from linear_tensors(f"{mlp}.up_proj", f"{stored}.up_proj", E, F, bias=False)
        yield from linear_tensors(f"{mlp}.down_proj", f"{stored}.down_proj", F, E, bias=False)
        yield Tensor(f"{ours}.mlp_post_norm.weight", f"{theirs}.post_feedforward_layernorm.weight", (E,))
    yield Tensor("final_norm.weight", f"{prefix}norm.weight", (E,))
    if not config.tied:
        yield from linear_tensors("lm_head", "lm_head", E, config.vocab_size, bias=False)
