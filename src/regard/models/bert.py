"""BERT: the encoder of a Transformer, trained to fill in words (Devlin et al. 2018, arXiv:1810.04805).

Word, position and segment embeddings are added and normalised; every block then lets each token look at all
others, in both directions. MiniLM and most sentence encoders have this shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._recorder import SILENT, Recorder
from regard.functional import table_positions
from regard.models._checkpoint import Checkpoint, take, tokenizer_for
from regard.models._config import ConfigReader
from regard.models._model import TextModel
from regard.models._weights import Tensor
from regard.nn import Embedding, EncoderBlock, FeedForward, LayerNorm, Linear, SelfAttention
from regard.text import SubwordTokenizer


@dataclass(frozen=True)
class BertConfig:
    """The sizes of a BERT: ``V``, ``E``, ``L``, ``H``, feed-forward width, positions, segments; and its choices."""

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
        """Take the fields of a Hugging Face config.json; anything unknown is an error."""
        reader.choice("model_type", "bert", ["bert"])
        for name, only in (
            ("is_decoder", False),
            ("add_cross_attention", False),
            ("is_encoder_decoder", False),
        ):
            reader.choice(name, only, [only])
        reader.choice("position_embedding_type", "absolute", ["absolute"])
        reader.choice("chunk_size_feed_forward", 0, [0])
        reader.choice("pruned_heads", {}, [{}])
        reader.choice("cross_attention_hidden_size", None, [None])
        config = cls(
            vocab_size=reader.count("vocab_size"),
            embed_dim=reader.count("hidden_size"),
            num_layers=reader.count("num_hidden_layers"),
            num_heads=reader.count("num_attention_heads"),
            hidden_dim=reader.count("intermediate_size"),
            max_positions=reader.count("max_position_embeddings"),
            num_types=reader.count("type_vocab_size"),
            activation=reader.activation("hidden_act", "gelu"),
            norm_eps=reader.positive("layer_norm_eps", 1e-12),
        )
        reader.require(
            config.embed_dim % config.num_heads == 0,
            f"hidden_size {config.embed_dim} does not split into {config.num_heads} attention heads",
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False)
class Bert(TextModel):
    """A BERT encoder with its tokenizer."""

    name: str
    config: BertConfig
    tokenizer: SubwordTokenizer
    token_embedding: Embedding
    position_embedding: Embedding
    type_embedding: Embedding
    embedding_norm: LayerNorm
    blocks: tuple[EncoderBlock, ...]

    @property
    def limit(self) -> int:
        """The most tokens that it looks at at once."""
        return self.config.max_positions

    def run(self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = SILENT) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of ids ``B T``; `mask`, ``B 1 1 T``, is True where there is text.

        Taps ``token_embeddings``, ``position_embeddings``, ``type_embeddings``, their sum ``embeddings``,
        ``normed_embeddings``, and for each block ``blocks.i.attn.*``, ``blocks.i.mlp.*``, ``blocks.i.output``.
        """
        length = ids.shape[1]
        tokens = trace("token_embeddings", self.token_embedding(ids), "B T E")
        positions = table_positions(self.position_embedding.weight, length)
        positions = trace("position_embeddings", positions, "T E")
        segment = trace("type_embeddings", self.type_embedding(np.zeros(length, dtype=int)), "T E")
        embeddings = trace("embeddings", tokens + positions + segment, "B T E")
        x: np.ndarray = trace("normed_embeddings", self.embedding_norm(embeddings), "B T E")
        for index, block in enumerate(self.blocks):
            with trace.scope(f"blocks.{index}"):
                x = block(x, mask=mask, trace=trace)
        return x

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Bert:
        """Build the model from its files."""
        config = BertConfig.read(checkpoint.config())
        weights = take(
            checkpoint,
            _tensors(config),
            num_layers=config.num_layers,
            prefixes=("", "bert."),
            unused=("embeddings.position_ids", "pooler.", "cls.", "classifier.", "qa_outputs."),
            endings={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
            dtype=dtype,
        )
        tokenizer = tokenizer_for(checkpoint, config.vocab_size)
        return cls(
            name=name,
            config=config,
            tokenizer=tokenizer,
            token_embedding=Embedding(weights["token_embedding.weight"]),
            position_embedding=Embedding(weights["position_embedding.weight"]),
            type_embedding=Embedding(weights["type_embedding.weight"]),
            embedding_norm=_norm(weights, "embedding_norm", config),
            blocks=tuple(_block(weights, f"blocks.{i}", config) for i in range(config.num_layers)),
        )


def _block(weights: dict[str, np.ndarray], at: str, config: BertConfig) -> EncoderBlock:
    def linear(name: str) -> Linear:
        return Linear(weights[f"{at}.{name}.weight"], weights[f"{at}.{name}.bias"])

    return EncoderBlock(
        SelfAttention(
            linear("attn.q_proj"),
            linear("attn.k_proj"),
            linear("attn.v_proj"),
            linear("attn.o_proj"),
            num_heads=config.num_heads,
        ),
        _norm(weights, f"{at}.attn_norm", config),
        FeedForward(linear("mlp.up_proj"), linear("mlp.down_proj"), activation=config.activation),
        _norm(weights, f"{at}.mlp_norm", config),
    )


def _norm(weights: dict[str, np.ndarray], at: str, config: BertConfig) -> LayerNorm:
    return LayerNorm(weights[f"{at}.weight"], weights[f"{at}.bias"], config.norm_eps)


def _tensors(config: BertConfig) -> Iterator[Tensor]:
    """Yield every tensor of a BERT, under our name and under that of a Hugging Face checkpoint."""
    E, F = config.embed_dim, config.hidden_dim
    yield Tensor("token_embedding.weight", "embeddings.word_embeddings.weight", (config.vocab_size, E))
    yield Tensor("position_embedding.weight", "embeddings.position_embeddings.weight", (config.max_positions, E))
    yield Tensor("type_embedding.weight", "embeddings.token_type_embeddings.weight", (config.num_types, E))
    yield from _norm_tensors("embedding_norm", "embeddings.LayerNorm", E)
    for i in range(config.num_layers):
        ours, theirs = f"blocks.{i}", f"encoder.layer.{i}"
        yield from _linear_tensors(f"{ours}.attn.q_proj", f"{theirs}.attention.self.query", E, E)
        yield from _linear_tensors(f"{ours}.attn.k_proj", f"{theirs}.attention.self.key", E, E)
        yield from _linear_tensors(f"{ours}.attn.v_proj", f"{theirs}.attention.self.value", E, E)
        yield from _linear_tensors(f"{ours}.attn.o_proj", f"{theirs}.attention.output.dense", E, E)
        yield from _norm_tensors(f"{ours}.attn_norm", f"{theirs}.attention.output.LayerNorm", E)
        yield from _linear_tensors(f"{ours}.mlp.up_proj", f"{theirs}.intermediate.dense", E, F)
        yield from _linear_tensors(f"{ours}.mlp.down_proj", f"{theirs}.output.dense", F, E)
        yield from _norm_tensors(f"{ours}.mlp_norm", f"{theirs}.output.LayerNorm", E)


def _linear_tensors(name: str, stored: str, inputs: int, outputs: int) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", f"{stored}.weight", (outputs, inputs), transposed=True)
    yield Tensor(f"{name}.bias", f"{stored}.bias", (outputs,))


def _norm_tensors(name: str, stored: str, features: int) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", f"{stored}.weight", (features,))
    yield Tensor(f"{name}.bias", f"{stored}.bias", (features,))
