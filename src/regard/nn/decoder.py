"""The decoder block: causal self-attention with a KV cache, and feed-forward."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard.functional.native.ops import add
from regard.functional.recorder import NULL_RECORDER, Recorder, optional_tap
from regard.nn.attention import CosSin, MultiHeadAttention
from regard.nn.kv_cache import KVCache
from regard.nn.layer import REQUIRED, Layer
from regard.nn.layers import LayerNorm, Linear, RMSNorm, normed, traced_norm
from regard.nn.linear_state import LinearState


class _FeedForward(Protocol):
    def __call__(self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return ``... T E`` for x ``... T E``."""


@dataclass(frozen=True, eq=False, repr=False)
class CausalAttention(MultiHeadAttention):
    """Every token attends to itself and to the tokens before it, those in the cache included.

    Parameters
    ----------
    q_norm, k_norm : RMSNorm, or LayerNorm, optional
        Of the ``D`` features of each query and key, or, with as many weights, of those of all heads together; before
        the rotary embedding.
    interleaved : bool
        Which features the rotary embedding pairs, as `regard.rotary` takes it.
    window, scale, softcap, sinks
        As `regard.attention` takes them.
    gate_proj : Linear, ``E (H Dv)``, optional
        The output gate: the context of each head is multiplied by the sigmoid of what it makes of x (Qiu et al. 2025,
        https://arxiv.org/abs/2505.06708).
    """

    q_norm: LayerNorm | RMSNorm | None = field(default=None, kw_only=True)
    k_norm: LayerNorm | RMSNorm | None = field(default=None, kw_only=True)
    interleaved: bool = field(default=False, kw_only=True)
    window: tuple[int | None, int | None] | None = field(default=None, kw_only=True)
    scale: float | None = field(default=None, kw_only=True)
    softcap: float | None = field(default=None, kw_only=True)
    sinks: np.ndarray | None = field(default=None, kw_only=True)
    gate_proj: Linear | None = field(default=None, kw_only=True)

    @property
    def has_output_gate(self) -> bool:
        """Whether what each head has read is multiplied by a gate of the query."""
        return self.gate_proj is not None

    def __call__(
        self,
        x: np.ndarray,
        *,
        rotation: CosSin | None = None,
        cache: KVCache | None = None,
        mask: np.ndarray | None = None,
        trace: Recorder = NULL_RECORDER,
    ) -> tuple[np.ndarray, KVCache | None]:
        """Return the contextual vectors of x, ``... T E``, and the cache with the keys and values of x too.

        Parameters
        ----------
        x : array, ``... T E``
            Tokens at the positions after those of the cache.
        rotation : pair of arrays, optional
            Cosines and sines of the rotary embedding of x.
        cache : KVCache, optional
            Keys and values of the tokens before x; without one there are none, and none is returned. Keys that leave
            the window are dropped.
        mask : boolean array that broadcasts to ``... H T S``, optional
            True: the query attends to the key, if the causal order allows it too. ``S`` counts all positions, those
            that were dropped from the cache included.
        trace : Recorder
            Records ``q``, ``k`` (both after norm and rotary embedding), ``v``, the taps of `regard.attention`, with an
            output gate ``output_gate`` before and ``gated_context`` after these, and ``output``; optionally
            ``projected_q`` and ``projected_k``, before both, and ``head_outputs``.
        """
        q, k, v = self._project_qkv(x)
        if rotation is not None or self.q_norm is not None:
            q = optional_tap(trace, "projected_q", q, "... H T D")
            k = optional_tap(trace, "projected_k", k, "... G S D")
        q, k = _norm_heads(self.q_norm, q, trace, "q_norm"), _norm_heads(self.k_norm, k, trace, "k_norm")
        if rotation is not None:
            q, k = self.with_positions(q, k, rotation)
        q, k, v = trace("q", q, "... H T D"), trace("k", k, "... G S D"), trace("v", v, "... G S Dv")
        gate = None
        if self.gate_proj is not None:
            gate = trace("output_gate", sigmoid(F.split_heads(self.gate_proj(x), self.num_heads)), "... H T Dv")
        if cache is not None:
            cache = cache.append(k, v)
            k, v = cache.k, cache.v
            mask = None if mask is None else mask[..., cache.start :]
        mask = self.visible(mask, q.shape[-2], k.shape[-2])
        output = self.attend(
            q, k, v, mask=mask, causal=True, window=self.window, scale=self.scale, softcap=self.softcap,
            sinks=self.sinks, gate=gate, trace=trace,
        )  # fmt: skip
        if cache is not None and self.window is not None and self.window[0] is not None:
            cache = cache.slide(self.window[0])  # no later token attends further back
        return output, cache

    forward = __call__

    def with_positions(self, q: np.ndarray, k: np.ndarray, rotation: CosSin) -> tuple[np.ndarray, np.ndarray]:
        """Return queries and keys, rotated."""
        pairs = self.interleaved
        return F.apply_rotary(q, *rotation, interleaved=pairs), F.apply_rotary(k, *rotation, interleaved=pairs)

    def rotated_pairs(self, width: int) -> np.ndarray | None:
        """Return which features of a head a rotary embedding of `width` features turns together, ``P 2``."""
        return np.array(F.rotary_pairs(width, interleaved=self.interleaved))

    def visible(self, mask: Any, queries: int, keys: int) -> Any:  # noqa: ARG002
        """Return the mask of so many queries, the last, and keys, besides causal order and window."""
        return mask


