"""DeepSeek-V3: a Llama with latent attention, and experts with a shared one (DeepSeek-AI 2024, arXiv:2412.19437).

Keys and values of all heads are read from a short vector of each token, its *latent* (arXiv:2405.04434). Positions are
in a further part of each key, which all heads share. The cache has the latent and that part, and no keys or values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard.functional.arrays import concat
from regard.functional.recorder import NULL_RECORDER, Recorder, optional_tap
from regard.functional.variable import plain
from regard.models.build import gated_feed_forward, linear, rms_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSpec, linear_tensors
from regard.models.decoder_checkpoint import gated_tensors, read_sizes
from regard.models.llama import Llama, LlamaConfig
from regard.models.mixtral import MAX_EXPERTS, MixtureOfExperts, mixture_tensors
from regard.nn import CausalAttention, CosSin, DecoderBlock, GatedFeedForward, Linear, RMSNorm
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
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="deepseek_v3", scoring_func="sigmoid", topk_method="noaux_tc", moe_layer_freq=1)
        reader.ignore("pretraining_tp", "ep_size", "seq_aux", "aux_loss_alpha")  # how it was trained
        reader.ignore("output_router_logits", "router_aux_loss_coef")
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
        config = cls._finish(
            reader,
            sizes,
            windows=(None,) * sizes["num_layers"],
            rotated_dim=rotated,
            value_dim=reader.count("v_head_dim", 128),
            query_latent_dim=reader.optional_count("q_lora_rank", 1536),
            latent_dim=reader.count("kv_lora_rank", 512),
            interleaved=reader.flag("rope_interleave", True),
            attn_bias=reader.flag("attention_bias", False),
            num_dense=_width(reader, "first_k_dense_replace", 3),
            expert_dim=reader.count("moe_intermediate_size", 2048),
            num_shared=reader.count("n_shared_experts", 1),
            normalized=reader.flag("norm_topk_prob", True),
            routed_scale=reader.positive("routed_scaling_factor", 2.5),
            num_next=_width(reader, "num_nextn_predict_layers", 1),
            **_read_experts(reader),
        )
        return replace(config, head_dim=rotated + fixed)


def _width(reader: ConfigReader, name: str, default: int) -> int:
    return default if reader.peek(name) is None else reader.width(name)


def _read_experts(reader: ConfigReader) -> dict[str, Any]:
    experts, chosen = reader.count("n_routed_experts", 256), reader.count("num_experts_per_tok", 8)
    groups, chosen_groups = reader.count("n_group", 8), reader.count("topk_group", 4)
    reader.require(experts <= MAX_EXPERTS, f"n_routed_experts {experts} is more than the maximum of {MAX_EXPERTS}")
    reader.require(
        experts % groups == 0 and experts // groups > 1,
        f"n_routed_experts {experts} do not split into {groups} groups (n_group) of two or more",
    )
    reader.require(chosen_groups <= groups, f"topk_group {chosen_groups} is more than the {groups} groups of n_group")
    available = experts // groups * chosen_groups
    reader.require(chosen <= available, f"num_experts_per_tok {chosen} is more than the {available} of topk_group")
    return {
        "num_experts": experts,
        "experts_per_token": chosen,
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
        with np.errstate(over="ignore"):
            shares = 1 / (1 + np.exp(-self.router(x)))
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
        is_open = _largest(np.sort(groups, axis=-1)[..., -2:].sum(-1), self.groups_per_token)
        return _largest(np.where(is_open[..., None], groups, -np.inf).reshape(shares.shape), self.experts_per_token)


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Return which of the last axis are the largest; of equal ones the first."""
    found = np.zeros(values.shape, bool)
    np.put_along_axis(found, np.argsort(-values, axis=-1, kind="stable")[..., :count], True, axis=-1)
    return found


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DeepseekV3(Llama):
    """A DeepSeek-V3 with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = DeepseekV3Config
    rotates_last: ClassVar[bool] = True

    @classmethod
    def block(cls, weights: dict[str, np.ndarray], layer: int, config: Any) -> DecoderBlock:
        """Return the block of a layer."""
        at, eps = f"blocks.{layer}", config.norm_eps
        has_query_latent = config.query_latent_dim is not None
        attn = LatentAttention(
            *(linear(weights, f"{at}.attn.{part}_proj") for part in "qkvo"),
            num_heads=config.num_heads,
            scale=_scale(config),
            kv_latent=linear(weights, f"{at}.attn.kv_latent"),
            kv_latent_norm=rms_norm(weights, f"{at}.attn.kv_latent_norm", _LATENT_EPS),
            rotated_k=linear(weights, f"{at}.attn.rotated_k"),
            q_latent=linear(weights, f"{at}.attn.q_latent") if has_query_latent else None,
            q_latent_norm=rms_norm(weights, f"{at}.attn.q_latent_norm", _LATENT_EPS) if has_query_latent else None,
        )
        attn_norm, mlp_norm = (rms_norm(weights, f"{at}.{name}_norm", eps) for name in ("attn", "mlp"))
        return DecoderBlock(attn_norm, attn, mlp_norm, cls.mlp(weights, layer, config))

    @classmethod
    def mlp(cls, weights: dict[str, np.ndarray], layer: int, config: Any) -> Any:
        """Return the experts of a layer, or its feed-forward layer."""
        if layer < config.num_dense:
            return super().mlp(weights, layer, config)
        at, activation = f"blocks.{layer}.mlp", config.activation
        return SharedAndRoutedExperts(
            linear(weights, f"{at}.router"),
            tuple(gated_feed_forward(weights, f"{at}.experts.{i}", activation) for i in range(config.num_experts)),
            experts_per_token=config.experts_per_token,
            normalized=config.normalized,
            shared=gated_feed_forward(weights, f"{at}.shared", activation),
            correction=weights[f"{at}.correction"],
            num_groups=config.num_groups,
            groups_per_token=config.groups_per_token,
            routed_scale=config.routed_scale,
        )

    @classmethod
    def tensors(cls, config: Any, prefix: str) -> Iterator[TensorSpec]:
        """Yield every tensor except the head."""
        E = config.embed_dim
        yield TensorSpec("token_embedding.weight", f"{prefix}embed_tokens.weight", (config.vocab_size, E), table=True)
        for i in range(config.num_layers):
            name, hf_name = f"blocks.{i}", f"{prefix}layers.{i}"
            yield TensorSpec(f"{name}.attn_norm.weight", f"{hf_name}.input_layernorm.weight", (E,))
            yield from _attention_tensors(f"{name}.attn", f"{hf_name}.self_attn", config)
            yield TensorSpec(f"{name}.mlp_norm.weight", f"{hf_name}.post_attention_layernorm.weight", (E,))
            yield from cls.mlp_tensors(name, hf_name, config)
        yield TensorSpec("final_norm.weight", f"{prefix}norm.weight", (E,))

    @classmethod
    def unused(cls, config: Any, prefix: str) -> tuple[str, ...]:
        """Return the prefixes of layers that predict further tokens, too."""
        further = range(config.num_layers, config.num_layers + min(config.num_next, 99))
        return (*super().unused(config, prefix), *(f"{prefix}layers.{i}." for i in further))

    @classmethod
    def mlp_tensors(cls, name: str, hf_name: str, config: Any) -> Iterator[TensorSpec]:
        """Yield the tensors of the experts of a block, or of its feed-forward layer."""
        if int(name.rpartition(".")[2]) < config.num_dense:
            yield from super().mlp_tensors(name, hf_name, config)
            return
        at, hf, parts = f"{name}.mlp", f"{hf_name}.mlp", ("gate_proj", "up_proj", "down_proj")
        yield from mixture_tensors(at, hf, config, config.expert_dim, parts)
        bias = f"{hf}.gate.e_score_correction_bias"
        yield TensorSpec(f"{at}.correction", bias, (config.num_experts,), buffer=True)
        hidden = config.expert_dim * config.num_shared
        yield from gated_tensors(f"{at}.shared", f"{hf}.shared_experts", config, bias=False, hidden_dim=hidden)


def _scale(config: DeepseekV3Config) -> float:
    """Return the scale of the scores, which YaRN makes larger for longer texts."""
    scaling = config.rope.scaling or {}
    factor, share = scaling.get("factor", 1.0), scaling.get("mscale_all_dim", 0.0)
    magnitude = 0.1 * share * math.log(factor) + 1 if share and factor > 1 else 1.0
    return magnitude * magnitude / math.sqrt(config.head_dim)


def _attention_tensors(name: str, hf_name: str, config: DeepseekV3Config) -> Iterator[TensorSpec]:
    """Yield the tensors of a latent attention.

    In the checkpoint a linear map makes the latent and the rotated part of keys, and another the keys and values of a
    head together. Features that are rotated together may be neighbours there; here they are halves.
    """
    E, H, C, R = config.embed_dim, config.num_heads, config.latent_dim, config.rotated_dim
    D, Dv, N = config.head_dim, config.value_dim, config.head_dim - config.rotated_dim

    def halves() -> np.ndarray:
        return np.arange(R).reshape(-1, 2).T.ravel() if config.interleaved else np.arange(R)

    def of_heads(size: int, features: np.ndarray) -> np.ndarray:
        rows: np.ndarray = size * np.arange(H)[:, None] + features
        return rows.ravel()

    q_rows = (lambda: of_heads(D, np.concatenate([np.arange(N), N + halves()]))) if config.interleaved else None
    q_inputs, q_name = E, "q_proj"
    if config.query_latent_dim is not None:
        q_inputs, q_name = config.query_latent_dim, "q_b_proj"
        yield from linear_tensors(f"{name}.q_latent", f"{hf_name}.q_a_proj", E, q_inputs, bias=config.attn_bias)
        yield TensorSpec(f"{name}.q_latent_norm.weight", f"{hf_name}.q_a_layernorm.weight", (q_inputs,))
    yield TensorSpec(f"{name}.q_proj.weight", f"{hf_name}.{q_name}.weight", (H * D, q_inputs), True, rows=q_rows)
    down = f"{hf_name}.kv_a_proj_with_mqa"
    down_rows: dict[str, slice | Callable[[], np.ndarray]]
    down_rows = {"kv_latent": slice(0, C), "rotated_k": lambda: C + halves()}
    for part, rows in down_rows.items():
        yield TensorSpec(f"{name}.{part}.weight", f"{down}.weight", (C + R, E), True, rows=rows)
        if config.attn_bias:
            yield TensorSpec(f"{name}.{part}.bias", f"{down}.bias", (C + R,), rows=rows)
    yield TensorSpec(f"{name}.kv_latent_norm.weight", f"{hf_name}.kv_a_layernorm.weight", (C,))
    up_rows = {
        "k_proj": lambda: of_heads(N + Dv, np.arange(N)),
        "v_proj": lambda: of_heads(N + Dv, N + np.arange(Dv)),
    }
    for part, rows in up_rows.items():
        yield TensorSpec(f"{name}.{part}.weight", f"{hf_name}.kv_b_proj.weight", (H * (N + Dv), C), True, rows=rows)
    yield from linear_tensors(f"{name}.o_proj", f"{hf_name}.o_proj", H * Dv, E, bias=config.attn_bias)
