"""DistilBERT: half of BERT's blocks, distilled from the whole (Sanh et al. 2019, arXiv:1910.01108).

The blocks are BERT's. There are no segment embeddings, and checkpoints have other names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from regard.functional import learned_positions
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.base import TextModel
from regard.models.build import encoder_blocks, layer_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.open import Checkpoint, tokenizer_for
from regard.models.checkpoint.tensors import TensorSpec, linear_tensors, load_tensors, norm_tensors
from regard.nn import Embedding, EncoderBlock, LayerNorm
from regard.text import SubwordTokenizer

_NORM_EPS = 1e-12  # its configuration has no field for it


@dataclass(frozen=True)
class DistilBertConfig:
    """The sizes of a DistilBERT: ``V``, ``E``, ``L``, ``H``, feed-forward width, positions; and its activation."""

    vocab_size: int
    embed_dim: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    max_positions: int
    activation: str

    @classmethod
    def read(cls, reader: ConfigReader) -> DistilBertConfig:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.choice("model_type", "distilbert", ["distilbert"])
        reader.choice("is_decoder", False, [False])
        reader.choice("is_encoder_decoder", False, [False])
        reader.choice("pruned_heads", {}, [{}])
        reader.choice(
            "sinusoidal_pos_embds", False, [False, True]
        )  # how the table was initialised; it is stored either way
        reader.ignore("chunk_size_feed_forward", "dropout", "qa_dropout", "seq_classif_dropout", "tie_weights_")
        config = cls(
            vocab_size=reader.count("vocab_size"),
            embed_dim=reader.count("dim"),
            num_layers=reader.count("n_layers"),
            num_heads=reader.count("n_heads"),
            hidden_dim=reader.count("hidden_dim"),
            max_positions=reader.count("max_position_embeddings"),
            activation=reader.activation("activation", "gelu"),
        )
        reader.splits("dim", config.embed_dim, config.num_heads)
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False)
class DistilBert(TextModel):
    """A DistilBERT encoder with its tokenizer."""

    name: str
    config: DistilBertConfig
    tokenizer: SubwordTokenizer
    token_embedding: Embedding
    position_embedding: Embedding
    embedding_norm: LayerNorm
    blocks: tuple[EncoderBlock, ...]

    @property
    def max_length(self) -> int:
        """The most tokens of a text."""
        return self.config.max_positions

    def forward(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of ids ``B T``; `mask`, ``B 1 1 T``, is True where there is text.

        Taps ``token_embeddings``, ``position_embeddings``, their sum ``embeddings``, ``normed_embeddings``, and for
        each block ``blocks.i.attn.*``, ``blocks.i.mlp.*``, ``blocks.i.output``.
        """
        tokens = trace("token_embeddings", self.token_embedding(ids), "B T E")
        positions = learned_positions(self.position_embedding.weight, ids.shape[1])
        positions = trace("position_embeddings", positions, "T E")
        embeddings = trace("embeddings", tokens + positions, "B T E")
        x: np.ndarray = trace("normed_embeddings", self.embedding_norm(embeddings), "B T E")
        for index, block in enumerate(self.blocks):
            with trace.scope(f"blocks.{index}"):
                x = block(x, mask=mask, trace=trace)
        return x

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = DistilBertConfig.read(checkpoint.config())
        weights = load_tensors(
            checkpoint,
            _tensors(config),
            num_layers=config.num_layers,
            prefixes=("", "distilbert."),
            unused=("embeddings.position_ids", "vocab_", "pre_classifier.", "classifier.", "qa_outputs."),
            dtype=dtype,
        )
        return cls(
            name=name,
            config=config,
            tokenizer=tokenizer_for(checkpoint, config.vocab_size),
            token_embedding=Embedding(weights["token_embedding.weight"]),
            position_embedding=Embedding(weights["position_embedding.weight"]),
            embedding_norm=layer_norm(weights, "embedding_norm", _NORM_EPS),
            blocks=encoder_blocks(weights, "", config, _NORM_EPS),
        )


def _tensors(config: DistilBertConfig) -> Iterator[TensorSpec]:
    """Yield every tensor of a DistilBERT."""
    E, F = config.embed_dim, config.hidden_dim
    yield TensorSpec("token_embedding.weight", "embeddings.word_embeddings.weight", (config.vocab_size, E))
    yield TensorSpec("position_embedding.weight", "embeddings.position_embeddings.weight", (config.max_positions, E))
    yield from norm_tensors("embedding_norm", "embeddings.LayerNorm", E)
    for i in range(config.num_layers):
        name, hf_name = f"blocks.{i}", f"transformer.layer.{i}"
        yield from linear_tensors(f"{name}.attn.q_proj", f"{hf_name}.attention.q_lin", E, E)
        yield from linear_tensors(f"{name}.attn.k_proj", f"{hf_name}.attention.k_lin", E, E)
        yield from linear_tensors(f"{name}.attn.v_proj", f"{hf_name}.attention.v_lin", E, E)
        yield from linear_tensors(f"{name}.attn.o_proj", f"{hf_name}.attention.out_lin", E, E)
        yield from norm_tensors(f"{name}.attn_norm", f"{hf_name}.sa_layer_norm", E)
        yield from linear_tensors(f"{name}.mlp.up_proj", f"{hf_name}.ffn.lin1", E, F)
        yield from linear_tensors(f"{name}.mlp.down_proj", f"{hf_name}.ffn.lin2", F, E)
        yield from norm_tensors(f"{name}.mlp_norm", f"{hf_name}.output_layer_norm", E)