@dataclass(frozen=True, eq=False, repr=False)
class DecoderBlock(Layer):
    """Attention and feed-forward, each with a norm before it and a residual connection around it.

    Parameters
    ----------
    attn_norm : LayerNorm or RMSNorm, or None for no norm
    attn : CausalAttention
        None in a block of linear attention.
    mlp_norm : LayerNorm or RMSNorm, or None for no norm
    mlp : FeedForward, GatedFeedForward, or a layer with the same call
    attn_post_norm, mlp_post_norm : RMSNorm, optional
        Of the outputs of attention and feed-forward, before they are added.
    residual_scale : float
        By what the outputs of attention and feed-forward are multiplied before they are added.
    linear_attn : Layer, optional
        A layer with the same call in place of attention: it mixes tokens without a map, and keeps a `LinearState`.
    parallel : bool
        Whether attention and feed-forward both read the input of the block: x + attn(norm(x)) + mlp(norm(x)).

    References
    ----------
    Radford et al. (2019), "Language models are unsupervised multitask learners", section 2.3; for the post-norms,
    Gemma Team (2024), https://arxiv.org/abs/2408.00118; for parallel blocks, Wang and Komatsuzaki (2021), "GPT-J-6B",
    and Black et al. (2022), https://arxiv.org/abs/2204.06745, section 2.1.
    """

    attn_norm: LayerNorm | RMSNorm | None
    attn: CausalAttention = REQUIRED
    mlp_norm: LayerNorm | RMSNorm | None = None
    mlp: _FeedForward = REQUIRED
    attn_post_norm: RMSNorm | None = field(default=None, kw_only=True)
    mlp_post_norm: RMSNorm | None = field(default=None, kw_only=True)
    residual_scale: float = field(default=1.0, kw_only=True)
    linear_attn: Any = field(default=None, kw_only=True)
    parallel: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        norms = all(isinstance(norm, LayerNorm | RMSNorm | None) for norm in (self.attn_norm, self.mlp_norm))
        mixes = isinstance(self.attn, CausalAttention) if self.has_map else self.attn is None
        if not norms or not mixes or not callable(self.mlp):
            parts = (self.attn_norm, self.attn, self.mlp_norm, self.mlp)
            raise RegardError(
                f"a DecoderBlock is made from a norm, a CausalAttention, a norm and a feed-forward layer, got "
                f"{', '.join(type(part).__name__ for part in parts)}"
            )

    @property
    def has_map(self) -> bool:
        """Whether it attends, by weights of pairs of tokens; linear attention has none."""
        return self.linear_attn is None

    @property
    def is_sum(self) -> bool:
        """Whether its output is its input with what attention and feed-forward add."""
        return True

    def new_cache(self) -> KVCache | LinearState:
        """Return what it keeps before the first token."""
        return KVCache() if self.has_map else LinearState()

    def __call__(
        self,
        x: np.ndarray,
        *,
        rotation: CosSin | None = None,
        cache: Any = None,
        mask: np.ndarray | None = None,
        trace: Recorder = NULL_RECORDER,
        **options: Any,
    ) -> tuple[np.ndarray, Any]:
        """Return ``... T E`` for x ``... T E``, and the cache, as `CausalAttention` does.

        The options are those of `after_sublayers`. Taps ``attn.*`` (of linear attention ``linear_attn.*``),
        ``attn_post_norm`` if there is one, ``attn_residual`` (not of a parallel block), ``mlp.*``, ``mlp_post_norm`` if
        there is one, and ``output``; optionally those of `normed`.
        """
        if self.attn_post_norm is not None:
            trace.note("attn_post_norm")
        if self.mlp_post_norm is not None:
            trace.note("mlp_post_norm")
        y = normed(self.attn_norm, x, trace, "attn_norm")
        name = "attn" if self.has_map else "linear_attn"
        with trace.scope(name):
            y, cache = getattr(self, name)(y, rotation=rotation, cache=cache, mask=mask, trace=trace)
        y = self._added("attn", y, trace)
        read = x if self.parallel else trace("attn_residual", add(x, y), "... T E")
        z = normed(self.mlp_norm, read, trace, "mlp_norm")
        with trace.scope("mlp"):
            z = self.mlp(z, trace=trace)
        z = self._added("mlp", z, trace)
        after = self.after_sublayers(add(add(x, y) if self.parallel else read, z), trace, **options)
        return trace("output", after, "... T E"), cache

    forward = __call__

    def after_sublayers(self, x: np.ndarray, trace: Recorder, **_: Any) -> np.ndarray:  # noqa: ARG002
        """Return what a block makes of the stream after attention and feed-forward: nothing else."""
        return x

    def before_residual(self, part: str) -> tuple[Any, Any]:
        """Return the norm of an output, if there is one, and the factor after it."""
        return getattr(self, f"{part}_post_norm"), self.residual_scale

    def _added(self, part: str, y: np.ndarray, trace: Recorder) -> np.ndarray:
        norm, factor = self.before_residual(part)
        if norm is not None:
            y = trace(f"{part}_post_norm", traced_norm(norm, y, trace, f"{part}_post_norm"), "... T E")
        return y if np.all(factor == 1) else y * y.dtype.type(factor)


