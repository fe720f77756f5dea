"""Nomic BERT: BERT with rotary positions, gated feed-forward and fewer biases, for long texts (Nussbaum et al. 2024).

"Nomic Embed", https://arxiv.org/abs/2402.01613.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.base import TextModel
from regard.models.bert import read_sizes, run_blocks
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.listed_tensors import (
    TensorSpec,
    fused_tensors,
    linear_tensors,
    load_tensors,
    norm_tensors,
)
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.open import Checkpoint, tokenizer_for
from regard.models.listed_build import gated_feed_forward, layer_norm, projections
from regard.models.rope import Rope, read_rope
from regard.nn import CosSin, Embedding, EncoderBlock, LayerNorm, SelfAttention
from regard.nn.layers import traced_norm
from regard.text import SubwordTokenizer


@dataclass(frozen=True)
class NomicBertConfig(ModelConfig):
    """The sizes of a Nomic BERT: ``V``, ``E``, ``L``, ``H``, ``D``, feed-forward width, positions, segments."""

    vocab_size: int
    embed_dim: int
    num_layers: int
    num_heads: int
    head_dim: int
    hidden_dim: int
    max_positions: int
    num_types: int
    activation: str
    norm_eps: float
    rope: Rope

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        sizes = read_sizes(reader, "nomic_bert", activation="silu")
        sizes["head_dim"] = reader.optional_count("head_dim") or sizes["embed_dim"] // sizes["num_heads"]
        reader.require(sizes["head_dim"] % 2 == 0, f"head_dim {sizes['head_dim']} is odd, and cannot rotate in pairs")
        config = cls(**sizes, rope=read_rope(reader, sizes, base=1000.0))
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False)
class NomicBert(TextModel):
    """A Nomic BERT encoder with its tokenizer."""

    name: str
    config: NomicBertConfig
    tokenizer: SubwordTokenizer
    token_embedding: Embedding
    type_embedding: Embedding
    embedding_norm: LayerNorm
    blocks: tuple[EncoderBlock, ...]

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
        return run_blocks(self.blocks, x, mask, trace, [{"rotation": rotation}] * len(self.blocks))

    def rotation(self, positions: np.ndarray, dtype: Any) -> CosSin:
        """Return the rotation of queries and keys at some positions, of all blocks."""
        return self.config.rope(positions, dtype)

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = NomicBertConfig.read(checkpoint.config())
        weights = load_tensors(
            checkpoint,
            _tensors(config),
            num_layers=config.num_layers,
            prefixes=("", "bert.", "nomic_bert."),
            unused=("pooler.", "cls.", "classifier.", "qa_outputs."),
            dtype=dtype,
        )
        return cls(
            name=name,
            config=config,
            tokenizer=tokenizer_for(checkpoint, config.vocab_size),
            token_embedding=Embedding(weights["token_embedding.weight"]),
            type_embedding=Embedding(weights["type_embedding.weight"]),
            embedding_norm=layer_norm(weights, "embedding_norm", config.norm_eps),
            blocks=tuple(_block(weights, f"blocks.{i}", config) for i in range(config.num_layers)),
        )


def _block(weights: dict[str, np.ndarray], at: str, config: NomicBertConfig) -> EncoderBlock:
    return EncoderBlock(
        SelfAttention(*projections(weights, f"{at}.attn"), num_heads=config.num_heads),
        layer_norm(weights, f"{at}.attn_norm", config.norm_eps),
        gated_feed_forward(weights, f"{at}.mlp", config.activation),
        layer_norm(weights, f"{at}.mlp_norm", config.norm_eps),
    )


def _tensors(config: NomicBertConfig) -> Iterator[TensorSpec]:
    """Yield every tensor."""
    E, F, heads = config.embed_dim, config.hidden_dim, config.num_heads * config.head_dim
    yield TensorSpec("token_embedding.weight", "embeddings.word_embeddings.weight", (config.vocab_size, E))
    yield TensorSpec("type_embedding.weight", "embeddings.token_type_embeddings.weight", (config.num_types, E))
    yield from norm_tensors("embedding_norm", "emb_ln", E)
    for i in range(config.num_layers):
        at, hf = f"blocks.{i}", f"encoder.layers.{i}"
        yield from fused_tensors({f"{at}.attn.{part}_proj": heads for part in "qkv"}, f"{hf}.attn.Wqkv", E, bias=False)
        yield from linear_tensors(f"{at}.attn.o_proj", f"{hf}.attn.out_proj", heads, E, bias=False)
        yield from norm_tensors(f"{at}.attn_norm", f"{hf}.norm1", E)
        for part, hf_part, inputs, outputs in (("up", "fc11", E, F), ("gate", "fc12", E, F), ("down", "fc2", F, E)):
            yield from linear_tensors(f"{at}.mlp.{part}_proj", f"{hf}.mlp.{hf_part}", inputs, outputs, bias=False)
        yield from norm_tensors(f"{at}.mlp_norm", f"{hf}.norm2", E)
