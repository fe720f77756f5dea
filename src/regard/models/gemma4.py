"""Gemma 4: a Gemma 3 whose layers may read each token a second time, and share keys and values (Google 2026).

https://ai.google.dev/gemma/docs/core. Layers that attend to all tokens have heads of another size, of which a part
rotates, and may have keys that are values too. In the small models the last layers read the keys and values of an
earlier one, and each layer adds what it makes of the token itself; the one of 26B adds experts to its feed-forward
layer. Of one that looks at pictures or hears too, the part that reads texts is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard.functional.native.ops import add
from regard.functional.recorder import NULL_RECORDER, Recorder, optional_tap
from regard.models import decoder_checkpoint as shared
from regard.models.build import GATED, embedding, gated_feed_forward, linear, rms_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder import Caches
from regard.models.gemma2 import read_cap
from regard.models.gemma3 import Gemma3, Gemma3Config
from regard.models.llama import LlamaConfig
from regard.models.llama4 import UnitRMSNorm
from regard.models.mixtral import MixtureOfExperts, read_experts
from regard.models.rope import read_ropes_by_type
from regard.nn import CausalAttention, CosSin, DecoderBlock, Embedding, GatedFeedForward, Layer, Linear, RMSNorm
from regard.nn.kv_cache import KVCache
from regard.nn.layer import REQUIRED
from regard.nn.layers import normed

# What published text_configs leave out.
_SIZES = {"vocab_size": 262_144, "hidden_size": 2304, "intermediate_size": 9216}
_SIZES |= {"num_hidden_layers": 30, "num_attention_heads": 8}
_NOT_OF_TEXTS = (
    *("vision_config", "audio_config", "eoa_token_index"),
    *(f"{mark}_token_id" for mark in ("boi", "eoi", "image", "video", "boa", "eoa", "audio")),
)
_ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}


@dataclass(frozen=True, kw_only=True)
class Gemma4Config(Gemma3Config):
    """The configuration of a Gemma 4; `head_dim` and `num_kv_heads` are those of layers with a window."""

    full_head_dim: int  # of layers without a window
    full_kv_heads: int
    keys_are_values: bool  # in layers without a window
    kv_layers: tuple[int, ...]  # of each layer, the one whose keys and values it reads
    shared_hidden_dim: int  # of the feed-forward layers of those that read keys and values of another
    layer_input_dim: int  # of what each layer has of a token; 0: it has nothing
    num_experts: int  # 0: there are none
    experts_per_token: int
    expert_dim: int

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        return super(Gemma3Config, cls).read(shared.text_part(reader, "gemma4", _SIZES, others=_NOT_OF_TEXTS))

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="gemma4_text")
        reader.choice("use_bidirectional_attention", None, [None, "vision"])  # between pictures alone
        sizes = shared.read_sizes(reader, head_dim=256, num_kv_heads=4)
        layers, window = sizes["num_layers"], reader.count("sliding_window", 512)
        windows = shared.read_windows(reader, layers, window, [bool((i + 1) % 6) for i in range(layers)])
        windows = (*windows[:-1], None)  # the last layer attends to all tokens, whatever layer_types says
        keys_are_values = reader.flag("attention_k_eq_v", False)
        full = _read_full_sizes(reader, sizes, windows, keys_are_values)
        if reader.peek("rope_parameters") is None:
            reader.put("rope_parameters", _ROPES)
        dims = {"full_attention": full["full_head_dim"]}
        ropes = read_ropes_by_type(reader, sizes, dict.fromkeys(_ROPES, (None, 1e4)), scaled=[], head_dims=dims)
        double = 2 if reader.flag("use_double_wide_mlp", False) else 1
        layer_input_dim = reader.width("hidden_size_per_layer_input", 256)
        rows = reader.count("vocab_size_per_layer_input", 262_144)
        reader.require(
            layer_input_dim == 0 or rows == sizes["vocab_size"],
            f"vocab_size_per_layer_input {rows} must be vocab_size {sizes['vocab_size']}",
        )
        experts = {"num_experts": 0, "experts_per_token": 0, "expert_dim": 0}
        if reader.flag("enable_moe_block", False):
            experts = read_experts(reader, None, None, "num_experts", "top_k_experts")
            experts["expert_dim"] = reader.count("moe_intermediate_size")
        reader.leave_out("num_experts", "top_k_experts", "moe_intermediate_size")
        return cls._rest(
            reader,
            sizes,
            rope=ropes["full_attention"],
            local_rope=ropes["sliding_attention"],
            windows=windows,
            activation="gelu_pytorch_tanh",
            activation_name="hidden_activation",
            tied=True,
            bias=reader.flag("attention_bias", False),
            embedding_scale=sizes["embed_dim"] ** 0.5,
            score_scale=1.0,
            logit_softcap=read_cap(reader, "final_logit_softcapping", None),
            qk_norm=True,
            **full,
            keys_are_values=keys_are_values,
            kv_layers=_read_kv_layers(reader, windows),
            shared_hidden_dim=double * sizes["hidden_dim"],
            layer_input_dim=layer_input_dim,
            **experts,
        )


def _read_full_sizes(
    reader: ConfigReader, sizes: dict[str, Any], windows: Sequence[int | None], keys_are_values: bool
) -> dict[str, Any]:
    """Read the sizes of heads of layers without a window: one for all of them, or, in newer files, by layer."""
    own, names = (sizes["head_dim"], sizes["num_kv_heads"]), ("head_dim", "num_key_value_heads")
    dim, kv_heads = reader.count("global_head_dim", 512), reader.optional_count("num_global_key_value_heads")
    full = dim, (kv_heads if keys_are_values else None) or own[1]
    by_layer = reader.take("per_layer_config")
    if by_layer is not None:
        by_layer = by_layer if isinstance(by_layer, dict) else {"": None}
        by_number = {int(key) if len(key) < 9 and key.isdecimal() else key: each for key, each in by_layer.items()}
        entries = [by_number.pop(i, {}) for i in range(len(windows))]
        fits = not by_number and all(isinstance(entry, dict) and entry.keys() <= {*names} for entry in entries)
        sizes_of = [tuple(entry.get(n, each) for n, each in zip(names, own, strict=True)) for entry in entries if fits]
        expected = [own if window is not None else sizes_of[-1] for window in windows] if fits else []
        fits = fits and sizes_of == expected
        reader.require(fits, "per_layer_config must give head_dim and num_key_value_heads, the same of all full layers")
        full = sizes_of[-1] if fits else own
    dim, kv_heads = full
    fits = all(type(size) is int and 0 < size < 2**16 for size in full) and dim % 2 == 0
    fits = fits and sizes["num_heads"] % kv_heads == 0
    reader.require(fits, f"full layers cannot have {kv_heads!r} key/value heads of {dim!r} features")
    return dict(zip(("full_head_dim", "full_kv_heads"), full if fits else own, strict=True))


def _read_kv_layers(reader: ConfigReader, windows: Sequence[int | None]) -> tuple[int, ...]:
    """Read how many last layers share keys and values: those of the last layer of their kind that has its own."""
    count = reader.width("num_kv_shared_layers", 0)
    first, kinds = len(windows) - count, [window is None for window in windows]
    reader.require(first > 0, f"num_kv_shared_layers must be less than the {len(windows)} layers, got {count}")
    fits = first <= 0 or {*kinds[first:]} <= {*kinds[:first]}
    reader.require(
        fits,
        f"the last {count} layers (num_kv_shared_layers) read the keys and values of an earlier one that has a window "
        "as they do, or has none as they do, but there is none",
    )
    if first <= 0 or not fits:
        return tuple(range(len(windows)))
    last = {kind: i for i, kind in enumerate(kinds[:first])}
    return (*range(first), *(last[kind] for kind in kinds[first:]))


@dataclass(frozen=True, eq=False, repr=False)
class Gemma4Attention(CausalAttention):
    """Attention to normed values; of a layer that has no keys and values of its own, to those of another.

    Parameters
    ----------
    v_norm : RMSNorm
        Of the ``D`` features of each value.
    kv_layer, kv_heads : int, optional
        The layer that makes its keys and values, if another does, and how many heads these have; `k_proj`, `v_proj` and
        `k_norm` are then None.
    """

    v_norm: RMSNorm = field(default=REQUIRED, kw_only=True)
    kv_layer: int | None = field(default=None, kw_only=True)
    kv_heads: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        if self.kv_layer is None:
            super().__post_init__()

    @property
    def num_kv_heads(self) -> int:
        """``G``."""
        return super().num_kv_heads if self.kv_layer is None else self.kv_heads

    def packed_together(self) -> tuple[Linear, ...]:
        """Return what makes queries, keys and values, each once."""
        return () if self.kv_layer is not None or self.k_proj is self.v_proj else super().packed_together()

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

        No keys are dropped, for other layers may read them. A layer without keys of its own reads those of a cache
        that has them, and returns that one, or where an edit changes them another. Taps what `CausalAttention` does,
        and optionally those of the norm of values.
        """
        has_keys, axes = self.kv_layer is None, ("... G S D", "... G S Dv")
        k: Any = None
        v: Any = None
        if has_keys:
            q, k, v = self._project_qkv(x)
        else:
            q = F.split_heads(self.q_proj(x), self.num_heads)
        q = self._placed(optional_tap(trace, "projected_q", q, "... H T D"), self.q_norm, rotation, trace, "q_norm")
        q = trace("q", q, "... H T D")
        if has_keys:
            k = self._placed(optional_tap(trace, "projected_k", k, axes[0]), self.k_norm, rotation, trace, "k_norm")
            k, v = trace("k", k, axes[0]), trace("v", normed(self.v_norm, v, trace, "v_norm", axes[1]), axes[1])
            if cache is not None:
                cache = cache.append(k, v)
                k, v = cache.k, cache.v
        elif cache is None:
            raise RegardError("an attention without keys of its own needs those of another layer, in a cache")
        else:
            k, v, before = cache.k, cache.v, len(cache) - x.shape[-2]
            own = [y[..., before:, :] for y in (k, v)]
            edited = [trace(name, y, of) for name, y, of in zip("kv", own, axes, strict=True)]
            if any(y is not given for y, given in zip(edited, own, strict=True)):  # for this layer alone
                k, v = (np.concatenate([y[..., :before, :], e], axis=-2) for y, e in zip((k, v), edited, strict=True))
                cache = KVCache(cache.start).append(k, v)
        mask = mask if mask is None or cache is None else mask[..., cache.start :]
        output = self.attend(
            q, k, v, mask=mask, causal=True, window=self.window, scale=self.scale, trace=trace
        )  # fmt: skip
        return output, cache

    forward = __call__

    def _placed(self, x: np.ndarray, norm: Any, rotation: CosSin | None, trace: Recorder, name: str) -> np.ndarray:
        """Return queries or keys, normed and rotated."""
        x = normed(norm, x, trace, name, "... H T D")
        return x if rotation is None else F.apply_rotary(x, *rotation)


