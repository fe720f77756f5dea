"""Llama: a decoder with rotary positions, gated feed-forward and RMS norms (Touvron et al. 2023, arXiv:2302.13971).

Query heads share key/value heads (arXiv:2307.09288); the rotation is scaled for longer texts (arXiv:2407.21783).
Mistral and Qwen are configurations of this model; others change its blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.functional.recorder import Recorder
from regard.models import decoder_checkpoint as shared
from regard.models.build import (
    GATED,
    PROJECTIONS,
    causal_attention,
    embedding,
    gated_feed_forward,
    projections,
    rms_norm,
)
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder import Caches, Decoder
from regard.models.rope import Rope, read_rope
from regard.nn import CausalAttention, CosSin, DecoderBlock, LayerNorm, Linear, RMSNorm
from regard.nn.layers import traced_norm


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(shared.DecoderConfig):
    """The sizes of a Llama, its activation, which parts have a bias or a norm, and what relatives multiply."""

    activation: str
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    parallel: bool = False  # whether attention and feed-forward read the same input
    embedding_scale: float = 1.0
    score_scale: float | None = None  # None: 1 / sqrt(D)
    score_softcap: float | None = None
    residual_scale: float = 1.0
    logit_scale: float = 1.0

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="llama", is_llama_config=True, rope_interleaved=False)
        reader.without_effect("pretraining_tp")  # how matrices were split for training
        bias, mlp_bias = reader.flag("attention_bias", False), reader.flag("mlp_bias", False)
        return cls._rest(reader, shared.read_sizes(reader), bias=bias, mlp_bias=mlp_bias)

    @classmethod
    def _rest(
        cls,
        reader: ConfigReader,
        sizes: dict[str, Any],
        *,
        rope: Rope | None = None,
        rope_base: float = 10_000.0,
        partial: float | None = None,
        windows: int | tuple[int | None, ...] | None = None,
        bias: bool = False,
        tied: bool = False,
        activation: str = "silu",
        activation_name: str = "hidden_act",
        **choices: Any,
    ) -> Self:
        """Read the fields that Llama and its relatives have in common.

        `windows` are those of all layers, or that of each, `bias` says of attention whether it has any; `rope_base` to
        `activation` are what a file has by default.
        """
        shared.check_unsupported_flags(reader)
        return cls(
            **sizes,
            **{"qkv_bias": bias, "output_bias": bias, **choices},
            windows=windows if isinstance(windows, tuple) else (windows,) * sizes["num_layers"],
            activation=reader.activation(activation_name, activation),
            rope=read_rope(reader, sizes, base=rope_base, partial=partial) if rope is None else rope,
            tied=reader.flag("tie_word_embeddings", tied),
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Llama(Decoder):
    """A Llama with its tokenizer."""

    config_type: ClassVar[Any] = LlamaConfig  # a relative has its own
    interleaved: ClassVar[bool] = False  # whether it rotates neighbouring features together
    last_norm: ClassVar[str] = "norm"  # the name of the norm after the blocks
    attention_name: ClassVar[str] = "self_attn"
    make_norm: ClassVar[Callable[..., Any]] = rms_norm

    config: Any

    @property
    def embedding_scale(self) -> float:
        """The factor of the embeddings of tokens."""
        return float(self.config.embedding_scale)

    @property
    def logit_scale(self) -> float:
        """The factor of the logits."""
        return float(self.config.logit_scale)

    def forward_with_cache(
        self, ids: np.ndarray, positions: np.ndarray, caches: Caches, *, mask: np.ndarray | None, trace: Recorder
    ) -> tuple[np.ndarray, Caches]:
        """Embeddings, blocks, final norm; `Decoder.head` makes logits of the result."""
        x = trace("token_embeddings", self.token_embedding(ids), "B T E")
        x = trace("embeddings", x if self.embedding_scale == 1 else x * x.dtype.type(self.embedding_scale), "B T E")
        rotation = self.rotation(positions, x.dtype)
        options = self.block_options(ids, x)
        x, caches = self.run_blocks(x, caches, rotation=rotation, mask=mask, trace=trace, **options)
        return trace("final_norm", traced_norm(self.final_norm, x, trace, "final_norm"), "B T E"), caches

    def block_options(self, ids: np.ndarray, embeddings: np.ndarray) -> dict[str, Any]:  # noqa: ARG002
        """Return further arguments of `run_block`."""
        return {}

    def rotation(self, positions: np.ndarray, dtype: Any) -> CosSin | list[CosSin | None]:
        """Return the rotation of queries and keys at some positions, of all blocks or of each."""
        rotation, rotated = self.config.rope(positions, dtype), self.config.rotated
        is_of_all = rotated is None or all(rotated)
        return rotation if is_of_all else [rotation if rotates else None for rotates in rotated]

    @classmethod
    def layers(cls, source: TensorSource, config: Any) -> dict[str, Any]:
        """Return the fields that are layers, except the head."""
        return {
            "token_embedding": embedding(source, cls.embedding, config.vocab_size, config.embed_dim, in_blocks=True),
            "blocks": tuple(cls.block(source.at(f"layers.{i}"), config, i) for i in range(config.num_layers)),
            "final_norm": cls.norm(source, cls.last_norm, config.embed_dim, config),
        }

    @classmethod
    def block(cls, source: TensorSource, config: Any, layer: int) -> DecoderBlock:
        """Return the block of a layer."""
        norms: dict[str, Any] = {"attn_norm": None}
        for field, name in cls.block_norms(config).items():
            norms[field] = cls.norm(source, name, config.embed_dim, config)
        return DecoderBlock(
            **norms,
            attn=cls.attention(source.at(cls.attention_name), config, layer),
            mlp=cls.mlp(source, config, layer),
            residual_scale=config.residual_scale,
            parallel=config.parallel,
        )

    @classmethod
    def block_norms(cls, config: Any) -> dict[str, str]:  # noqa: ARG003
        """Return the norms of a block, each with its name in the checkpoint."""
        return {"attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}

    @classmethod
    def attention(cls, source: TensorSource, config: Any, layer: int) -> CausalAttention:
        """Return the attention of a block."""
        heads, kv_heads = config.num_heads, config.num_kv_heads
        return causal_attention(
            cls.projections(source, config),
            num_heads=heads,
            window=config.windows[layer],
            interleaved=cls.interleaved,
            scale=config.score_scale,
            softcap=config.score_softcap,
            q_norm=cls.head_norm(source, "q_norm", heads, config) if config.qk_norm else None,
            k_norm=cls.head_norm(source, "k_norm", kv_heads, config) if config.qk_norm else None,
        )

    @classmethod
    def head_norm(cls, source: TensorSource, name: str, heads: int, config: Any) -> LayerNorm | RMSNorm:  # noqa: ARG003
        """Return the norm of each query or each key, of so many heads."""
        return cls.norm(source, name, config.head_dim, config)

    @classmethod
    def norm(cls, source: TensorSource, name: str, features: int, config: Any) -> LayerNorm | RMSNorm:
        """Return a norm of the stream."""
        norm: LayerNorm | RMSNorm = cls.make_norm(source, name, features, config.norm_eps)
        return norm

    @classmethod
    def projections(cls, source: TensorSource, config: Any) -> list[Linear]:
        """Return the linear maps of queries, keys, values and output."""
        biases = {"bias": config.qkv_bias, "output_bias": config.output_bias}
        return projections(source, PROJECTIONS, config.embed_dim, config.widths, **biases)

    @classmethod
    def mlp(cls, source: TensorSource, config: Any, layer: int) -> Any:  # noqa: ARG003
        """Return the feed-forward layer of a block."""
        sizes = config.embed_dim, config.hidden_dim
        return gated_feed_forward(source.at("mlp"), GATED, *sizes, config.activation, bias=config.mlp_bias)
