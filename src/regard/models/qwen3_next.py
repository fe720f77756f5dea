"""Qwen3-Next: linear attention by the gated delta rule in three of four layers, and experts with a gated shared one.

Qwen Team (2025), https://qwen.ai/blog?id=qwen3-next. A layer of linear attention (Yang, Kautz and Hatamizadeh 2025,
"Gated delta networks", arXiv:2412.06464) has a state in place of keys, and no map; before it, queries, keys and values
go through a short convolution. Each fourth layer attends, as in Qwen3, and a gate multiplies what its heads have read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from regard import functional as F
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.build import GATED, causal_attention, fused_linears, gated_feed_forward, linear, rms_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder_checkpoint import read_sizes
from regard.models.llama import Llama, LlamaConfig
from regard.models.mixtral import MixtureOfExperts, experts, read_experts
from regard.models.qwen3_moe import read_sparse
from regard.nn import CausalAttention, CosSin, DecoderBlock, GatedFeedForward, Layer, LayerNorm, Linear, RMSNorm
from regard.nn.decoder import sigmoid
from regard.nn.layer import REQUIRED
from regard.nn.linear_state import LinearState

_UNIT_EPS = 1e-6  # under the root of the length of a query or key


@dataclass(frozen=True, kw_only=True)
class Qwen3NextConfig(LlamaConfig):
    """The configuration of a Qwen3-Next; `num_heads` and `head_dim` are those of the layers that attend."""

    num_experts: int
    experts_per_token: int
    expert_dim: int
    shared_dim: int  # of the expert of all tokens
    normalized: bool
    sparse: tuple[bool, ...]  # which layers have experts
    linear: tuple[bool, ...]  # which layers have linear attention
    num_linear_heads: int  # of values, and of states
    num_key_heads: int  # of queries and keys, each of several states
    linear_key_dim: int
    linear_value_dim: int
    conv_size: int  # tokens that the convolution reads

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="qwen3_next", use_sliding_window=False)  # the second in files of other Qwens too
        sizes = read_sizes(reader, head_dim=256, num_kv_heads=2)
        bias = reader.flag("attention_bias", False)
        heads, key_heads = reader.count("linear_num_value_heads", 32), reader.count("linear_num_key_heads", 16)
        reader.require(
            heads % key_heads == 0,
            f"linear_num_value_heads {heads} do not share linear_num_key_heads {key_heads} evenly",
        )
        return cls._rest(
            reader,
            sizes,
            partial=0.25,
            bias=bias,
            qk_norm=True,
            **read_experts(reader, 512, 10, "num_experts"),
            expert_dim=reader.count("moe_intermediate_size", 512),
            shared_dim=reader.count("shared_expert_intermediate_size", 512),
            normalized=reader.flag("norm_topk_prob", True),
            sparse=read_sparse(reader, sizes["num_layers"]),
            linear=_read_linear(reader, sizes["num_layers"]),
            num_linear_heads=heads,
            num_key_heads=key_heads,
            linear_key_dim=reader.count("linear_key_head_dim", 128),
            linear_value_dim=reader.count("linear_value_head_dim", 128),
            conv_size=reader.count("linear_conv_kernel_dim", 4),
        )


def _read_linear(reader: ConfigReader, num_layers: int) -> tuple[bool, ...]:
    """Read which layers have linear attention: ``layer_types``, or all but each ``full_attention_interval``-th."""
    interval, types = reader.count("full_attention_interval", 4), reader.take("layer_types")
    if types is None:
        return tuple((i + 1) % interval != 0 for i in range(num_layers))
    names = ("linear_attention", "full_attention")
    fits = isinstance(types, list) and len(types) == num_layers and all(kind in names for kind in types)
    reader.require(fits, f"layer_types must name {' or '.join(names)} for each of {num_layers} layers, got {types!r}")
    return tuple(kind == names[0] for kind in types) if fits else (False,) * num_layers


@dataclass(frozen=True, eq=False, repr=False)
class GatedDeltaNet(Layer):
    """Linear attention by the gated delta rule, of queries, keys and values after a short convolution.

    Each of H heads has a state, ``D Dv``, which decays before a token is written; G of queries and keys serve H / G
    states each. What a head has read is normed, and multiplied by the SiLU of a gate.

    Parameters
    ----------
    q_proj, k_proj : Linear, ``E (G D)``
    v_proj, gate_proj : Linear, ``E (H Dv)``
    beta_proj, decay_proj : Linear, ``E H``
    conv : array, ``C K``
        Of each feature of queries, keys and values, the weights of the K − 1 tokens before a token and of itself.
    log_rate, decay_bias : array, ``H``
        The decay is exp(−exp(log_rate) · softplus(decay_proj(x) + decay_bias)).
    norm : RMSNorm, ``Dv``
    o_proj : Linear, ``(H Dv) E``
    num_heads, num_key_heads : int
        ``H`` and ``G``.
    activation : str
        After the convolution.
    """

    q_proj: Linear
    k_proj: Linear = REQUIRED
    v_proj: Linear = REQUIRED
    gate_proj: Linear = REQUIRED
    beta_proj: Linear = REQUIRED
    decay_proj: Linear = REQUIRED
    conv: np.ndarray = REQUIRED
    log_rate: np.ndarray = REQUIRED
    decay_bias: np.ndarray = REQUIRED
    norm: RMSNorm = REQUIRED
    o_proj: Linear = REQUIRED
    num_heads: int = field(default=1, kw_only=True)
    num_key_heads: int = field(default=1, kw_only=True)
    activation: str = field(default="silu", kw_only=True)

    def __call__(
        self,
        x: np.ndarray,
        *,
        rotation: CosSin | None = None,  # noqa: ARG002
        cache: LinearState | None = None,
        mask: np.ndarray | None = None,
        trace: Recorder = NULL_RECORDER,
    ) -> tuple[np.ndarray, LinearState | None]:
        """Return what the heads have read, ``B T E``, for x ``B T E``, and the state after the last token.

        Parameters
        ----------
        x : array, ``B T E``
            Tokens at the positions after those of the state.
        rotation : optional
            Of no effect: positions are those of the recurrence.
        cache : LinearState, optional
            That of the tokens before x; without one there are none, and none is returned.
        mask : boolean array, ``B 1 1 S``, optional
            True where there is text. Padding, which is before it or after it, writes nothing before the text.
        trace : Recorder
            Records ``q`` and ``k`` (``... H T D``, of length 1), ``v``, ``decay`` (its logarithm) and ``beta``,
            ``... H T``, ``context``, ``... H T Dv``, after norm and gate, and ``output``.
        """
        if mask is not None:
            x = np.where(mask[:, 0, 0, -x.shape[-2] :, None], x, 0)
        context, after = self._read(x, cache, trace)
        gate = F.silu(F.split_heads(self.gate_proj(x), self.num_heads))
        context = trace("context", self.norm(context) * gate, "... H T Dv")
        return trace("output", self.o_proj(F.merge_heads(context)), "... T E"), after

    forward = __call__

    def _read(self, x: np.ndarray, cache: LinearState | None, trace: Recorder) -> tuple[np.ndarray, LinearState | None]:
        """Return what the heads have read, ``B H T Dv``, and the state; queries, keys and values are freed with it."""
        (q, k, v), inputs = self._convolved(x, cache)
        q, k = trace("q", self._unit(q), "... H T D"), trace("k", self._unit(k), "... H T D")
        v = trace("v", F.split_heads(v, self.num_heads), "... H T Dv")
        rate = _softplus(self.decay_proj(x) + self.decay_bias) * -np.exp(self.log_rate)
        decay = trace("decay", np.swapaxes(rate, -1, -2), "... H T")
        beta = trace("beta", np.swapaxes(sigmoid(self.beta_proj(x)), -1, -2), "... H T")
        state = None if cache is None else cache.state
        context, state = F.linear_attention(q, k, v, decay=decay[..., None], beta=beta, state=state)
        return context, None if cache is None else LinearState(cache.end + x.shape[-2], state, inputs)

    def _convolved(self, x: np.ndarray, cache: LinearState | None) -> tuple[list[np.ndarray], np.ndarray | None]:
        """Return queries, keys and values, ``B T C``, mixed over the last K tokens, and the last K − 1 for a state.

        One is computed after the other: together they would take more memory.
        """
        count, size, start = x.shape[-2], self.conv.shape[1], 0
        mixed, inputs = [], []
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            y = projection(x)
            features = slice(start, start := start + y.shape[-1])
            if cache is None or cache.inputs is None:
                before = np.zeros((*y.shape[:-2], size - 1, y.shape[-1]), y.dtype)
            else:
                before = cache.inputs[..., features]
            y = np.concatenate([before, y], axis=-2)
            total = y[..., :count, :] * self.conv[features, 0]
            for i in range(1, size):
                total = total + y[..., i : i + count, :] * self.conv[features, i]
            mixed.append(F.activation(self.activation)(total))
            if cache is not None:
                inputs.append(y[..., count:, :].copy())
        return mixed, np.concatenate(inputs, axis=-1) if inputs else None

    def _unit(self, x: np.ndarray) -> np.ndarray:
        """Return queries or keys of length 1 for each head, ``B H T D``."""
        heads = F.split_heads(x, self.num_key_heads)
        dim = heads.shape[-1]
        heads = F.rms_norm(heads, np.full(dim, dim**-0.5, heads.dtype), eps=_UNIT_EPS / dim)
        return np.repeat(heads, self.num_heads // self.num_key_heads, axis=-3)


def _softplus(x: np.ndarray) -> np.ndarray:
    """Return log(1 + exp(x)), in which nothing overflows."""
    y: np.ndarray = np.maximum(x, 0) + np.log(1 + np.exp(-np.abs(x)))
    return y


@dataclass(frozen=True, eq=False, repr=False)
class GatedSharedExperts(MixtureOfExperts):
    """A mixture of experts of which each token chooses a few, and an expert of all tokens, times a sigmoid.

    Parameters
    ----------
    shared : GatedFeedForward
    shared_gate : Linear, ``E 1``
    """

    shared: GatedFeedForward = field(default=REQUIRED, kw_only=True)
    shared_gate: Linear = field(default=REQUIRED, kw_only=True)

    def _mixed(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        y: np.ndarray = super()._mixed(x, weights) + sigmoid(self.shared_gate(x)) * self.shared(x)
        return y


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Qwen3Next(Llama):
    """A Qwen3-Next with its tokenizer; its forward pass is Llama's, with `GatedDeltaNet` in most blocks."""

    config_type: ClassVar[type[LlamaConfig]] = Qwen3NextConfig

    @classmethod
    def norm(cls, source: TensorSource, name: str, features: int, config: Any) -> LayerNorm | RMSNorm:
        """Return a norm of the stream, or of queries or keys, whose weight is stored minus 1."""
        return rms_norm(source, name, features, config.norm_eps, offset=1.0)

    @classmethod
    def block(cls, source: TensorSource, config: Any, layer: int) -> DecoderBlock:
        """Return the block of a layer."""
        if not config.linear[layer]:
            return super().block(source, config, layer)
        return DecoderBlock(
            cls.norm(source, "input_layernorm", config.embed_dim, config),
            None,  # type: ignore[arg-type]
            cls.norm(source, "post_attention_layernorm", config.embed_dim, config),
            cls.mlp(source, config, layer),
            linear_attn=_linear_attention(source.at("linear_attn"), config),
        )

    @classmethod
    def attention(cls, source: TensorSource, config: Any, layer: int) -> CausalAttention:  # noqa: ARG003
        """Return the attention of a block; the checkpoint has the rows of queries and of the gate head by head."""
        E, H, D, (width, kv_width) = config.embed_dim, config.num_heads, config.head_dim, config.widths
        bias = config.qkv_bias
        q, gate = fused_linears(source, "q_proj", E, (width, width), bias=bias, interleaved=D)
        k, v = (linear(source, name, E, kv_width, bias=bias) for name in ("k_proj", "v_proj"))
        return causal_attention(
            [q, k, v, linear(source, "o_proj", width, E, bias=config.output_bias)],
            num_heads=H,
            q_norm=cls.norm(source, "q_norm", D, config),
            k_norm=cls.norm(source, "k_norm", D, config),
            gate_proj=gate,
        )

    @classmethod
    def mlp(cls, source: TensorSource, config: Any, layer: int) -> Any:
        """Return the experts of a block, or its feed-forward layer."""
        if not config.sparse[layer]:
            return super().mlp(source, config, layer)
        mlp, E, activation = source.at("mlp"), config.embed_dim, config.activation
        return GatedSharedExperts(
            linear(mlp, "gate", E, config.num_experts, bias=False),
            experts(mlp, GATED, config, config.expert_dim),
            shared=gated_feed_forward(mlp.at("shared_expert"), GATED, E, config.shared_dim, activation),
            shared_gate=linear(mlp, "shared_expert_gate", E, 1, bias=False),
            experts_per_token=config.experts_per_token,
            normalized=config.normalized,
        )