@dataclass(frozen=True, eq=False, repr=False)
class LayerInput(Layer):
    """What a layer makes of a token itself, of its vector and of a row of another table, times what the stream opens.

    Parameters
    ----------
    gate : Linear, ``E P``
    context_proj : Linear, ``E P``
        Of the embedding of the token.
    context_norm : RMSNorm, ``P``
    down_proj : Linear, ``P E``
    activation : str
        Of the gate.
    """

    gate: Linear
    context_proj: Linear
    context_norm: RMSNorm
    down_proj: Linear
    activation: str = field(kw_only=True)

    def __call__(
        self, x: np.ndarray, *, embeddings: np.ndarray, rows: np.ndarray, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return ``... T E`` for x ``... T E``, the embeddings of its tokens and their `rows`, ``... T P``.

        Taps ``inputs``, ``... T P``, ``gate`` and ``output``.
        """
        context = self.context_proj(embeddings) * x.dtype.type(embeddings.shape[-1] ** -0.5)
        inputs = trace("inputs", (self.context_norm(context) + rows) * x.dtype.type(0.5**0.5), "... T P")
        gate = trace("gate", self.gate(x), "... T P")
        return trace("output", self.down_proj(F.activation(self.activation)(gate) * inputs), "... T E")

    forward = __call__


@dataclass(frozen=True, eq=False, repr=False)
class Gemma4Experts(MixtureOfExperts):
    """A mixture of experts that is routed by a norm of the stream, and whose weights have factors.

    Parameters
    ----------
    router_norm : RMSNorm
    factors : array, ``X``
    gate_up_weight : array, ``X 2F E``
        For each expert the rows of its gate, then those of its up projection.
    down_weight : array, ``X E F``
    activation : str
    """

    experts: tuple[GatedFeedForward, ...] = ()
    router_norm: RMSNorm = field(default=REQUIRED, kw_only=True)
    factors: np.ndarray = field(default=REQUIRED, kw_only=True)
    gate_up_weight: np.ndarray = field(default=REQUIRED, kw_only=True)
    down_weight: np.ndarray = field(default=REQUIRED, kw_only=True)
    activation: str = field(default="gelu_new", kw_only=True)

    def routed(self, x: np.ndarray, stream: np.ndarray, trace: Recorder) -> np.ndarray:
        """Return ``... T E`` for x ``... T E``, routed by the stream; taps ``experts``, ``... T X``."""
        logits = self.router(self.router_norm(stream) * x.dtype.type(x.shape[-1] ** -0.5))
        weights = F.top_k_softmax(logits, self.experts_per_token) * self.factors
        return self._mixed(x, trace("experts", weights, "... T X"))

    def _expert(self, i: int, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        gate_up, width = x @ self.gate_up_weight[i].T, self.down_weight.shape[-1]
        hidden = F.activation(self.activation)(gate_up[..., :width]) * gate_up[..., width:]
        written: np.ndarray = hidden @ self.down_weight[i].T * weights
        return written


@dataclass(frozen=True, eq=False, repr=False)
class WithExperts(Layer):
    """A feed-forward layer and a mixture of experts, each with a norm before and after it.

    Parameters
    ----------
    norm, post_norm, expert_norm, expert_post_norm : RMSNorm
    mlp : GatedFeedForward
    mixture : Gemma4Experts
    """

    norm: RMSNorm
    mlp: GatedFeedForward
    post_norm: RMSNorm
    expert_norm: RMSNorm
    mixture: Gemma4Experts
    expert_post_norm: RMSNorm

    def __call__(self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return ``... T E`` for x ``... T E``, the stream; taps ``dense.*``, ``experts`` and ``output``."""
        with trace.scope("dense"):
            dense = self.mlp(normed(self.norm, x, trace, "norm"), trace=trace)
        mixed = self.mixture.routed(self.expert_norm(x), x, trace)
        return trace("output", self.post_norm(dense) + self.expert_post_norm(mixed), "... T E")

    forward = __call__


@dataclass(frozen=True, eq=False, repr=False)
class Gemma4Block(DecoderBlock):
    """A block that may add what it makes of the tokens themselves, and multiplies the stream.

    Parameters
    ----------
    layer_input : LayerInput, optional
    layer_input_post_norm : RMSNorm, optional
        Of its output, before that is added.
    stream_scale : array, ``1``
        By what the output of the block is multiplied.
    """

    layer_input: LayerInput | None = field(default=None, kw_only=True)
    layer_input_post_norm: RMSNorm | None = field(default=None, kw_only=True)
    stream_scale: np.ndarray = field(default=REQUIRED, kw_only=True)

    @property
    def is_sum(self) -> bool:
        """False: its output is multiplied."""
        return False

    def after_sublayers(self, x: np.ndarray, trace: Recorder, **inputs: Any) -> np.ndarray:
        """Return what the stream is after attention and feed-forward, ``... T E``, with the input of the layer added.

        `inputs` are those of `LayerInput`, if there is one: then it taps ``mlp_residual``, ``layer_input.*`` and
        ``layer_input_post_norm``.
        """
        if self.layer_input is not None:
            trace.note("layer_input_post_norm")
            x = trace("mlp_residual", x, "... T E")
            with trace.scope("layer_input"):
                y = self.layer_input(x, **inputs, trace=trace)
            x = add(x, self._added("layer_input", y, trace))
        scaled: np.ndarray = x * self.stream_scale
        return scaled


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Gemma4(Gemma3):
    """A Gemma 4 with its tokenizer; its forward pass is Llama's, with more in the blocks.

    Parameters
    ----------
    layer_table : Embedding, ``V (L P)``, optional
        What each layer has of a token.
    """

    config_type: ClassVar[type[LlamaConfig]] = Gemma4Config
    make_norm: ClassVar[Callable[..., Any]] = rms_norm

    config: Gemma4Config
    layer_table: Embedding | None = None

    def block_options(self, ids: np.ndarray, embeddings: np.ndarray) -> dict[str, Any]:
        """Return the embeddings, and the rows of the tokens of all layers, ``B T L P``."""
        if self.layer_table is None:
            return {}
        rows, dim = self.layer_table(ids), self.config.layer_input_dim
        rows = (rows * rows.dtype.type(dim**0.5)).reshape(*ids.shape, -1, dim)
        return {"embeddings": embeddings, "rows": rows}

    def run_blocks(self, x: np.ndarray, caches: Caches, **options: Any) -> tuple[np.ndarray, Caches]:
        """Return the output of all blocks, and the caches without the keys that leave a window."""
        x, longer = super().run_blocks(x, caches, **options)
        kept: list[Any] = list(longer)
        for i, window in enumerate(self.config.windows):
            if window is not None and caches[i] is not None:
                kept[i] = kept[i].slide(window - 1)
        return x, kept

    def run_block(self, i: int, x: np.ndarray, caches: Caches, **options: Any) -> tuple[np.ndarray, Any]:
        """Run a block on its own cache, or on that of the layer whose keys and values it reads.

        A block that reads those of another has a cache of its own once an edit has changed them for it.
        """
        source, kv_layers = self.config.kv_layers[i], self.config.kv_layers
        kept: Any = caches[i]
        if "rows" in options:
            options["rows"] = options["rows"][..., i, :]
        cache: Any = caches[source]
        if cache is None and i in kv_layers[i + 1 :]:
            cache = KVCache()  # for the layers that read it in this run
        if source != i and kept is not None and len(kept):
            cache = kept.append(*(y[..., -x.shape[-2] :, :] for y in (cache.k, cache.v)))
        x, after = self.blocks[i](x, cache=cache, **options)
        is_own = source == i or (kept is not None and (len(kept) or after is not cache))
        return x, after if is_own else kept

    @property
    def last_start(self) -> int:
        """The last block from whose input a run can start: the first one that later blocks read keys of."""
        shared_with = [source for i, source in enumerate(self.config.kv_layers) if source != i]
        return min(shared_with, default=super().last_start)

    @classmethod
    def unused(cls, config: Gemma4Config) -> tuple[str, ...]:
        """Return the names of keys and values that published files have of layers that read those of another."""
        layers = [i for i, source in enumerate(config.kv_layers) if source != i]
        names = ("k_proj", "v_proj", "k_norm", "v_norm")
        return tuple(f"layers.{i}.self_attn.{name}." for i in layers for name in names)

    @classmethod
    def layers(cls, source: TensorSource, config: Gemma4Config) -> dict[str, Any]:
        """Return the fields that are layers, except the head."""
        layers, P, L = super().layers(source, config), config.layer_input_dim, config.num_layers
        if not P:
            return layers
        norm, blocks = rms_norm(source, "per_layer_projection_norm", P, config.norm_eps), []
        for i, block in enumerate(layers["blocks"]):
            at, rows = source.at(f"layers.{i}"), slice(i * P, (i + 1) * P)
            layer_input = LayerInput(
                linear(at, "per_layer_input_gate", config.embed_dim, P, bias=False),
                linear(source, "per_layer_model_projection", config.embed_dim, P, bias=False, rows=rows, stored=L * P),
                norm,
                linear(at, "per_layer_projection", P, config.embed_dim, bias=False),
                activation=config.activation,
            )
            post_norm = cls.norm(at, "post_per_layer_input_norm", config.embed_dim, config)
            blocks.append(replace(block, layer_input=layer_input, layer_input_post_norm=post_norm))
        table = embedding(source, "embed_tokens_per_layer", config.vocab_size, L * P, in_blocks=True)
        return {**layers, "blocks": tuple(blocks), "layer_table": table}

    @classmethod
    def block(cls, source: TensorSource, config: Any, layer: int) -> Gemma4Block:
        """Return the block of a layer, without its input."""
        names = cls.block_norms(config)
        norms: dict[str, Any] = {each: cls.norm(source, name, config.embed_dim, config) for each, name in names.items()}
        return Gemma4Block(
            **norms,
            attn=cls.attention(source.at(cls.attention_name), config, layer),
            mlp=cls.mlp(source, config, layer),
            stream_scale=source.array("layer_scalar", (1,), buffer=True),
        )

    @classmethod
    def block_norms(cls, config: Any) -> dict[str, str]:
        """Return the norms of a block; with experts, the feed-forward layer has the one before it."""
        norms = super().block_norms(config)
        return {each: name for each, name in norms.items() if each != "mlp_norm" or not config.num_experts}

    @classmethod
    def attention(cls, source: TensorSource, config: Any, layer: int) -> Gemma4Attention:
        """Return the attention of a block."""
        E, H, window, bias = config.embed_dim, config.num_heads, config.windows[layer], config.qkv_bias
        full = window is None
        D, G = (config.full_head_dim, config.full_kv_heads) if full else (config.head_dim, config.num_kv_heads)
        k: Any = None
        v: Any = None
        k_norm, kv_layer = None, config.kv_layers[layer]
        if kv_layer == layer:
            k, k_norm = linear(source, "k_proj", E, G * D, bias=bias), cls.norm(source, "k_norm", D, config)
            v = k if full and config.keys_are_values else linear(source, "v_proj", E, G * D, bias=bias)
        return Gemma4Attention(
            linear(source, "q_proj", E, H * D, bias=bias),
            k,
            v,
            linear(source, "o_proj", H * D, E, bias=config.output_bias),
            num_heads=H,
            window=None if window is None else (window - 1, 0),
            scale=config.score_scale,
            q_norm=cls.norm(source, "q_norm", D, config),
            k_norm=k_norm,
            v_norm=UnitRMSNorm(eps=config.norm_eps, dim=D),  # type: ignore[call-arg]
            kv_layer=None if kv_layer == layer else kv_layer,
            kv_heads=G,
        )

    @classmethod
    def mlp(cls, source: TensorSource, config: Any, layer: int) -> Any:
        """Return the feed-forward layer of a block, with its experts."""
        E, X, F = config.embed_dim, config.num_experts, config.expert_dim
        width = config.hidden_dim if config.kv_layers[layer] == layer else config.shared_hidden_dim
        mlp = gated_feed_forward(source.at("mlp"), GATED, E, width, config.activation)
        if not X:
            return mlp
        of_mlp = ("pre_feedforward_layernorm", "post_feedforward_layernorm_1")
        names = (*of_mlp, "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2")
        norm, post_norm, expert_norm, expert_post_norm = (rms_norm(source, n, E, config.norm_eps) for n in names)
        mixture = Gemma4Experts(
            linear(source, "router.proj", E, X, bias=False),
            router_norm=RMSNorm(source.array("router.scale", (E,)), config.norm_eps),
            factors=source.array("router.per_expert_scale", (X,)),
            gate_up_weight=source.array("experts.gate_up_proj", (X, 2 * F, E)),
            down_weight=source.array("experts.down_proj", (X, E, F)),
            experts_per_token=config.experts_per_token,
            activation=config.activation,
        )
        return WithExperts(norm, mlp, post_norm, expert_norm, mixture, expert_post_norm)
