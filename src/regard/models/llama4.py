"""Llama 4: experts with a shared one, attention within chunks of a text, and layers without positions (Meta 2025).

https://ai.meta.com/blog/llama-4-multimodal-intelligence/. Most layers rotate queries and keys, norm them without a
weight, and attend within chunks; every fourth one attends to all tokens, without positions, and scales its queries more
the later they stand (Nakanishi 2025, "Scalable-Softmax", arXiv:2501.19399). Of a model that looks at pictures too, the
part that reads texts is run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from regard import functional as F
from regard.functional.masks.structured import SegmentMask
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.functional.variable import plain
from regard.models import decoder_checkpoint as shared
from regard.models.build import GATED, gated_feed_forward, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.deepseek_v3 import largest
from regard.models.llama import Llama, LlamaConfig
from regard.models.mixtral import MixtureOfExperts, read_experts
from regard.models.rope import peek_kind
from regard.models.smollm3 import read_rotated
from regard.nn import CausalAttention, CosSin, GatedFeedForward, RMSNorm
from regard.nn.decoder import sigmoid
from regard.nn.layer import REQUIRED

_COMMUTING = ("default", "linear", "dynamic", "llama3")  # rotations that change no length, so may follow the norm


@dataclass(frozen=True, kw_only=True)
class Llama4Config(LlamaConfig):
    """The configuration of a Llama 4; `hidden_dim` is that of an expert."""

    mlp_dim: int  # of feed-forward layers without experts
    num_experts: int
    experts_per_token: int
    sparse: tuple[bool, ...]  # which layers have experts
    rotated: tuple[bool, ...]  # which layers have positions
    chunks: tuple[int | None, ...]  # of how many tokens each layer's are; None: attention to all
    tuning: tuple[float, float] | None  # of queries without positions: tokens for each step, and its strength

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        return super().read(shared.text_part(reader, "llama4", {}, tied=None))

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="llama4_text")
        if reader.peek("no_rope_layers") == []:
            reader.put("no_rope_layers", None)
        sizes = shared.read_sizes(reader, head_dim=128, num_kv_heads=8, norm_eps=1e-5)
        layers = sizes["num_layers"]
        rotated = read_rotated(reader, layers)
        floor, strength = reader.count("floor_scale", 8192), reader.positive("attn_scale", 0.1)
        qk_norm = reader.flag("use_qk_norm", True)
        kind = peek_kind(reader)
        reader.require(not qk_norm or kind in _COMMUTING, f"rope_type {kind!r} with use_qk_norm is not supported")
        return cls._rest(
            reader,
            sizes,
            rope_base=500_000.0,
            bias=reader.flag("attention_bias", False),
            qk_norm=qk_norm,
            mlp_dim=reader.count("intermediate_size_mlp", 16384),
            **read_experts(reader, 16, 1),
            sparse=_read_sparse(reader, layers),
            rotated=rotated,
            chunks=_read_chunks(reader, rotated),
            tuning=(floor, strength) if reader.flag("attn_temperature_tuning", True) else None,
        )


def _read_sparse(reader: ConfigReader, num_layers: int) -> tuple[bool, ...]:
    """Read which layers have experts: ``moe_layers``, or each ``interleave_moe_layer_step``-th."""
    step, layers = reader.count("interleave_moe_layer_step", 1), reader.take("moe_layers")
    fits = layers is None or (isinstance(layers, list) and all(type(layer) is int for layer in layers))
    reader.require(fits, f"moe_layers must be a list of numbers of layers, got {layers!r}")
    every = layers is None or not fits
    return tuple((i + 1) % step == 0 if every else i in layers for i in range(num_layers))


def _read_chunks(reader: ConfigReader, rotated: tuple[bool, ...]) -> tuple[int | None, ...]:
    """Read ``layer_types``, by default chunks in each layer that has positions, and their size."""
    size, types = reader.optional_count("attention_chunk_size", 8192), reader.take("layer_types")
    names = ["full_attention", "chunked_attention"]
    if types is None:
        return tuple(size if rotates else None for rotates in rotated)
    fits = isinstance(types, list) and len(types) == len(rotated) and all(kind in names for kind in types)
    reader.require(
        fits,
        f"layer_types must name full_attention or chunked_attention for each of {len(rotated)} layers, got {types!r}",
    )
    is_chunked = [kind == names[1] for kind in types] if fits else []
    reader.require(size is not None or not any(is_chunked), "layer_types has chunked_attention without a size")
    return tuple(size if chunked else None for chunked in is_chunked)


@dataclass(frozen=True, eq=False, repr=False)
class UnitRMSNorm(RMSNorm):
    """Root mean square normalization without a weight."""

    weight: ClassVar[Any] = property(lambda self: np.ones(self.dim, np.float32))  # type: ignore[misc]
    dim: int = field(default=0, kw_only=True)


@dataclass(frozen=True, eq=False, repr=False)
class Llama4Attention(CausalAttention):
    """Attention to the tokens before within a chunk of `chunk` tokens, or, without positions, to all of them.

    Parameters
    ----------
    is_rotated : bool
        Whether queries and keys are rotated. Otherwise `rotation` has factors of the queries in the place of cosines.
    chunk : int, optional
    """

    is_rotated: bool = field(default=True, kw_only=True)
    chunk: int | None = field(default=None, kw_only=True)

    def with_positions(self, q: np.ndarray, k: np.ndarray, rotation: CosSin) -> tuple[np.ndarray, np.ndarray]:
        """Return queries and keys, rotated, or the queries scaled."""
        return super().with_positions(q, k, rotation) if self.is_rotated else (q * rotation[0], k)

    def rotated_pairs(self, width: int) -> np.ndarray | None:
        """Return which features are rotated together, if any are."""
        return super().rotated_pairs(width) if self.is_rotated else None

    def visible(self, mask: Any, queries: int, keys: int) -> Any:
        """Return the mask with that of chunks, which begin at the first token of each text."""
        if self.chunk is None or keys <= self.chunk:
            return mask
        positions = np.arange(keys)
        if mask is not None:
            positions = positions - (np.cumsum(mask, -1) == 0).sum(-1, keepdims=True)  # without padding before a text
            positions = positions[..., 0, 0, :]
        chunks = positions // self.chunk
        of_chunks = SegmentMask(chunks[..., -queries:], chunks)
        return of_chunks if mask is None else of_chunks & mask


@dataclass(frozen=True, eq=False, repr=False)
class Llama4Experts(MixtureOfExperts):
    """A mixture of experts, each of which reads its tokens times their weights, and an expert of all tokens.

    The weights are sigmoids of the router's logits.

    Parameters
    ----------
    gate_up_weight : array, ``X E 2F``
        For each expert the columns of its gate, then those of its up projection.
    down_weight : array, ``X F E``
    shared : GatedFeedForward
    """

    experts: tuple[GatedFeedForward, ...] = ()
    gate_up_weight: np.ndarray = field(default=REQUIRED, kw_only=True)
    down_weight: np.ndarray = field(default=REQUIRED, kw_only=True)
    shared: GatedFeedForward = field(default=REQUIRED, kw_only=True)

    def __call__(self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return ``... T E`` for x ``... T E``; taps ``experts``, the routing weights ``... T X``, and ``output``."""
        logits = self.router(x)
        weights = sigmoid(logits) * largest(plain(logits), self.experts_per_token)
        weights = trace("experts", weights, "... T X")
        return trace("output", self._mixed(x, weights) + self.shared(x), "... T E")

    forward = __call__

    def _expert(self, i: int, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        gate_up, width = (x * weights) @ self.gate_up_weight[i], self.down_weight.shape[1]
        activation = F.activation(self.shared.activation)
        written: np.ndarray = (activation(gate_up[..., :width]) * gate_up[..., width:]) @ self.down_weight[i]
        return written


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Llama4(Llama):
    """A Llama 4 with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = Llama4Config

    config: Llama4Config

    def rotation(self, positions: np.ndarray, dtype: Any) -> CosSin | list[CosSin | None]:
        """Return the rotation of each block; of one without positions the factors of its queries, None if all are 1."""
        rotation, factors, tuning = self.config.rope(positions, dtype), None, self.config.tuning
        if tuning is not None and positions.size and positions.max() + 1 >= tuning[0]:
            steps = np.log1p(np.floor((positions + 1) / tuning[0])) * tuning[1] + 1
            scale = (steps[..., None] if steps.ndim == 1 else steps[:, None, :, None]).astype(dtype)
            factors = scale, np.zeros_like(scale)
        return [rotation if rotates else factors for rotates in self.config.rotated]

    @classmethod
    def attention(cls, source: TensorSource, config: Any, layer: int) -> Llama4Attention:
        """Return the attention of a block."""
        rotates = config.rotated[layer]
        has_norm = config.qk_norm and rotates
        norm = UnitRMSNorm(eps=config.norm_eps, dim=config.head_dim) if has_norm else None  # type: ignore[call-arg]
        return Llama4Attention(
            *cls.projections(source, config),
            num_heads=config.num_heads,
            interleaved=True,
            q_norm=norm,
            k_norm=norm,
            is_rotated=rotates,
            chunk=config.chunks[layer],
        )

    @classmethod
    def mlp(cls, source: TensorSource, config: Any, layer: int) -> Any:
        """Return the experts of a block, or its feed-forward layer."""
        E, F, X, activation = config.embed_dim, config.hidden_dim, config.num_experts, config.activation
        source = source.at("feed_forward")
        if not config.sparse[layer]:
            return gated_feed_forward(source, GATED, E, config.mlp_dim, activation)
        return Llama4Experts(
            linear(source, "router", E, X, bias=False),
            gate_up_weight=source.array("experts.gate_up_proj", (X, E, 2 * F)),
            down_weight=source.array("experts.down_proj", (X, F, E)),
            shared=gated_feed_forward(source.at("shared_expert"), GATED, E, F, activation),
            experts_per_token=config.experts_per_token,
        )
