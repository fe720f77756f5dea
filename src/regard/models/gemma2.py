"""Gemma 2: windows in every second layer, scores and logits held below a cap, norms on both sides of each step.

Gemma Team (2024), "Gemma 2: Improving open language models at a practical size", https://arxiv.org/abs/2408.00118.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from regard.functional.recorder import NULL_RECORDER, Recorder
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
    read_windows,
)
from regard.nn import DecoderBlock, RMSNorm

_CAPS = (1e-30, 1e30)  # between which a cap is a number of either precision


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
        check_unsupported_flags(reader)
        sizes = read_sizes(reader, head_dim=256, num_kv_heads=4)
        layers, window = sizes["num_layers"], reader.optional_count("sliding_window", 4096)
        reader.choice("sliding_window_size", window, [window])
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
            score_softcap=_read_cap(reader, "attn_logit_softcapping", 50.0),
            logit_softcap=_read_cap(reader, "final_logit_softcapping", 30.0),
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Gemma2(Decoder):
    """A Gemma 2 with its tokenizer."""

    config: Gemma2Config

    def embed_tokens(self, ids: np.ndarray, positions: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:  # noqa: ARG002
        """Return the embeddings times √E, ``B T E``; taps ``token_embeddings`` and ``embeddings``."""
        tokens = trace("token_embeddings", self.token_embedding(ids), "B T E")
        embeddings: np.ndarray = trace("embeddings", tokens * tokens.dtype.type(math.sqrt(tokens.shape[-1])), "B T E")
        return embeddings

    def head(self, hidden: np.ndarray) -> np.ndarray:
        """Return a score for each entry of the vocabulary, ``... V``, held below the cap."""
        logits, cap = super().head(hidden), self.config.logit_softcap
        with np.errstate(over="ignore"):
            return logits if cap is None else cap * np.tanh(logits / cap)

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its files."""
        config = Gemma2Config.read(checkpoint.config())
        weights = load_decoder_tensors(checkpoint, config, _tensors, dtype=dtype)
        return cls(
            **common_fields(checkpoint, config, weights, name=name),
            blocks=tuple(_block(weights, f"blocks.{i}", config, window) for i, window in enumerate(config.windows)),
            final_norm=_norm(weights, "final_norm", config),
        )


def _read_cap(reader: ConfigReader, name: str, default: float) -> float | None:
    cap = reader.optional_positive(name, default)
    reader.require(cap is None or _CAPS[0] <= cap <= _CAPS[1], f"{name}={cap!r} is no number to hold others below")
    return cap


def _block(weights: dict[str, np.ndarray], at: str, config: Gemma2Config, window: int | None) -> DecoderBlock:
    return DecoderBlock(
        _norm(weights, f"{at}.attn_norm", config),
        causal_attention(
            weights,
            f"{at}.attn",
            num_heads=config.num_heads,
            window=window,
            scale=config.score_scale,
            softcap=config.score_softcap,
        ),
        _norm(weights, f"{at}.mlp_norm", config),
        gated_feed_forward(weights, f"{at}.mlp", config.activation),
        attn_post_norm=_norm(weights, f"{at}.attn_post_norm", config),
        mlp_post_norm=_norm(weights, f"{at}.mlp_post_norm", config),
    )


def _norm(weights: dict[str, np.ndarray], at: str, config: Gemma2Config) -> RMSNorm:
    """Return a norm; the file holds by how much its weight differs from 1."""
    return RMSNorm(1 + weights[f"{at}.weight"], config.norm_eps)


def _tensors(config: Gemma2Config, prefix: str) -> Iterator[Tensor]:
    """Yield every tensor but the head, under our name and under that of a Hugging Face checkpoint."""

    def of_block(ours: str, theirs: str) -> Iterator[Tensor]:
        for norm, stored in (
            ("attn_post_norm", "post_attention_layernorm"),
            ("mlp_norm", "pre_feedforward_layernorm"),
            ("mlp_post_norm", "post_feedforward_layernorm"),
        ):
            yield Tensor(f"{ours}.{norm}.weight", f"{theirs}.{stored}.weight", (config.embed_dim,))
        yield from gated_tensors(f"{ours}.mlp", f"{theirs}.mlp", config, bias=False)

    return decoder_tensors(config, prefix, of_block, qkv_bias=config.attn_bias, output_bias=config.attn_bias)
