"""gpt-oss: attention sinks, a sliding window in every second layer, and a mixture of experts (OpenAI 2025).

"gpt-oss-120b & gpt-oss-20b model card", https://arxiv.org/abs/2508.10925. In place of one
feed-forward layer, a router chooses a few of many for each token.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from regard import functional as F
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models import decoder_checkpoint as shared
from regard.models.build import linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.llama import Llama, LlamaConfig
from regard.models.rope import read_rope
from regard.nn import CausalAttention, Layer, Linear

_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


@dataclass(frozen=True, kw_only=True)
class GptOssConfig(LlamaConfig):
    """The sizes of a gpt-oss; `hidden_dim` is that of an expert."""

    num_experts: int
    experts_per_token: int
    gate_slope: float
    gate_limit: float

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="gpt_oss", hidden_act="silu")
        reader.put("hidden_act", "silu")
        quantization = reader.take("quantization_config")
        if quantization is not None:
            method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
            reader.require(
                False,
                f"its weights are quantised ({method}), which is not supported; dequantise them with transformers: "
                f"from_pretrained(..., quantization_config=Mxfp4Config(dequantize=True)), then save_pretrained",
            )
        reader.without_effect("router_aux_loss_coef", "output_router_logits")  # for training
        reader.without_effect("initial_context_length")  # repeats rope_parameters
        sizes = shared.read_sizes(reader, head_dim=64, num_kv_heads=8, norm_eps=1e-5)
        layers, window = sizes["num_layers"], reader.optional_count("sliding_window", 128)
        num_experts, per_token = reader.count("num_local_experts"), reader.count("num_experts_per_tok")
        reader.choice("experts_per_token", per_token, [per_token])
        reader.require(
            per_token <= num_experts, f"num_experts_per_tok {per_token} is more than the {num_experts} experts"
        )
        return cls._rest(
            reader,
            sizes,
            rope=read_rope(reader, sizes, base=150_000.0, scaling=_YARN),
            windows=shared.read_windows(reader, layers, window, [i % 2 == 0 for i in range(layers)]),
            bias=reader.flag("attention_bias", True),
            num_experts=num_experts,
            experts_per_token=per_token,
            gate_slope=reader.positive("swiglu_alpha", 1.702),
            gate_limit=reader.positive("swiglu_limit", 7.0),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Experts(Layer):
    """A mixture of feed-forward layers, the experts, of which each token goes through a few.

    Parameters
    ----------
    router : Linear, ``E X``
        The logits of the ``X`` experts.
    gate_up_weight : array, ``X E 2F``
        For each expert: the columns of gate and up projection, interleaved.
    gate_up_bias : array, ``X 2F``
    down_weight : array, ``X F E``
    down_bias : array, ``X E``
    experts_per_token : int
    slope : float
        Of the gate: gate / (1 + exp(−slope · gate)).
    limit : float
        Where gate and up projection are clipped.
    """

    router: Linear
    gate_up_weight: np.ndarray
    gate_up_bias: np.ndarray
    down_weight: np.ndarray
    down_bias: np.ndarray
    experts_per_token: int = field(kw_only=True)
    slope: float = field(kw_only=True)
    limit: float = field(kw_only=True)

    def __call__(self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return ``... T E`` for x ``... T E``; taps ``experts``, the routing weights ``... T X``, and ``output``."""
        weights = trace("experts", F.top_k_softmax(self.router(x), self.experts_per_token), "... T X")
        arrays = (self.gate_up_weight, self.gate_up_bias, self.down_weight, self.down_bias)
        return trace("output", F.experts(x, weights, *arrays, slope=self.slope, limit=self.limit), "... T E")

    forward = __call__


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GptOss(Llama):
    """A gpt-oss with its tokenizer; its forward pass is Llama's, with `Experts` in the blocks."""

    config_type: ClassVar[Any] = GptOssConfig

    config: GptOssConfig

    @classmethod
    def attention(cls, source: TensorSource, config: Any, layer: int) -> CausalAttention:
        """Return the attention of a block, with its sinks."""
        attn = super().attention(source, config, layer)
        return replace(attn, sinks=source.array("sinks", (config.num_heads,)))

    @classmethod
    def mlp(cls, source: TensorSource, config: GptOssConfig, layer: int) -> Experts:  # noqa: ARG003
        """Return the mixture of a block."""
        mlp, E, F, X = source.at("mlp"), config.embed_dim, config.hidden_dim, config.num_experts
        return Experts(
            linear(mlp, "router", E, X),
            mlp.array("experts.gate_up_proj", (X, E, 2 * F)),
            mlp.array("experts.gate_up_proj_bias", (X, 2 * F)),
            mlp.array("experts.down_proj", (X, F, E)),
            mlp.array("experts.down_proj_bias", (X, E)),
            experts_per_token=config.experts_per_token,
            slope=config.gate_slope,
            limit=config.gate_limit,
        )
