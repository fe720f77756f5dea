"""Gemma 2: windows in every second layer, soft caps on scores and logits, norms before and after each sublayer.

Gemma Team (2024), "Gemma 2: Improving open language models at a practical size", https://arxiv.org/abs/2408.00118.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from regard.models import decoder_checkpoint as shared
from regard.models.build import rms_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.llama import Llama, LlamaConfig
from regard.models.rope import read_rope
from regard.nn import CausalAttention, DecoderBlock, RMSNorm

_CAP_RANGE = (1e-30, 1e30)  # neither a cap nor logits / cap overflows in float32


@dataclass(frozen=True, kw_only=True)
class Gemma2Config(LlamaConfig):
    """The sizes of a Gemma 2, its activation, and its scale and soft caps; None means no cap."""

    score_scale: float
    score_softcap: float | None
    logit_softcap: float | None

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
        bias = reader.flag("attention_bias", False)
        config = cls(
            **sizes,
            activation=activation,
            rope=read_rope(reader, sizes),
            tied=reader.flag("tie_word_embeddings", True),
            windows=shared.read_windows(reader, layers, window, [i % 2 == 0 for i in range(layers)]),
            qkv_bias=bias,
            output_bias=bias,
            score_scale=1 / math.sqrt(reader.positive("query_pre_attn_scalar", 256)),
            score_softcap=read_cap(reader, "attn_logit_softcapping", 50.0),
            logit_softcap=read_cap(reader, "final_logit_softcapping", 30.0),
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Gemma2(Llama):
    """A Gemma 2 with its tokenizer; its forward pass is Llama's, with embeddings times √E."""

    config_type: ClassVar[type[LlamaConfig]] = Gemma2Config

    config: Gemma2Config

    @property
    def embedding_scale(self) -> float:
        """√E."""
        return math.sqrt(self.config.embed_dim)

    def head(self, hidden: np.ndarray) -> np.ndarray:
        """Return the logits, ``... V``, below the soft cap: cap · tanh(logits / cap)."""
        logits, cap = super().head(hidden), self.config.logit_softcap
        with np.errstate(over="ignore"):
            return logits if cap is None else cap * np.tanh(logits / cap)

    @classmethod
    def block(cls, source: TensorSource, config: Any, layer: int) -> DecoderBlock:
        """Return the block of a layer."""
        norms = {
            "attn_norm": "input_layernorm",
            "attn_post_norm": "post_attention_layernorm",
            "mlp_norm": "pre_feedforward_layernorm",
            "mlp_post_norm": "post_feedforward_layernorm",
        }
        parts: dict[str, Any] = {
            field: cls.norm(source, name, config.embed_dim, config) for field, name in norms.items()
        }
        attn = cls.attention(source.at("self_attn"), config, layer)
        return DecoderBlock(**parts, attn=attn, mlp=cls.mlp(source, config, layer))

    @classmethod
    def attention(cls, source: TensorSource, config: Any, layer: int) -> CausalAttention:
        """Return the attention of a block."""
        attn = super().attention(source, config, layer)
        return replace(attn, scale=config.score_scale, softcap=config.score_softcap)

    @classmethod
    def norm(cls, source: TensorSource, name: str, features: int, config: Any) -> RMSNorm:
        """Return a norm, whose weight the checkpoint has less 1."""
        return rms_norm(source, name, features, config.norm_eps, offset=1.0)


def read_cap(reader: ConfigReader, name: str, default: float | None) -> float | None:
    """Read a soft cap; None means no cap."""
    cap = reader.optional_positive(name, default)
    low, high = _CAP_RANGE
    reader.require(cap is None or low <= cap <= high, f"{name} must be a number from {low:g} to {high:g}, got {cap!r}")
    return cap
