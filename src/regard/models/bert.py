"""BERT: the encoder of a Transformer, trained to fill in words (Devlin et al. 2018, arXiv:1810.04805).

Word, position and segment embeddings are added and normalised; in every block each token attends to all others, in
both directions. MiniLM and most sentence encoders have this architecture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.functional import learned_positions
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.base import TextModel
from regard.models.build import encoder_blocks, layer_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.open import Checkpoint, tokenizer_for
from regard.models.checkpoint.tensors import TensorSpec, linear_tensors, load_tensors, norm_tensors
from regard.nn import Embedding, EncoderBlock, LayerNorm, fast_paths
from regard.text import SubwordTokenizer


@dataclass(frozen=True)
class BertConfig:
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

    @classmethod
    def read(cls, reader: ConfigReader) -> BertConfig:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        config = cls(**read_sizes(reader, "bert"))
        reader.finish()
        return config


def read_sizes(reader: ConfigReader, *model_types: str) -> dict[str, Any]:
    """Read the fields that BERT and RoBERTa have in common."""
    reader.choice("model_type", model_types[0], model_types)
    reader.only(is_decoder=False, add_cross_attention=False, is_encoder_decoder=False, cross_attention_hidden_size=None)
    reader.only(position_embedding_type="absolute", pruned_heads={})
    reader.ignore("chunk_size_feed_forward")  # changes memory, not results
    sizes: dict[str, Any] = {
        "vocab_size": reader.count("vocab_size"),
        "embed_dim": reader.count("hidden_size"),
        "num_layers": reader.count("num_hidden_layers"),
        "num_heads": reader.count("num_attention_heads"),
        "hidden_dim": reader.count("intermediate_size"),
        "max_positions": reader.count("max_position_embeddings"),
        "num_types": reader.count("type_vocab_size"),
        "activation": reader.activation("hidden_act", "gelu"),
        "norm_eps": reader.positive("layer_norm_eps", 1e-12),
    }
    reader.splits("hidden_size", sizes["embed_dim"], sizes["num_heads"])
    return sizes


_BLOCK_NAMES = {
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
class Bert(TextModel):
    """A BERT encoder with its tokenizer; without segments `type_embedding` is None."""

    name: str
    config: BertConfig
    tokenizer: SubwordTokenizer
    token_embedding: Embedding
    position_embedding: Embedding
    type_embedding: Embedding | None
    embedding_norm: LayerNorm
    blocks: tuple[EncoderBlock, ...]

    config_type: ClassVar[type[BertConfig]] = BertConfig
    prefixes: ClassVar[tuple[str, ...]] = ("", "bert.")
    unused: ClassVar[tuple[str, ...]] = ("embeddings.position_ids", "pooler.", "cls.", "classifier.", "qa_outputs.")
    block_prefix: ClassVar[str] = "encoder.layer."
    block_names: ClassVar[Mapping[str, str]] = _BLOCK_NAMES

    @property
    def max_length(self) -> int:
        """The most tokens of a text."""
        return self.config.max_positions

    def forward(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of ids ``B T``; `mask`, ``B 1 1 T``, is True where there is text.

        Vectors of padding are 0.

        Taps ``token_embeddings``, ``position_embeddings``, ``type_embeddings`` if there are any, their sum
        ``embeddings``, ``normed_embeddings``, and for each block ``blocks.i.attn.*``, ``blocks.i.mlp.*``,
        ``blocks.i.output``.
        """
        tokens = trace("token_embeddings", self.token_embedding(ids), "B T E")
        positions = self.positions(ids)
        positions = trace("position_embeddings", positions, "B T E" if positions.ndim == 3 else "T E")
        embeddings = tokens + positions
        if self.type_embedding is not None:
            segment = self.type_embedding(np.zeros(ids.shape[1], dtype=int))
            embeddings = embeddings + trace("type_embeddings", segment, "T E")
        embeddings = trace("embeddings", embeddings, "B T E")
        x: np.ndarray = trace("normed_embeddings", self.embedding_norm(embeddings), "B T E")
        fused = fast_paths.encode(self, self.blocks, x, mask, trace)
        if fused is not None:
            return fused
        for index, block in enumerate(self.blocks):
            with trace.scope(f"blocks.{index}"):
                x = block(x, mask=mask, trace=trace)
        return x if mask is None else np.where(mask[:, 0, 0, :, None], x, x.dtype.type(0))

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Return the position embeddings of ids ``B T``: ``T E``, or ``B T E`` where they depend on the text."""
        positions: np.ndarray = learned_positions(self.position_embedding.weight, ids.shape[1])
        return positions

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = cls.config_type.read(checkpoint.config())
        weights = load_tensors(
            checkpoint,
            _tensors(config, cls.block_prefix, cls.block_names),
            num_layers=config.num_layers,
            prefixes=cls.prefixes,
            unused=cls.unused,
            renamed_suffixes={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
            dtype=dtype,
        )
        return cls(
            name=name,
            config=config,
            tokenizer=tokenizer_for(checkpoint, config.vocab_size),
            token_embedding=Embedding(weights["token_embedding.weight"]),
            position_embedding=Embedding(weights["position_embedding.weight"]),
            type_embedding=Embedding(weights["type_embedding.weight"]) if config.num_types else None,
            embedding_norm=layer_norm(weights, "embedding_norm", config.norm_eps),
            blocks=encoder_blocks(weights, "", config, config.norm_eps),
        )


def _tensors(config: BertConfig, block_prefix: str, block_names: Mapping[str, str]) -> Iterator[TensorSpec]:
    """Yield every tensor of a BERT."""
    E, F = config.embed_dim, config.hidden_dim
    yield TensorSpec("token_embedding.weight", "embeddings.word_embeddings.weight", (config.vocab_size, E))
    yield TensorSpec("position_embedding.weight", "embeddings.position_embeddings.weight", (config.max_positions, E))
    if config.num_types:
        yield TensorSpec("type_embedding.weight", "embeddings.token_type_embeddings.weight", (config.num_types, E))
    yield from norm_tensors("embedding_norm", "embeddings.LayerNorm", E)
    for i in range(config.num_layers):
        for part, hf_part in block_names.items():
            name, hf_name = f"blocks.{i}.{part}", f"{block_prefix}{i}.{hf_part}"
            if part.endswith("_norm"):
                yield from norm_tensors(name, hf_name, E)
            else:
                inputs, outputs = {"mlp.up_proj": (E, F), "mlp.down_proj": (F, E)}.get(part, (E, E))
                yield from linear_tensors(name, hf_name, inputs, outputs)
