"""Qwen3-MoE: a Qwen3 with a mixture of experts in place of most feed-forward layers (Yang et al. 2025).

https://arxiv.org/abs/2505.09388.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from regard.models.build import GATED, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder_checkpoint import read_sizes
from regard.models.llama import Llama, LlamaConfig
from regard.models.mixtral import MixtureOfExperts, experts, read_experts


@dataclass(frozen=True, kw_only=True)
class Qwen3MoeConfig(LlamaConfig):
    """The configuration of a Qwen3-MoE; `sparse` says whether a layer has experts, of `expert_dim` features."""

    num_experts: int
    experts_per_token: int
    expert_dim: int
    normalized: bool
    sparse: tuple[bool, ...]

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="qwen3_moe")
        reader.without_effect("max_window_layers")  # no effect: with a window, all layers have it
        sizes = read_sizes(reader, num_kv_heads=4)
        slides, window = reader.flag("use_sliding_window", False), reader.optional_count("sliding_window", 4096)
        return cls._rest(
            reader,
            sizes,
            windows=window if slides else None,
            bias=reader.flag("attention_bias", False),
            qk_norm=True,
            **read_experts(reader, 128, 8),
            expert_dim=reader.count("moe_intermediate_size", 768),
            normalized=reader.flag("norm_topk_prob", False),
            sparse=read_sparse(reader, sizes["num_layers"]),
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Qwen3Moe(Llama):
    """A Qwen3-MoE with its tokenizer; its forward pass is Llama's, with `MixtureOfExperts` in most blocks."""

    config_type: ClassVar[type[LlamaConfig]] = Qwen3MoeConfig

    @classmethod
    def mlp(cls, source: TensorSource, config: Any, layer: int) -> Any:
        """Return the mixture of a block, or its feed-forward layer."""
        if not config.sparse[layer]:
            return super().mlp(source, config, layer)
        mlp = source.at("mlp")
        return MixtureOfExperts(
            linear(mlp, "gate", config.embed_dim, config.num_experts, bias=False),
            experts(mlp, GATED, config, config.expert_dim),
            experts_per_token=config.experts_per_token,
            normalized=config.normalized,
        )


def read_sparse(reader: ConfigReader, num_layers: int) -> tuple[bool, ...]:
    """Read which layers have experts: each ``decoder_sparse_step``-th but those in ``mlp_only_layers``."""
    step, without = reader.count("decoder_sparse_step", 1), reader.take("mlp_only_layers") or []
    fits = isinstance(without, list) and all(type(layer) is int for layer in without)
    reader.require(fits, f"mlp_only_layers must be a list of numbers of layers, got {without!r}")
    return tuple((i + 1) % step == 0 and i not in (without if fits else []) for i in range(num_layers))
