"""Gemma 2: windows in every second layer, soft caps on scores and logits, norms before and after each sublayer.

Gemma Team (2024), "Gemma 2: Improving open language models at a practical size", https://arxiv.org/abs/2408.00118.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from regard.models import decoder_checkpoint as shared
from regard.models.build import rms_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.llama import Llama, LlamaConfig

_CAP_RANGE = (1e-30, 1e30)  # neither a cap nor logits / cap overflows in float32


@dataclass(frozen=True, kw_only=True)
class Gemma2Config(LlamaConfig):
    """The configuration of a Gemma 2, with the soft cap of its logits; None means no cap."""

    logit_softcap: float | None

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="gemma2")
        reader.choice("use_bidirectional_attention", None, [None, False])
        reader.without_effect("cache_implementation")
        sizes = shared.read_sizes(reader, head_dim=256, num_kv_heads=4)
        layers, window = sizes["num_layers"], reader.optional_count("sliding_window", 4096)
        reader.choice("sliding_window_size", window, [window])
        activation = reader.peek("hidden_activation") or "gelu_pytorch_tanh"
        reader.choice("hidden_act", activation, [activation])
        return cls._of_gemma(
            reader,
            sizes,
            windows=shared.read_windows(reader, layers, window, [i % 2 == 0 for i in range(layers)]),
            score_softcap=read_cap(reader, "attn_logit_softcapping", 50.0),
            logit_softcap=read_cap(reader, "final_logit_softcapping", 30.0),
        )

    @classmethod
    def _of_gemma(cls, reader: ConfigReader, sizes: dict[str, Any], **choices: Any) -> Self:
        """Read the fields that Gemma 2 and 3 have in common."""
        return cls._rest(
            reader,
            sizes,
            activation="gelu_pytorch_tanh",
            activation_name="hidden_activation",
            tied=True,
            bias=reader.flag("attention_bias", False),
            embedding_scale=math.sqrt(sizes["embed_dim"]),
            score_scale=1 / math.sqrt(reader.positive("query_pre_attn_scalar", 256)),
            **choices,
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Gemma2(Llama):
    """A Gemma 2 with its tokenizer; its forward pass is Llama's, with embeddings times √E."""

    config_type: ClassVar[type[LlamaConfig]] = Gemma2Config
    make_norm: ClassVar[Callable[..., Any]] = partial(rms_norm, offset=1.0)  # the checkpoint has weights less 1

    config: Gemma2Config

    def head(self, hidden: np.ndarray) -> np.ndarray:
        """Return the logits, ``... V``, below the soft cap: cap · tanh(logits / cap)."""
        logits, cap = super().head(hidden), self.config.logit_softcap
        with np.errstate(over="ignore"):
            return logits if cap is None else cap * np.tanh(logits / cap)

    @classmethod
    def block_norms(cls, config: Any) -> dict[str, str]:  # noqa: ARG003
        """Return the norms of a block, before and after each sublayer."""
        return {
            "attn_norm": "input_layernorm",
            "attn_post_norm": "post_attention_layernorm",
            "mlp_norm": "pre_feedforward_layernorm",
            "mlp_post_norm": "post_feedforward_layernorm",
        }


def read_cap(reader: ConfigReader, name: str, default: float | None) -> float | None:
    """Read a soft cap; None means no cap."""
    cap = reader.optional_positive(name, default)
    low, high = _CAP_RANGE
    reader.require(cap is None or low <= cap <= high, f"{name} must be a number from {low:g} to {high:g}, got {cap!r}")
    return cap
