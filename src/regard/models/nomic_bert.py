"""Nomic BERT: BERT with rotary positions, gated feed-forward and fewer biases, for long texts (Nussbaum et al. 2024).

"Nomic Embed", https://arxiv.org/abs/2402.01613.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.bert import BertConfig, read_sizes
from regard.models.build import embedding, fused_linears, layer_norm, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.encoder import Encoder, run_blocks
from regard.models.rope import Rope, read_rope
from regard.nn import CosSin, Embedding, EncoderBlock, GatedFeedForward, LayerNorm, SelfAttention
from regard.nn.layers import traced_norm
from regard.text import SubwordTokenizer


@dataclass(frozen=True)
class NomicBertConfig(BertConfig):
    """The configuration of a BERT, with ``D`` and a rotation."""

    head_dim: int
    rope: Rope

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        sizes = read_sizes(reader, "nomic_bert", activation="silu")
        sizes["head_dim"] = reader.optional_count("head_dim") or sizes["embed_dim"] // sizes["num_heads"]
        reader.require(sizes["head_dim"] % 2 == 0, f"head_dim {sizes['head_dim']} is odd, and cannot rotate in pairs")
        return cls(**sizes, rope=read_rope(reader, sizes, base=1000.0))


@dataclass(frozen=True, eq=False, repr=False)
class NomicBert(Encoder):
    """A Nomic BERT encoder with its tokenizer."""

    name: str
    config: NomicBertConfig
    tokenizer: SubwordTokenizer
    token_embedding: Embedding
    type_embedding: Embedding
    embedding_norm: LayerNorm
    blocks: tuple[EncoderBlock, ...]

    config_type: ClassVar[Any] = NomicBertConfig
    prefixes: ClassVar[tuple[str, ...]] = ("", "bert.", "nomic_bert.")
    unused: ClassVar[tuple[str, ...]] = ("pooler.", "cls.", "classifier.", "qa_outputs.")

    @property
    def max_length(self) -> int:
        """The most tokens of a text."""
        return self.config.rope.max_context(self.config.max_positions)

    def forward(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of ids ``B T``; `mask`, ``B 1 1 T``, is True where there is text.

        Vectors of padding are 0. Taps those of `Bert.forward`, without ``position_embeddings``.
        """
        x = trace("token_embeddings", self.token_embedding(ids), "B T E")
        segment = trace("type_embeddings", self.type_embedding(np.zeros(ids.shape[1], dtype=int)), "T E")
        x = trace("embeddings", x + segment, "B T E")
        x = trace("normed_embeddings", traced_norm(self.embedding_norm, x, trace, "embedding_norm"), "B T E")
        rotation = self.rotation(np.arange(ids.shape[1]), x.dtype)
        return run_blocks(self.blocks, x, mask, trace, rotation=rotation)

    def rotation(self, positions: np.ndarray, dtype: Any) -> CosSin:
        """Return the rotation of queries and keys at some positions, of all blocks."""
        return self.config.rope(positions, dtype)

    @classmethod
    def layers(cls, source: TensorSource, config: NomicBertConfig) -> dict[str, Any]:
        """Return the fields that are layers."""
        embeddings, E = source.at("embeddings"), config.embed_dim
        return {
            "token_embedding": embedding(embeddings, "word_embeddings", config.vocab_size, E),
            "type_embedding": embedding(embeddings, "token_type_embeddings", config.num_types, E),
            "embedding_norm": layer_norm(source, "emb_ln", E, config.norm_eps),
            "blocks": tuple(_block(source.at(f"encoder.layers.{i}"), config) for i in range(config.num_layers)),
        }


def _block(source: TensorSource, config: NomicBertConfig) -> EncoderBlock:
    E, F, width, eps = config.embed_dim, config.hidden_dim, config.num_heads * config.head_dim, config.norm_eps
    q, k, v = fused_linears(source, "attn.Wqkv", E, (width, width, width), bias=False)
    o = linear(source, "attn.out_proj", width, E, bias=False)
    attn = SelfAttention(q, k, v, o, num_heads=config.num_heads)
    attn_norm = layer_norm(source, "norm1", E, eps)
    sizes = {"fc11": (E, F), "fc12": (E, F), "fc2": (F, E)}
    up, gate, down = (linear(source, f"mlp.{name}", *size, bias=False) for name, size in sizes.items())
    mlp = GatedFeedForward(gate, up, down, activation=config.activation)
    return EncoderBlock(attn, attn_norm, mlp, layer_norm(source, "norm2", E, eps))
