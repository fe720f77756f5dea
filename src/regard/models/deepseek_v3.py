"""DeepSeek-V3: a Llama with latent attention, and experts with a shared one (DeepSeek-AI 2024, arXiv:2412.19437).

Keys and values of all heads are read from a short vector of each token, its *latent* (arXiv:2405.04434). Positions are
in a further part of each key, which all heads share. The cache has the latent and that part, and no keys or values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard.functional.arrays import concat
from regard.functional.recorder import NULL_RECORDER, Recorder, optional_tap
from regard.functional.variable import plain
from regard.models.build import GATED, gated_feed_forward, linear, rms_norm
from regard.models.checkpoint.config import MAX_EXPERTS, ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder_checkpoint import read_sizes
from regard.models.llama import Llama, LlamaConfig
from regard.models.mixtral import MixtureOfExperts, experts
from regard.nn import CausalAttention, CosSin, GatedFeedForward, Linear, RMSNorm
from regard.nn.decoder import sigmoid
from regard.nn.kv_cache import KVCache
from regard.nn.layer import REQUIRED

_LATENT_EPS = 1e-6  # of the norms of latents, whatever the configuration says of the others


@dataclass(frozen=True, kw_only=True)
class DeepseekV3Config(LlamaConfig):
    """The configuration of a DeepSeek-V3."""

    rotated_dim: int  # the last of the head_dim features of queries and keys
    value_dim: int
    latent_dim: int
    query_latent_dim: int | None
    interleaved: bool  # whether neighbours are rotated together, in the checkpoint
    attn_bias: bool
    num_dense: int  # layers without experts, the first
    num_experts: int
    experts_per_token: int
    expert_dim: int
    num_shared: int  # experts of all tokens, which are one layer
    num_groups: int
    groups_per_token: int
    normalized: bool
    routed_scale: float
    num_next: int  # further layers, which predict further tokens and are not read

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="deepseek_v3", scoring_func="sigmoid", topk_method="noaux_tc", moe_layer_freq=1)
        reader.without_effect("pretraining_tp", "ep_size", "seq_aux", "aux_loss_alpha")  # how it was trained
        reader.without_effect("output_router_logits", "router_aux_loss_coef")
        rotated, fixed = reader.count("qk_rope_head_dim", 64), reader.count("qk_nope_head_dim", 128)
        for name, value in (("head_dim", rotated), ("qk_head_dim", rotated + fixed)):
            reader.only(**{name: value})  # they follow from the others
        reader.put("head_dim", rotated)
        sizes = read_sizes(reader)
        heads = sizes["num_heads"]
        reader.require(
            sizes["num_kv_heads"] == heads,
            f"num_key_value_heads {sizes['num_kv_heads']} must be {heads}: each head has keys of its own",
        )
        config = cls._rest(
            reader,
            sizes,
            rotated_dim=rotated,
            value_dim=reader.count("v_head_dim", 128),
            query_latent_dim=reader.optional_count("q_lora_rank", 1536),
            latent_dim=reader.count("kv_lora_rank", 512),
            interleaved=reader.flag("rope_interleave", True),
            attn_bias=reader.flag("attention_bias", False),
            num_dense=reader.width("first_k_dense_replace", 3),
            expert_dim=reader.count("moe_intermediate_size", 2048),
            num_shared=reader.count("n_shared_experts", 1),
            normalized=reader.flag("norm_topk_prob", True),
            routed_scale=reader.positive("routed_scaling_factor", 2.5),
            num_next=reader.width("num_nextn_predict_layers", 1),
            **_read_experts(reader),
        )
        return replace(config, head_dim=rotated + fixed)


def _read_experts(reader: ConfigReader) -> dict[str, Any]:
    experts, top_k = reader.count("n_routed_experts", 256), reader.count("num_experts_per_tok", 8)
    groups, chosen_groups = reader.count("n_group", 8), reader.count("topk_group", 4)
    reader.require(experts <= MAX_EXPERTS, f"n_routed_experts {experts} is more than the maximum of {MAX_EXPERTS}")
    reader.require(
        experts % groups == 0 and experts // groups > 1,
        f"n_routed_experts {experts} do not split into {groups} groups (n_group) of two or more",
    )
    reader.require(chosen_groups <= groups, f"topk_group {chosen_groups} is more than the {groups} groups of n_group")
    available = experts // groups * chosen_groups
    reader.require(top_k <= available, f"num_experts_per_tok {top_k} is more than the {available} of topk_group")
    return {
        "num_experts": experts,
        "experts_per_token": top_k,
        "num_groups": groups,
        "groups_per_token": chosen_groups,
    }


@dataclass(frozen=True, eq=False, repr=False)
class LatentAttention(CausalAttention):
    """Attention whose keys and values are read from the latent of each token; its cache holds latents.

    `q_proj` reads the latent of the query if there is one, else x; `k_proj`, ``C (H N)``, and `v_proj`, ``C (H Dv)``,
    the latent of keys and values.

    Parameters
    ----------
    kv_latent : Linear, ``E C``
    kv_latent_norm : RMSNorm
    rotated_k : Linear, ``E R``
        The part of each key that is rotated, the last R of its D = N + R features, the same in all heads.
    q_latent, q_latent_norm : Linear and RMSNorm, optional
    """

    kv_latent: Linear = field(default=REQUIRED, kw_only=True)
    kv_latent_norm: RMSNorm = field(default=REQUIRED, kw_only=True)
    rotated_k: Linear = field(default=REQUIRED, kw_only=True)
    q_latent: Linear | None = field(default=None, kw_only=True)
    q_latent_norm: RMSNorm | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Nothing is checked: the shapes are those that the family has asked of the checkpoint."""

    def packed_together(self) -> tuple[Linear, ...]:
        """Return none: queries are read from another latent than keys and values."""
        return ()

    def rotated_pairs(self, width: int) -> np.ndarray:
        """Return which of the last features of a head are rotated together, ``P 2``."""
        return self.head_dim - width + np.array(F.rotary_pairs(width))

    @property
    def num_kv_heads(self) -> int:
        """``H``: each head has keys and values of its own."""
        return self.num_heads

    def __call__(
        self,
        x: np.ndarray,
        *,
        rotation: CosSin | None = None,
        cache: KVCache | None = None,
        mask: np.ndarray | None = None,
        trace: Recorder = NULL_RECORDER,
    ) -> tuple[np.ndarray, KVCache | None]:
        """Return the contextual vectors of x, ``... T E``, and the cache, as `CausalAttention` does.

        Taps ``kv_latent``, ``... T C``, and those of `CausalAttention`. Keys and values that are edited have no latent,
        and are cached themselves.
        """
        if rotation is None:
            raise RegardError("latent attention needs the rotation of its positions")
        latent = trace("kv_latent", self.kv_latent_norm(self.kv_latent(x)), "... T C")
        rotated = F.apply_rotary(self.rotated_k(x)[..., None, :, :], *rotation)[..., 0, :, :]
        q = self._queries(x, rotation, trace)
        keeps_latents = not trace.plan("k", "v").edited
        if cache is not None and keeps_latents:
            cache = cache.append(latent, rotated)
            if trace is NULL_RECORDER and len(cache) > x.shape[-2]:
                return self._attend_latents(q, cache, mask), cache
            latent, rotated = cache.k, cache.v
        k, v = self._keys_and_values(latent, rotated)
        q, k, v = trace("q", q, "... H T D"), trace("k", k, "... G S D"), trace("v", v, "... G S Dv")
        if cache is not None and not keeps_latents:
            cache = cache.append(k, v)
            k, v = cache.k, cache.v
        return self.attend(q, k, v, mask=mask, causal=True, scale=self.scale, trace=trace), cache

    forward = __call__

    def _queries(self, x: np.ndarray, rotation: CosSin, trace: Recorder) -> np.ndarray:
        """Return the queries, ``... H T D``, the last R features rotated."""
        if self.q_latent is not None and self.q_latent_norm is not None:
            x = self.q_latent_norm(self.q_latent(x))
        q = optional_tap(trace, "projected_q", F.split_heads(self.q_proj(x), self.num_heads), "... H T D")
        fixed = q.shape[-1] - self.rotated_k.weight.shape[1]
        rotated: np.ndarray = concat([q[..., :fixed], F.apply_rotary(q[..., fixed:], *rotation)], axis=-1)
        return rotated

    def _keys_and_values(self, latent: np.ndarray, rotated: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the keys, ``... H S D``, and values, ``... H S Dv``, of latents ``... S C`` and rotated parts."""
        k, v = (F.split_heads(project(latent), self.num_heads) for project in (self.k_proj, self.v_proj))
        shared = np.broadcast_to(rotated[..., None, :, :], (*k.shape[:-1], rotated.shape[-1]))
        return concat([k, shared], axis=-1), v

    def _attend_latents(self, q: np.ndarray, cache: KVCache, mask: np.ndarray | None) -> np.ndarray:
        """Return ``... T E`` by attention of all heads to the latents themselves, in which no key or value is made.

        For a head, q · (latent W_k) is (q W_kᵀ) · latent, and its context that of latents, times W_v.
        """
        latent, rotated = cache.k[..., None, :, :], cache.v[..., None, :, :]  # ... 1 S C, ... 1 S R
        fixed, width = q.shape[-1] - rotated.shape[-1], latent.shape[-1]
        k, v = (
            np.asarray(project.weight).reshape(width, self.num_heads, -1).swapaxes(0, 1)  # H C N, H C Dv
            for project in (self.k_proj, self.v_proj)
        )
        q = concat([q[..., :fixed] @ k.mT, q[..., fixed:]], axis=-1)  # ... H T C+R
        scale = 1 / math.sqrt(self.head_dim) if self.scale is None else self.scale
        context = F.attention(q, concat([latent, rotated], axis=-1), latent, mask=mask, causal=True, scale=scale)
        return self.project_out(F.merge_heads(context @ v))


@dataclass(frozen=True, eq=False, repr=False)
class SharedAndRoutedExperts(MixtureOfExperts):
    """A mixture of experts of which each token chooses a few, and an expert of all tokens.

    The weights are sigmoids. A token chooses groups first, by the sum of the two largest sigmoids of each, then the
    experts in them.

    Parameters
    ----------
    shared : GatedFeedForward
    correction : array, ``X``
        Added to the sigmoids for the choice alone, so that all experts are used.
    num_groups, groups_per_token : int
    routed_scale : float
        The factor of the experts that are chosen.
    """

    shared: GatedFeedForward = field(default=REQUIRED, kw_only=True)
    correction: np.ndarray = field(default=REQUIRED, kw_only=True)
    num_groups: int = field(default=1, kw_only=True)
    groups_per_token: int = field(default=1, kw_only=True)
    routed_scale: float = field(default=1.0, kw_only=True)

    def __call__(self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return ``... T E`` for x ``... T E``; taps ``experts``, the routing weights ``... T X``, and ``output``."""
        shares = sigmoid(self.router(x))
        weights = shares * self._chosen(plain(shares))
        if self.normalized:
            weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
        weights = trace("experts", weights * self.routed_scale, "... T X")
        return trace("output", self._mixed(x, weights) + self.shared(x), "... T E")

    forward = __call__

    def _chosen(self, shares: np.ndarray) -> np.ndarray:
        """Return which experts a token chooses, ``... T X``."""
        shares = shares + plain(self.correction)
        groups = shares.reshape(*shares.shape[:-1], self.num_groups, -1)
        is_open = largest(np.sort(groups, axis=-1)[..., -2:].sum(-1), self.groups_per_token)
        return largest(np.where(is_open[..., None], groups, -np.inf).reshape(shares.shape), self.experts_per_token)


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Return which of the last axis are the largest; of equal ones the first."""
    is_largest = np.zeros(values.shape, bool)
    np.put_along_axis(is_largest, np.argsort(-values, axis=-1, kind="stable")[..., :count], True, axis=-1)
    return is_largest


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DeepseekV3(Llama):
    """A DeepSeek-V3 with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = DeepseekV3Config

    @classmethod
    def attention(cls, source: TensorSource, config: Any, layer: int) -> LatentAttention:  # noqa: ARG003
        """Return the attention of a block."""
        return _attention(source, config)

    @classmethod
    def mlp(cls, source: TensorSource, config: Any, layer: int) -> Any:
        """Return the experts of a block, or its feed-forward layer."""
        if layer < config.num_dense:
            return super().mlp(source, config, layer)
        mlp, E, X = source.at("mlp"), config.embed_dim, config.num_experts
        hidden_dim = config.expert_dim * config.num_shared
        return SharedAndRoutedExperts(
            linear(mlp, "gate", E, X, bias=False),
            experts(mlp, GATED, config, config.expert_dim),
            correction=mlp.array("gate.e_score_correction_bias", (X,), buffer=True),
            shared=gated_feed_forward(mlp.at("shared_experts"), GATED, E, hidden_dim, config.activation),
            experts_per_token=config.experts_per_token,
            normalized=config.normalized,
            num_groups=config.num_groups,
            groups_per_token=config.groups_per_token,
            routed_scale=config.routed_scale,
        )

    @classmethod
    def unused(cls, config: Any) -> tuple[str, ...]:
        """Return the prefixes of layers that predict further tokens."""
        return tuple(f"layers.{config.num_layers + i}." for i in range(min(config.num_next, 99)))


def _scale(config: DeepseekV3Config) -> float:
    """Return the scale of the scores, which YaRN makes larger for longer texts."""
    scaling = config.rope.scaling or {}
    factor, share = scaling.get("factor", 1.0), scaling.get("mscale_all_dim", 0.0)
    magnitude = 0.1 * share * math.log(factor) + 1 if share and factor > 1 else 1.0
    return magnitude * magnitude / math.sqrt(config.head_dim)


def _attention(source: TensorSource, config: DeepseekV3Config) -> LatentAttention:
    """Return a latent attention.

    In the checkpoint a linear map makes the latent and the rotated part of keys, and another the keys and values of a
    head together. Features that are rotated together may be neighbours there; here they are halves.
    """
    E, H, C, R = config.embed_dim, config.num_heads, config.latent_dim, config.rotated_dim
    D, Dv, N = config.head_dim, config.value_dim, config.head_dim - config.rotated_dim
    bias, q_latent_dim = config.attn_bias, config.query_latent_dim

    def halves() -> np.ndarray:
        return np.arange(R).reshape(-1, 2).T.ravel() if config.interleaved else np.arange(R)

    def of_heads(size: int, features: np.ndarray) -> np.ndarray:
        rows: np.ndarray = size * np.arange(H)[:, None] + features
        return rows.ravel()

    def q_rows() -> np.ndarray:
        return of_heads(D, np.concatenate([np.arange(N), N + halves()]))

    def k_rows() -> np.ndarray:
        return of_heads(N + Dv, np.arange(N))

    def v_rows() -> np.ndarray:
        return of_heads(N + Dv, N + np.arange(Dv))

    q_latent, q_latent_norm, q_name = None, None, "q_proj"
    if q_latent_dim is not None:
        q_latent, q_name = linear(source, "q_a_proj", E, q_latent_dim, bias=bias), "q_b_proj"
        q_latent_norm = rms_norm(source, "q_a_layernorm", q_latent_dim, _LATENT_EPS)
    q_inputs, rows = q_latent_dim or E, q_rows if config.interleaved else None
    down, up = "kv_a_proj_with_mqa", "kv_b_proj"
    return LatentAttention(
        q_proj=linear(source, q_name, q_inputs, H * D, bias=False, rows=rows),
        q_latent=q_latent,
        q_latent_norm=q_latent_norm,
        kv_latent=linear(source, down, E, C, bias=bias, rows=slice(0, C), stored=C + R),
        rotated_k=linear(source, down, E, R, bias=bias, rows=lambda: C + halves(), stored=C + R),
        kv_latent_norm=rms_norm(source, "kv_a_layernorm", C, _LATENT_EPS),
        k_proj=linear(source, up, C, H * N, bias=False, rows=k_rows, stored=H * (N + Dv)),
        v_proj=linear(source, up, C, H * Dv, bias=False, rows=v_rows, stored=H * (N + Dv)),
        o_proj=linear(source, "o_proj", H * Dv, E, bias=bias),
        num_heads=H,
        scale=_scale(config),
    )
