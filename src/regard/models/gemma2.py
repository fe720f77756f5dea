"""Gemma 2: windows in every second layer, soft caps on scores and logits, norms before and after each sublayer.

Gemma Team (2024), "Gemma 2: Improving open language models at a practical size", https://arxiv.org/abs/2408.00118.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.functional.recorder import Recorder
from regard.models import decoder_checkpoint as shared
from regard.models.build import (
    GATED,
    PROJECTIONS,
    causal_attention,
    embedding,
    gated_feed_forward,
    projections,
    rms_norm,
)
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder import Caches, Decoder
from regard.models.rope import read_rope
from regard.nn import CosSin, DecoderBlock, RMSNorm
from regard.nn.layers import traced_norm

_CAP_RANGE = (1e-30, 1e30)  # neither a cap nor logits / cap overflows in float32


@dataclass(frozen=True, kw_only=True)
class Gemma2Config(shared.DecoderConfig):
    """The sizes of a Gemma 2, its activation, and its scale and soft caps; None means no cap."""

    activation: str
    attn_bias: bool
    score_scale: float
    score_softcap: float | None
    logit_softcap: float | None
    qk_norm: bool = False

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="gemma2")
        reader.choice("use_bidirectional_attention", None, [None, False])
        reader.without_effect("cache_implementation")
        shared.check_unsupported_flags(reader)
        sizes = shared.read_sizes(reader, head_dim=256, num_kv_heads=4)
        layers, window = sizes["num_layers"], reader.optional_count("sliding_window", 4096)
        reader.choice("sliding_window_size", window, [window])
        activation = reader.activation("hidden_activation", "gelu_pytorch_tanh")
        reader.choice("hidden_act", activation, [activation])
        config = cls(
            **sizes,
            activation=activation,
            rope=read_rope(reader, sizes),
            tied=reader.flag("tie_word_embeddings", True),
            windows=shared.read_windows(reader, layers, window, [i % 2 == 0 for i in range(layers)]),
            attn_bias=reader.flag("attention_bias", False),
            score_scale=1 / math.sqrt(reader.positive("query_pre_attn_scalar", 256)),
            score_softcap=read_cap(reader, "attn_logit_softcapping", 50.0),
            logit_softcap=read_cap(reader, "final_logit_softcapping", 30.0),
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Gemma2(Decoder):
    """A Gemma 2 with its tokenizer."""

    config_type: ClassVar[type[Gemma2Config]] = Gemma2Config  # a relative has its own

    config: Gemma2Config

    def forward_with_cache(
        self, ids: np.ndarray, positions: np.ndarray, caches: Caches, *, mask: np.ndarray | None, trace: Recorder
    ) -> tuple[np.ndarray, Caches]:
        """Embeddings times √E, blocks, final norm; `head` makes logits of the result."""
        x = trace("token_embeddings", self.token_embedding(ids), "B T E")
        x = trace("embeddings", x * x.dtype.type(self.embedding_scale), "B T E")
        rotation = self.rotation(positions, x.dtype)
        x, caches = self.run_blocks(x, caches, rotation=rotation, mask=mask, trace=trace)
        return trace("final_norm", traced_norm(self.final_norm, x, trace, "final_norm"), "B T E"), caches

    @property
    def embedding_scale(self) -> float:
        """√E."""
        return math.sqrt(self.config.embed_dim)

    def rotation(self, positions: np.ndarray, dtype: Any) -> CosSin | list[CosSin | None]:
        """Return the rotation of queries and keys at some positions, of all blocks or of each."""
        return self.config.rope(positions, dtype)

    def head(self, hidden: np.ndarray) -> np.ndarray:
        """Return the logits, ``... V``, below the soft cap: cap · tanh(logits / cap)."""
        logits, cap = super().head(hidden), self.config.logit_softcap
        with np.errstate(over="ignore"):
            return logits if cap is None else cap * np.tanh(logits / cap)

    @classmethod
    def layers(cls, source: TensorSource, config: Any) -> dict[str, Any]:
        """Return the fields that are layers, except the head."""
        return {
            "token_embedding": embedding(source, cls.embedding, config.vocab_size, config.embed_dim, in_blocks=True),
            "blocks": tuple(_block(source.at(f"layers.{i}"), config, i) for i in range(config.num_layers)),
            "final_norm": _norm(source, "norm", config.embed_dim, config),
        }


def _norm(source: TensorSource, name: str, features: int, config: Gemma2Config) -> RMSNorm:
    return rms_norm(source, name, features, config.norm_eps, offset=1.0)  # which the checkpoint leaves out


def _block(source: TensorSource, config: Gemma2Config, layer: int) -> DecoderBlock:
    attn, E, D, bias = source.at("self_attn"), config.embed_dim, config.head_dim, config.attn_bias
    return DecoderBlock(
        attn_norm=_norm(source, "input_layernorm", E, config),
        attn=causal_attention(
            projections(attn, PROJECTIONS, E, config.widths, bias=bias, output_bias=bias),
            num_heads=config.num_heads,
            window=config.windows[layer],
            scale=config.score_scale,
            softcap=config.score_softcap,
            q_norm=_norm(attn, "q_norm", D, config) if config.qk_norm else None,
            k_norm=_norm(attn, "k_norm", D, config) if config.qk_norm else None,
        ),
        attn_post_norm=_norm(source, "post_attention_layernorm", E, config),
        mlp_norm=_norm(source, "pre_feedforward_layernorm", E, config),
        mlp_post_norm=_norm(source, "post_feedforward_layernorm", E, config),
        mlp=gated_feed_forward(source.at("mlp"), GATED, E, config.hidden_dim, config.activation),
    )


def read_cap(reader: ConfigReader, name: str, default: float | None) -> float | None:
    """Read a soft cap; None means no cap."""
    cap = reader.optional_positive(name, default)
    low, high = _CAP_RANGE
    reader.require(cap is None or low <= cap <= high, f"{name} must be a number from {low:g} to {high:g}, got {cap!r}")
    return cap
