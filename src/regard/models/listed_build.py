"""Of families whose tensors are listed: build layers from the loaded tensors of a checkpoint, by their dotted names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from regard import nn


def linear(weights: Mapping[str, np.ndarray], at: str) -> nn.Linear:
    """Return the linear map `at`, with its bias if it has one."""
    return nn.Linear(weights[f"{at}.weight"], weights.get(f"{at}.bias"))


def layer_norm(weights: Mapping[str, np.ndarray], at: str, eps: float) -> nn.LayerNorm:
    """Return the layer norm `at`."""
    return nn.LayerNorm(weights[f"{at}.weight"], weights[f"{at}.bias"], eps)


def rms_norm(weights: Mapping[str, np.ndarray], at: str, eps: float) -> nn.RMSNorm:
    """Return the RMS norm `at`."""
    return nn.RMSNorm(weights[f"{at}.weight"], eps)


def projections(weights: Mapping[str, np.ndarray], at: str) -> list[nn.Linear]:
    """Return the linear maps of the queries, keys, values and output of the attention `at`."""
    return [linear(weights, f"{at}.{part}_proj") for part in "qkvo"]


def encoder_blocks(
    weights: Mapping[str, np.ndarray], prefix: str, config: Any, norm_eps: float, *, norm_first: bool = False
) -> tuple[nn.EncoderBlock, ...]:
    """Return the blocks of an encoder of the Transformer paper, with a norm after each residual sum, or before each."""
    return tuple(
        nn.EncoderBlock(
            nn.SelfAttention(*projections(weights, f"{at}.attn"), num_heads=config.num_heads),
            layer_norm(weights, f"{at}.attn_norm", norm_eps),
            feed_forward(weights, f"{at}.mlp", config.activation),
            layer_norm(weights, f"{at}.mlp_norm", norm_eps),
            norm_first=norm_first,
        )
        for at in (f"{prefix}blocks.{i}" for i in range(config.num_layers))
    )


def causal_attention(
    weights: Mapping[str, np.ndarray], at: str, *, num_heads: int, window: int | None = None, **options: Any
) -> nn.CausalAttention:
    """Return the attention `at`; `window` is the number of tokens each attends to, itself included."""
    return nn.CausalAttention(
        *projections(weights, at),
        num_heads=num_heads,
        window=None if window is None else (window - 1, 0),
        **options,
    )


def feed_forward(weights: Mapping[str, np.ndarray], at: str, activation: str) -> nn.FeedForward:
    """Return the feed-forward layer `at`."""
    return nn.FeedForward(*(linear(weights, f"{at}.{part}_proj") for part in ("up", "down")), activation=activation)


def gated_feed_forward(weights: Mapping[str, np.ndarray], at: str, activation: str) -> nn.GatedFeedForward:
    """Return the gated feed-forward layer `at`."""
    return nn.GatedFeedForward(
        *(linear(weights, f"{at}.{part}_proj") for part in ("gate", "up", "down")), activation=activation
    )
