"""Mixtral: a Llama with mixtures of experts as feed-forward layers (Jiang et al. 2024, arXiv:2401.04088)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from regard import functional as F
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.functional.variable import plain
from regard.models.build import gated_feed_forward, linear
from regard.models.checkpoint.config import MAX_EXPERTS, ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder_checkpoint import read_sizes
from regard.models.llama import Llama, LlamaConfig
from regard.nn import GatedFeedForward, Layer, Linear


@dataclass(frozen=True, kw_only=True)
class MixtralConfig(LlamaConfig):
    """The configuration of a Mixtral; `hidden_dim` is that of an expert."""

    num_experts: int
    experts_per_token: int

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="mixtral")
        sizes = read_sizes(reader, num_kv_heads=8, norm_eps=1e-5)
        window = reader.optional_count("sliding_window")
        experts = read_experts(reader, 8, 2)
        return cls._rest(reader, sizes, windows=window, rope_base=1e6, **experts)


def read_experts(
    reader: ConfigReader,
    num_experts: int | None,
    per_token: int | None,
    name: str = "num_local_experts",
    per_token_name: str = "num_experts_per_tok",
) -> dict[str, Any]:
    """Read how many experts there are, a field `name`, and how many for each token; the numbers are the defaults."""
    reader.without_effect("router_aux_loss_coef", "router_jitter_noise", "output_router_logits")  # for training
    experts, top_k = reader.count(name, num_experts), reader.count(per_token_name, per_token)
    reader.require(experts <= MAX_EXPERTS, f"{name} {experts} is more than the maximum of {MAX_EXPERTS}")
    reader.require(top_k <= experts, f"{per_token_name} {top_k} is more than the {experts} experts")
    return {"num_experts": experts, "experts_per_token": top_k}


@dataclass(frozen=True, eq=False, repr=False)
class MixtureOfExperts(Layer):
    """Several gated feed-forward layers, the experts, of which each token goes through a few.

    Parameters
    ----------
    router : Linear, ``E X``
        The logits of the ``X`` experts.
    experts : tuple of GatedFeedForward
    experts_per_token : int
    normalized : bool
        Whether the softmax is that of the logits chosen; otherwise it is that of all, of which the others are left out.
    """

    router: Linear
    experts: tuple[GatedFeedForward, ...]
    experts_per_token: int = field(kw_only=True)
    normalized: bool = field(default=True, kw_only=True)

    def __call__(self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return ``... T E`` for x ``... T E``; taps ``experts``, the routing weights ``... T X``, and ``output``."""
        logits = self.router(x)
        weights = F.top_k_softmax(logits, self.experts_per_token)
        if not self.normalized:
            weights = F.softmax(logits) * (plain(weights) > 0)
        weights = trace("experts", weights, "... T X")
        return trace("output", self._mixed(x, weights), "... T E")

    forward = __call__

    def _mixed(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return Σ weight × expert(x), of each token over the experts with a weight other than 0."""
        shape = x.shape
        x, weights = x.reshape(-1, shape[-1]), weights.reshape(-1, weights.shape[-1])
        is_used = plain(weights) != 0  # N X
        rows, places, start = [], np.full(is_used.shape, -1), 0
        for i in np.flatnonzero(is_used.any(0)):
            tokens = np.flatnonzero(is_used[:, i])
            rows.append(self._expert(int(i), x[tokens], weights[tokens, i][:, None]))
            places[tokens, i] = start + np.arange(len(tokens))
            start += len(tokens)
        rows.append(np.zeros((1, shape[-1]), x.dtype))  # for a token with fewer experts than others: place −1
        rows_of_token = -np.sort(-places, axis=1)[:, : int(is_used.sum(1).max(initial=0))]
        mixed: np.ndarray = np.concatenate(rows)[rows_of_token].sum(1).reshape(shape)
        return mixed

    def _expert(self, i: int, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return what an expert makes of some tokens, ``N E``, with their weights for it, ``N 1``."""
        written: np.ndarray = self.experts[i](x) * weights
        return written


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Mixtral(Llama):
    """A Mixtral with its tokenizer; its forward pass is Llama's, with `MixtureOfExperts` in the blocks."""

    config_type: ClassVar[type[LlamaConfig]] = MixtralConfig

    @classmethod
    def mlp(cls, source: TensorSource, config: Any, layer: int) -> MixtureOfExperts:  # noqa: ARG003
        """Return the mixture of a block."""
        mlp = source.at("block_sparse_moe")
        return MixtureOfExperts(
            linear(mlp, "gate", config.embed_dim, config.num_experts, bias=False),
            experts(mlp, ("w1", "w3", "w2"), config, config.hidden_dim),
            experts_per_token=config.experts_per_token,
        )


def experts(
    source: TensorSource, names: tuple[str, str, str], config: Any, hidden_dim: int
) -> tuple[GatedFeedForward, ...]:
    """Return the experts of a mixture; `names` are those of their linear maps gate, up and down."""
    sources = (source.at(f"experts.{i}") for i in range(config.num_experts))
    return tuple(gated_feed_forward(at, names, config.embed_dim, hidden_dim, config.activation) for at in sources)
