"""gpt-oss: a sink for each head's attention, windows in every second layer, and experts (OpenAI 2025).

"gpt-oss-120b & gpt-oss-20b model card", https://arxiv.org/abs/2508.10925. Each token is given to a few of many
feed-forward layers, the experts, which a router chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from regard.functional import softmax
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.build import causal_attention, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.load import Checkpoint
from regard.models.checkpoint.tensors import Tensor, linear_tensors
from regard.models.decoder import (
    Decoder,
    Rope,
    check_unsupported_flags,
    common_fields,
    decoder_tensors,
    load_decoder_tensors,
    read_rope,
    read_sizes,
    read_windows,
)
from regard.nn import DecoderBlock, Layer, Linear, RMSNorm

_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


@dataclass(frozen=True, kw_only=True)
class GptOssConfig:
    """The sizes of a gpt-oss: ``V``, ``E``, ``L``, ``H``, ``G``, ``D``, an expert's width, positions; and its choices.

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
    norm_eps: float
    rope: Rope
    tied: bool
    windows: tuple[int | None, ...]
    attn_bias: bool
    num_experts: int
    experts_per_token: int
    gate_slope: float
    gate_limit: float

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Take the fields of a Hugging Face config.json; anything unknown is an error."""
        reader.choice("model_type", "gpt_oss", ["gpt_oss"])
        packed = reader.take("quantization_config")
        if packed is not None:
            method = packed.get("quant_method") if isinstance(packed, dict) else packed
            reader.require(
                False,
                f"its weights are packed ({method}), which regard does not unpack: transformers does, with "
                f"from_pretrained(..., quantization_config=Mxfp4Config(dequantize=True)) and save_pretrained",
            )
        reader.ignore("router_aux_loss_coef", "output_router_logits")  # for training
        reader.ignore("initial_context_length")  # what rope_parameters say too
        reader.choice("hidden_act", "silu", ["silu"])
        check_unsupported_flags(reader)
        sizes = read_sizes(reader, head_dim=64, num_kv_heads=8, norm_eps=1e-5)
        layers, window = sizes["num_layers"], reader.optional_count("sliding_window", 128)
        experts, chosen = reader.count("num_local_experts"), reader.count("num_experts_per_tok")
        reader.choice("experts_per_token", chosen, [chosen])
        reader.require(chosen <= experts, f"{chosen} experts for each token are more than the {experts} there are")
        config = cls(
            **sizes,
            rope=read_rope(reader, sizes, base=150_000.0, scaling=_YARN),
            tied=reader.flag("tie_word_embeddings", False),
            windows=read_windows(reader, layers, window, [i % 2 == 0 for i in range(layers)]),
            attn_bias=reader.flag("attention_bias", True),
            num_experts=experts,
            experts_per_token=chosen,
            gate_slope=reader.positive("swiglu_alpha", 1.702),
            gate_limit=reader.positive("swiglu_limit", 7.0),
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False)
class Experts(Layer):
    """Feed-forward layers side by side, of which each token is given to a few.

    Parameters
    ----------
    router : Linear, ``E X``
        A score for each of the ``X`` experts.
    gate_up_weight : array, ``X E 2F``
        Of each expert: the columns of its gate and of what goes through, in turns.
    gate_up_bias : array, ``X 2F``
    down_weight : array, ``X F E``
    down_bias : array, ``X E``
    chosen : int
        How many experts a token is given to.
    slope : float
        Of the gate: gate / (1 + exp(−slope · gate)).
    limit : float
        What gate and values are clipped at.
    """

    router: Linear
    gate_up_weight: np.ndarray
    gate_up_bias: np.ndarray
    down_weight: np.ndarray
    down_bias: np.ndarray
    chosen: int = field(kw_only=True)
    slope: float = field(kw_only=True)
    limit: float = field(kw_only=True)

    def __call__(self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return ``... T E`` for x ``... T E``; taps ``experts``, the share of each, ``... T X``, and ``output``."""
        shares = trace("experts", self.shares(x), "... T X")
        output = np.zeros_like(x)
        for expert in np.flatnonzero(shares.reshape(-1, shares.shape[-1]).any(0)):
            tokens = shares[..., expert] > 0
            output[tokens] += self._expert(int(expert), x[tokens]) * shares[tokens, expert, None]
        recorded: np.ndarray = trace("output", output, "... T E")
        return recorded

    forward = __call__

    def shares(self, x: np.ndarray) -> np.ndarray:
        """Return how much of each expert each token gets, ``... T X``: the softmax of the largest scores."""
        scores = self.router(x)
        largest = np.argpartition(scores, -self.chosen, axis=-1)[..., -self.chosen :]
        shares = np.zeros_like(scores)
        np.put_along_axis(shares, largest, softmax(np.take_along_axis(scores, largest, -1)), -1)
        return shares

    def _expert(self, number: int, x: np.ndarray) -> np.ndarray:
        both = x @ self.gate_up_weight[number] + self.gate_up_bias[number]
        gate = np.minimum(both[..., 0::2], self.limit)
        up = np.clip(both[..., 1::2], -self.limit, self.limit)
        with np.errstate(over="ignore"):
            hidden = (up + 1) * (gate / (1 + np.exp(-self.slope * gate)))
        expert: np.ndarray = hidden @ self.down_weight[number] + self.down_bias[number]
        return expert


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GptOss(Decoder):
    """A gpt-oss with its tokenizer."""

    config: GptOssConfig

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its files."""
        config = GptOssConfig.read(checkpoint.config())
        weights = load_decoder_tensors(checkpoint, config, _tensors, dtype=dtype)
        return cls(
            **common_fields(checkpoint, config, weights, name=name),
            blocks=tuple(_block(weights, f"blocks.{i}", config, window) for i, window in enumerate(config.windows)),
            final_norm=RMSNorm(weights["final_norm.weight"], config.norm_eps),
        )


def _block(weights: dict[str, np.ndarray], at: str, config: GptOssConfig, window: int | None) -> DecoderBlock:
    return DecoderBlock(
        RMSNorm(weights[f"{at}.attn_norm.weight"], config.norm_eps),
        causal_attention(
            weights,
            f"{at}.attn",
            num_heads=config.num_heads,
            window=window,
            sinks=weights[f"{at}.attn.sinks"],
        ),
        RMSNorm(weights[f"{at}.mlp_norm.weight"], config.norm_eps),
        Experts(
            linear(weights, f"{at}.mlp.router"),
            weights[f"{at}.mlp.gate_up_weight"],
            weights[f"{at}.mlp.gate_up_bias"],
            weights[f"{at}.mlp.down_weight"],
            weights[f"{at}.mlp.down_bias"],
            chosen=config.experts_per_token,
            slope=config.gate_slope,
            limit=config.gate_limit,
        ),
    )


def _tensors(config: GptOssConfig, prefix: str) -> Iterator[Tensor]:
    """Yield every tensor but the head, under our name and under that of a Hugging Face checkpoint."""
    E, F, X = config.embed_dim, config.hidden_dim, config.num_experts

    def of_block(ours: str, theirs: str) -> Iterator[Tensor]:
        yield Tensor(f"{ours}.attn.sinks", f"{theirs}.self_attn.sinks", (config.num_heads,))
        yield Tensor(f"{ours}.mlp_norm.weight", f"{theirs}.post_attention_layernorm.weight", (E,))
        mlp, stored = f"{ours}.mlp", f"{theirs}.mlp"
        yield from linear_tensors(f"{mlp}.router", f"{stored}.router", E, X, bias=True)
        yield Tensor(f"{mlp}.gate_up_weight", f"{stored}.experts.gate_up_proj", (X, E, 2 * F))
        yield Tensor(f"{mlp}.gate_up_bias", f"{stored}.experts.gate_up_proj_bias", (X, 2 * F))
        yield Tensor(f"{mlp}.down_weight", f"{stored}.experts.down_proj", (X, F, E))
        yield Tensor(f"{mlp}.down_bias", f"{stored}.experts.down_proj_bias", (X, E))

    return decoder_tensors(config, prefix, of_block, qkv_bias=config.attn_bias, output_bias=config.attn_bias)