def _linear_attention(source: TensorSource, config: Qwen3NextConfig) -> GatedDeltaNet:
    """Return linear attention, of which the checkpoint has the rows of all linear maps by the head of a key."""
    E, H, G = config.embed_dim, config.num_linear_heads, config.num_key_heads
    D, Dv, shared = config.linear_key_dim, config.linear_value_dim, H // G
    C, K = 2 * G * D + H * Dv, config.conv_size

    def parts(name: str, *widths: int) -> list[Linear]:
        """Return the linear maps of which a tensor has so many rows of each, for each head of a key."""
        total, starts = sum(widths), np.cumsum([0, *widths]).tolist()
        return [
            linear(source, name, E, G * size, bias=False, rows=_rows(G, total, start, size), stored=G * total)
            for start, size in zip(starts, widths, strict=False)
        ]

    q, k, v, gate = parts("in_proj_qkvz", D, D, shared * Dv, shared * Dv)
    beta, decay = parts("in_proj_ba", shared, shared)
    return GatedDeltaNet(
        q,
        k,
        v,
        gate,
        beta,
        decay,
        source.array("conv1d.weight", (C, 1, K), (C, K)),
        source.array("A_log", (H,)),
        source.array("dt_bias", (H,)),
        rms_norm(source, "norm", Dv, config.norm_eps),
        linear(source, "out_proj", H * Dv, E, bias=False),
        num_heads=H,
        num_key_heads=G,
        activation=config.activation,
    )


def _rows(groups: int, total: int, start: int, size: int) -> Callable[[], np.ndarray]:
    """Return what gives the rows from `start` on, `size` in each of some groups of `total` rows."""
    return lambda: (np.arange(groups)[:, None] * total + np.arange(start, start + size)).ravel()
