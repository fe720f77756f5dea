"""Llama: a decoder with rotary positions, gated feed-forward and RMS norms (Touvron et al. 2023, arXiv:2302.13971).

Query heads share key/value heads (arXiv:2307.09288); the rotation is scaled for longer texts (arXiv:2407.21783).
Mistral and Qwen are configurations of this model; others change its blocks.
"""

from __future__ import annotations

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
from regard.models.rope import read_rope
from regard.nn import CausalAttention, CosSin, DecoderBlock, LayerNorm, Linear, RMSNorm
from regard.nn.layers import traced_norm


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(shared.DecoderConfig):
    """The sizes of a Llama, its activation, and which parts have a bias or a norm."""

    activation: str
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="llama", is_llama_config=True, rope_interleaved=False)
        reader.without_effect("pretraining_tp")  # how matrices were split for training
        bias = reader.flag("attention_bias", False)
        sizes = shared.read_sizes(reader)
        windows = (None,) * sizes["num_layers"]
        mlp_bias = reader.flag("mlp_bias", False)
        return cls._finish(reader, sizes, windows=windows, qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias)

    @classmethod
    def _finish(
        cls,
        reader: ConfigReader,
        sizes: dict[str, Any],
        *,
        rope_base: float = 10_000.0,
        partial: float | None = None,
        tied: bool = False,
        activation: str = "silu",
        **choices: Any,
    ) -> Self:
        """Read the fields that Llama and its relatives have in common."""
        shared.check_unsupported_flags(reader)
        config = cls(
            **sizes,
            **choices,
            activation=reader.activation("hidden_act", activation),
            rope=read_rope(reader, sizes, base=rope_base, partial=partial),
            tied=reader.flag("tie_word_embeddings", tied),
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Llama(Decoder):
    """A Llama with its tokenizer."""

    config_type: ClassVar[Any] = LlamaConfig  # a relative has its own
    interleaved: ClassVar[bool] = False  # whether it rotates neighbouring features together
    last_norm: ClassVar[str] = "norm"  # the name of the norm after the blocks

    config: Any

    def forward_with_cache(
        self, ids: np.ndarray, positions: np.ndarray, caches: Caches, *, mask: np.ndarray | None, trace: Recorder
    ) -> tuple[np.ndarray, Caches]:
        """Embeddings, blocks, final norm; `Decoder.head` makes logits of the result."""
        x = trace("token_embeddings", self.token_embedding(ids), "B T E")
        x = trace("embeddings", x if self.embedding_scale == 1 else x * x.dtype.type(self.embedding_scale), "B T E")
        rotation = self.rotation(positions, x.dtype)
        x, caches = self.run_blocks(x, caches, rotation=rotation, mask=mask, trace=trace)
        return trace("final_norm", traced_norm(self.final_norm, x, trace, "final_norm"), "B T E"), caches

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
        return DecoderBlock(
            cls.norm(source, "input_layernorm", config.embed_dim, config),
            cls.attention(source.at("self_attn"), config, layer),
            cls.norm(source, "post_attention_layernorm", config.embed_dim, config),
            cls.mlp(source, config, layer),
        )

    @classmethod
    def attention(cls, source: TensorSource, config: Any, layer: int) -> CausalAttention:
        """Return the attention of a block."""
        heads, kv_heads = config.num_heads, config.num_kv_heads
        return causal_attention(
            cls.projections(source, config),
            num_heads=heads,
            window=config.windows[layer],
            interleaved=cls.interleaved,
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
        return rms_norm(source, name, features, config.norm_eps)

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
