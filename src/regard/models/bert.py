"""BERT: the encoder of a Transformer, trained to fill in words (Devlin et al. 2018, arXiv:1810.04805).

Word, position and segment embeddings are added and normalised; in every block each token attends to all others, in
both directions. MiniLM and most sentence encoders have this architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from regard.functional import learned_positions
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.build import embedding, encoder_block, layer_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.tensors import TensorSource
from regard.models.encoder import Encoder, run_blocks
from regard.nn import Embedding, EncoderBlock, LayerNorm, Linear, fast_paths
from regard.nn.embeddings import summed_embeddings
from regard.text import SubwordTokenizer


@dataclass(frozen=True)
class BertConfig(ModelConfig):
    """The sizes of a BERT: ``V``, ``E``, ``L``, ``H``, feed-forward width, positions, segments; and its activation."""

    vocab_size: int
    embed_dim: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    max_positions: int
    num_types: int
    activation: str
    norm_eps: float
    embedding_dim: int | None = field(default=None, kw_only=True)  # of tables that are narrower than E

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        return cls(**read_sizes(reader, "bert"))


def read_sizes(
    reader: ConfigReader, *model_types: str, activation: str = "gelu", with_types: bool = True, norm_eps: float = 1e-12
) -> dict[str, Any]:
    """Read the fields that BERT and its relatives have in common.

    `activation` and `norm_eps` are the defaults of the family; without `with_types` it has no segments.
    """
    reader.choice("model_type", model_types[0], model_types)
    reader.only(is_decoder=False, add_cross_attention=False, is_encoder_decoder=False, cross_attention_hidden_size=None)
    reader.only(position_embedding_type="absolute", pruned_heads={})
    reader.without_effect("chunk_size_feed_forward")  # changes memory, not results
    sizes: dict[str, Any] = {
        "vocab_size": reader.count("vocab_size"),
        "embed_dim": reader.count("hidden_size"),
        "num_layers": reader.num_layers("num_hidden_layers"),
        "num_heads": reader.count("num_attention_heads"),
        "hidden_dim": reader.count("intermediate_size"),
        "max_positions": reader.count("max_position_embeddings"),
        "num_types": reader.width("type_vocab_size") if with_types else 0,
        "activation": reader.activation("hidden_act", activation),
        "norm_eps": reader.positive("layer_norm_eps", norm_eps),
    }
    reader.splits("hidden_size", sizes["embed_dim"], sizes["num_heads"])
    return sizes


BLOCK_NAMES = {
    "attn.q_proj": "attention.self.query",
    "attn.k_proj": "attention.self.key",
    "attn.v_proj": "attention.self.value",
    "attn.o_proj": "attention.output.dense",
    "attn_norm": "attention.output.LayerNorm",
    "mlp.up_proj": "intermediate.dense",
    "mlp.down_proj": "output.dense",
    "mlp_norm": "output.LayerNorm",
}


@dataclass(frozen=True, eq=False, repr=False)
class Bert(Encoder):
    """A BERT encoder with its tokenizer.

    Without segments `type_embedding` is None. `embedding_proj` widens embeddings that are narrower than the blocks.
    """

    name: str
    config: BertConfig
    tokenizer: SubwordTokenizer
    token_embedding: Embedding
    position_embedding: Embedding
    type_embedding: Embedding | None
    embedding_norm: LayerNorm
    blocks: tuple[EncoderBlock, ...]
    embedding_proj: Linear | None = field(default=None, kw_only=True)

    config_type: ClassVar[type[BertConfig]] = BertConfig
    prefixes: ClassVar[tuple[str, ...]] = ("", "bert.")
    unused: ClassVar[tuple[str, ...]] = ("pooler.", "cls.", "classifier.", "qa_outputs.")
    block_prefix: ClassVar[str] = "encoder.layer"
    block_names: ClassVar[Mapping[str, str]] = BLOCK_NAMES

    def forward(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of ids ``B T``; `mask`, ``B 1 1 T``, is True where there is text.

        Vectors of padding are 0.

        Taps ``token_embeddings``, ``position_embeddings``, ``type_embeddings`` if there are any, their sum
        ``embeddings``, ``normed_embeddings``, ``projected_embeddings`` if they are widened, and for each block
        ``blocks.i.attn.*``, ``blocks.i.mlp.*``, ``blocks.i.output``.
        """
        x = self.embed_ids(ids, trace)
        if self.embedding_proj is not None:
            x = trace("projected_embeddings", self.embedding_proj(x), "B T E")
        options = self.attention_options()
        fused = None if options else fast_paths.encode(self, self.blocks, x, mask, trace)
        return run_blocks(self.blocks, x, mask, trace, **options) if fused is None else fused

    def embed_ids(self, ids: np.ndarray, trace: Recorder) -> np.ndarray:
        """Return the norm of the sum of all embeddings, ``B T E``, of ids ``B T``."""
        types, norm = self.type_embedding, self.embedding_norm
        x = summed_embeddings(ids, self.token_embedding, self.positions(ids), types, norm, trace)
        return trace("normed_embeddings", x, "B T E")

    def attention_options(self) -> dict[str, Any]:
        """Return further options of attention in every block, such as a bias."""
        return {}

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Return the position embeddings of ids ``B T``: ``T E``, or ``B T E`` where they depend on the text."""
        positions: np.ndarray = learned_positions(self.position_embedding.weight, ids.shape[1])
        return positions

    @classmethod
    def layers(cls, source: TensorSource, config: Any) -> dict[str, Any]:
        """Return the fields that are layers."""
        return {
            **embedding_layers(source.at("embeddings"), config),
            "blocks": tuple(
                encoder_block(source.at(f"{cls.block_prefix}.{i}"), cls.block_names, config, config.norm_eps)
                for i in range(config.num_layers)
            ),
        }


def embedding_layers(source: TensorSource, config: BertConfig) -> dict[str, Any]:
    """Return the tables, as wide as the blocks or narrower, and the norm of their sum."""
    E = config.embedding_dim or config.embed_dim
    has_types = config.num_types > 0
    return {
        "token_embedding": embedding(source, "word_embeddings", config.vocab_size, E),
        "position_embedding": embedding(source, "position_embeddings", config.max_positions, E),
        "type_embedding": embedding(source, "token_type_embeddings", config.num_types, E) if has_types else None,
        "embedding_norm": layer_norm(source, "LayerNorm", E, config.norm_eps),
    }
