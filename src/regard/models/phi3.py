"""Phi-3: a Llama whose checkpoint has queries, keys and values as one tensor, and gate and up projection as another.

Abdin et al. (2024), "Phi-3 technical report", https://arxiv.org/abs/2404.14219. Phi-4 has the same architecture; its
mini model rotates three quarters of each head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from regard.models.build import fused_linears, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder_checkpoint import read_sizes
from regard.models.llama import Llama, LlamaConfig
from regard.nn import GatedFeedForward, Linear


class Phi3Config(LlamaConfig):
    """The configuration of a Phi-3."""

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="phi3", attention_bias=False, mlp_bias=False, lm_head_bias=False)
        reader.without_effect("resid_pdrop", "embd_pdrop")  # for training
        sizes = read_sizes(reader, norm_eps=1e-5, with_head_dim=False)
        window = reader.optional_count("sliding_window")
        return cls._rest(reader, sizes, windows=window, partial=1.0)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Phi3(Llama):
    """A Phi-3 with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = Phi3Config

    @classmethod
    def projections(cls, source: TensorSource, config: Any) -> list[Linear]:
        """Return the linear maps of queries, keys, values and output."""
        E, (q_width, kv_width) = config.embed_dim, config.widths
        qkv = fused_linears(source, "qkv_proj", E, (q_width, kv_width, kv_width), bias=False)
        return [*qkv, linear(source, "o_proj", q_width, E, bias=False)]

    @classmethod
    def mlp(cls, source: TensorSource, config: Any, layer: int) -> GatedFeedForward:  # noqa: ARG003
        """Return the feed-forward layer of a block."""
        return fused_mlp(source, config)


def fused_mlp(source: TensorSource, config: Any) -> GatedFeedForward:
    """Return the feed-forward layer of a block, whose gate and up projection are one tensor."""
    mlp, E, F = source.at("mlp"), config.embed_dim, config.hidden_dim
    gate, up = fused_linears(mlp, "gate_up_proj", E, (F, F), bias=False)
    return GatedFeedForward(gate, up, linear(mlp, "down_proj", F, E, bias=False), activation=config.activation)
