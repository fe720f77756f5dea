"""Layers from the arrays of a checkpoint, which `take` has given our names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from regard.nn import CausalAttention, EncoderBlock, FeedForward, GatedFeedForward, LayerNorm, Linear, SelfAttention


def linear(weights: Mapping[str, np.ndarray], at: str) -> Linear:
    """Return the linear map called `at`, with its bias where it has one."""
    return Linear(weights[f"{at}.weight"], weights.get(f"{at}.bias"))


def layer_norm(weights: Mapping[str, np.ndarray], at: str, eps: float) -> LayerNorm:
    """Return the norm called `at`."""
    return LayerNorm(weights[f"{at}.weight"], weights[f"{at}.bias"], eps)


def encoder_block(
    weights: Mapping[str, np.ndarray], at: str, *, num_heads: int, activation: str, norm_eps: float
) -> EncoderBlock:
    """Return the block called `at`, as the Transformer paper has it: a norm behind each residual sum."""
    return EncoderBlock(
        SelfAttention(
            linear(weights, f"{at}.attn.q_proj"),
            linear(weights, f"{at}.attn.k_proj"),
            linear(weights, f"{at}.attn.v_proj"),
            linear(weights, f"{at}.attn.o_proj"),
            num_heads=num_heads,
        ),
        layer_norm(weights, f"{at}.attn_norm", norm_eps),
        FeedForward(
            linear(weights, f"{at}.mlp.up_proj"), linear(weights, f"{at}.mlp.down_proj"), activation=activation
        ),
        layer_norm(weights, f"{at}.mlp_norm", norm_eps),
    )


def causal_attention(
    weights: Mapping[str, np.ndarray], at: str, *, num_heads: int, window: int | None = None, **choices: Any
) -> CausalAttention:
    """Return the attention called `at`; `window` is how many tokens each looks at, itself included."""
    return CausalAttention(
        *(linear(weights, f"{at}.{part}_proj") for part in "qkvo"),
        num_heads=num_heads,
        window=None if window is None else (window - 1, 0),
        **choices,
    )


def gated_feed_forward(weights: Mapping[str, np.ndarray], at: str, activation: str) -> GatedFeedForward:
    """Return the gated feed-forward layer called `at`."""
    return GatedFeedForward(
        *(linear(weights, f"{at}.{part}_proj") for part in ("gate", "up", "down")), activation=activation
    )