def require_sums(model: Any, what: str) -> None:
    """Raise `RegardError` if a block of a decoder makes something else of the stream than a sum."""
    for i, block in enumerate(model.blocks):
        if not getattr(block, "is_sum", True):  # of a new family
            raise RegardError(
                f"{what} needs a stream to which attention and feed-forward layers add, and nothing else, but "
                f"blocks.{i} of {model.name} ({type(block).__name__}) changes it after them"
            )


def layers_without_map(model: Any) -> list[int]:
    """Return the numbers of the blocks of a model, a decoder or another, without a map: of linear attention or none."""
    return [i for i, block in enumerate(getattr(model, "blocks", ())) if getattr(block, "attn", None) is None]


def why_no_map(model: Any, layer: int) -> str:
    """Return in words what a block is that has no map."""
    block = model.blocks[layer]
    linear_attn = getattr(block, "linear_attn", None)
    what = "has no attention" if linear_attn is None else "is linear attention"
    return f"blocks.{layer} of {model.name} {what} ({type(block if linear_attn is None else linear_attn).__name__})"


def require_maps(model: Any, what: str) -> None:
    """Raise `RegardError` if a block of a model, a decoder or another, has no map."""
    for i in layers_without_map(model):
        raise RegardError(f"{what} needs heads with a map in every layer, but {why_no_map(model, i)}")


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(−x))."""
    with np.errstate(over="ignore"):
        y: np.ndarray = 1 / (1 + np.exp(-x))
    return y


def _norm_heads(norm: LayerNorm | RMSNorm | None, x: np.ndarray, trace: Recorder, name: str) -> np.ndarray:
    """Return the features of each head, ``... H T D``, normed: each head's alone, or those of all heads together."""
    if norm is None or norm.weight.shape[-1:] == x.shape[-1:]:
        return normed(norm, x, trace, name, "... H T D")
    together: np.ndarray = F.split_heads(normed(norm, F.merge_heads(x), trace, name), x.shape[-3])
    return together
