"""BART: an encoder-decoder trained to restore corrupted text (Lewis et al. 2019, arXiv:1910.13461).

The original Transformer with learned positions: a norm after each residual sum, and one after the embeddings. The first
two rows of the position tables are unused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np

from regard.functional import learned_positions
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.build import embedding, encoder_block, feed_forward, layer_norm, projections
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.generation_config import config_with_start_id, has_start_id
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.open import Checkpoint
from regard.models.checkpoint.tensors import TensorSource, load_layers
from regard.models.encoder_decoder import EncoderDecoder, embedding_names, embedding_tables
from regard.models.generation.decoding_state import DecodingState
from regard.models.language import language_fields
from regard.nn import CrossAttention, Embedding, EncoderBlock, FeedForward, Layer, LayerNorm, Linear, SelfAttention
from regard.nn.kv_cache import KVCache
from regard.nn.layers import normed, traced_norm

_NORM_EPS = 1e-5  # its configuration has no field for it
_POSITION_OFFSET = 2  # the row of the first position


@dataclass(frozen=True)
class BartConfig(ModelConfig):
    """The configuration of a BART.

    ``V``, ``E``, positions; blocks, ``H`` and feed-forward width of encoder and decoder; whether embeddings are
    multiplied by √E; whether the head shares the embedding table.
    """

    vocab_size: int
    embed_dim: int
    max_positions: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    num_decoder_layers: int
    num_decoder_heads: int
    decoder_hidden_dim: int
    activation: str
    scales_embeddings: bool
    is_tied: bool
    start_id: int

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="bart", is_encoder_decoder=True, is_decoder=False, add_bias_logits=False)
        reader.only(add_final_layer_norm=False, normalize_before=False, normalize_embedding=True)
        reader.only(static_position_embeddings=False, extra_pos_embeddings=_POSITION_OFFSET)
        reader.without_effect(
            "activation_dropout", "classif_dropout", "decoder_layerdrop", "dropout", "encoder_layerdrop",
            "force_bos_token_to_be_generated", "init_std",
        )  # fmt: skip
        vocab_size = reader.count("vocab_size")
        config = cls(
            vocab_size=vocab_size,
            embed_dim=reader.count("d_model"),
            max_positions=reader.count("max_position_embeddings"),
            num_layers=reader.num_layers("encoder_layers"),
            num_heads=reader.count("encoder_attention_heads"),
            hidden_dim=reader.count("encoder_ffn_dim"),
            num_decoder_layers=reader.num_layers("decoder_layers"),
            num_decoder_heads=reader.count("decoder_attention_heads"),
            decoder_hidden_dim=reader.count("decoder_ffn_dim"),
            activation=reader.activation("activation_function", "gelu"),
            scales_embeddings=reader.flag("scale_embedding", False),
            is_tied=reader.flag("tie_word_embeddings", True),
            start_id=reader.index("decoder_start_token_id", 2, vocab_size),
        )
        for num_heads in (config.num_heads, config.num_decoder_heads):
            reader.splits("d_model", config.embed_dim, num_heads)
        return config


@dataclass(frozen=True, eq=False, repr=False)
class BartDecoderBlock(Layer):
    """Causal self-attention, cross-attention and feed-forward, with a norm after each residual sum."""

    attn: SelfAttention
    attn_norm: LayerNorm
    cross_attn: CrossAttention
    cross_norm: LayerNorm
    mlp: FeedForward
    mlp_norm: LayerNorm

    def __call__(
        self,
        x: np.ndarray,
        cache: KVCache,
        memory: KVCache,
        *,
        mask: np.ndarray | None,
        memory_mask: np.ndarray | None,
        trace: Recorder = NULL_RECORDER,
    ) -> tuple[np.ndarray, KVCache]:
        """Return ``B T E`` for x, ``B T E``, the tokens after those of the cache, and the cache with x appended.

        Taps ``attn.*``, ``attn_residual``, ``cross_attn.*``, ``cross_attn_residual``, ``mlp.*`` and ``output``.
        """
        with trace.scope("attn"):
            q, k, v = self.attn.project_qkv(x, trace=trace)
            cache = cache.append(k, v)
            y = self.attn.attend(q, cache.k, cache.v, causal=True, mask=mask, trace=trace)
        x = trace("attn_residual", normed(self.attn_norm, x, trace, "attn_norm", residual=y), "B T E")
        with trace.scope("cross_attn"):
            q = self.cross_attn.project_q(x, trace=trace)
            y = self.cross_attn.attend(q, memory.k, memory.v, mask=memory_mask, trace=trace)
        x = trace("cross_attn_residual", normed(self.cross_norm, x, trace, "cross_norm", residual=y), "B T E")
        with trace.scope("mlp"):
            y = self.mlp(x, trace=trace)
        return trace("output", normed(self.mlp_norm, x, trace, "mlp_norm", residual=y), "B T E"), cache


@dataclass(frozen=True, eq=False, repr=False)
class BartEmbedding(Layer):
    """The embeddings of the encoder or the decoder.

    Parameters
    ----------
    token_embedding : Embedding, ``V E``
    position_embedding : Embedding, ``P E``
    norm : LayerNorm
    scale : float
        Of the token embeddings.
    """

    token_embedding: Embedding
    position_embedding: Embedding
    norm: LayerNorm
    scale: float = 1.0

    def __call__(self, ids: np.ndarray, start: int = 0, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return ``B T E`` for ids ``B T`` from position `start` on.

        Taps ``token_embeddings`` (after scaling), ``position_embeddings``, their sum ``embeddings``, and
        ``normed_embeddings``.
        """
        tokens = self.token_embedding(ids)
        tokens = trace("token_embeddings", tokens * tokens.dtype.type(self.scale), "B T E")
        positions = learned_positions(self.position_embedding.weight, ids.shape[1], offset=_POSITION_OFFSET + start)
        positions = trace("position_embeddings", positions, "T E")
        embeddings = trace("embeddings", tokens + positions, "B T E")
        return trace("normed_embeddings", traced_norm(self.norm, embeddings, trace, "embedding_norm"), "B T E")


Block = TypeVar("Block")


@dataclass(frozen=True, eq=False, repr=False)
class BartStack(Layer, Generic[Block]):
    """The encoder, whose blocks are like BERT's, or the decoder."""

    embedding: BartEmbedding
    blocks: tuple[Block, ...]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Bart(EncoderDecoder):
    """A BART with its tokenizer."""

    config: BartConfig
    encoder: BartStack[EncoderBlock]
    decoder: BartStack[BartDecoderBlock]
    lm_head: Linear

    @property
    def max_length(self) -> int:
        """The most tokens of a text, and of a target."""
        return self.config.max_positions

    def encode(self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the encoder's contextual vectors, ``B S E``, of ids ``B S``; `mask`, ``B 1 1 S``, is True at text.

        Taps ``encoder.token_embeddings`` and the others of `BartEmbedding`, and for each block
        ``encoder.blocks.i.attn.*`` and so on.
        """
        with trace.scope("encoder"):
            x = self.encoder.embedding(ids, trace=trace)
            for index, block in enumerate(self.encoder.blocks):
                with trace.scope(f"blocks.{index}"):
                    x = block(x, mask=mask, trace=trace)
        return x

    def decode(
        self, ids: np.ndarray, state: DecodingState, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Return the decoder's contextual vectors, ``B T E``, of tokens after those of `state`, and the next state.

        Taps as `encode` does, under ``decoder.``, and ``decoder.blocks.i.cross_attn.*``.
        """
        caches = []
        with trace.scope("decoder"):
            x = self.decoder.embedding(ids, state.caches[0].end, trace=trace)
            for index, block in enumerate(self.decoder.blocks):
                with trace.scope(f"blocks.{index}"):
                    x, cache = block(
                        x,
                        state.caches[index],
                        state.memory[index],
                        mask=mask,
                        memory_mask=state.memory_mask,
                        trace=trace,
                    )
                caches.append(cache)
        return x, replace(state, caches=tuple(caches))

    def head(self, hidden: np.ndarray) -> np.ndarray:
        """Return the logits, ``... V``, of contextual vectors ``... E``."""
        return self.lm_head(hidden)

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = BartConfig.read(config_with_start_id(checkpoint))
        shapes = checkpoint.tensors().shapes
        prefix = "model" if "model.encoder.layernorm_embedding.weight" in shapes else ""
        at = f"{prefix}." if prefix else ""
        name_of, has_bias = embedding_names(shapes, at, tied=config.is_tied), "final_logits_bias" in shapes

        def layers(root: TensorSource) -> dict[str, Any]:
            source, V = root.at(prefix), config.vocab_size
            tables = embedding_tables(root, name_of, (V, config.embed_dim))
            bias = root.array("final_logits_bias", (1, V), (V,), buffer=True) if has_bias else None
            return {
                "encoder": _encoder(source.at("encoder"), config, tables["encoder"]),
                "decoder": _decoder(source.at("decoder"), config, tables["decoder"]),
                "lm_head": Linear(tables["head"].T, bias),
            }

        loaded = load_layers(
            checkpoint,
            layers,
            num_layers=config.num_layers + config.num_decoder_layers,
            unused=(f"{at}shared.weight", "classification_head.", "qa_outputs."),
            dtype=dtype,
        )
        return cls(**language_fields(checkpoint, config, name=name), has_start=has_start_id(checkpoint), **loaded)


def _embedding(source: TensorSource, config: BartConfig, table: np.ndarray) -> BartEmbedding:
    size, E = _POSITION_OFFSET + config.max_positions, config.embed_dim
    return BartEmbedding(
        Embedding(table),
        embedding(source, "embed_positions", size, E),
        layer_norm(source, "layernorm_embedding", E, _NORM_EPS),
        math.sqrt(E) if config.scales_embeddings else 1.0,
    )


_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
_ENCODER_BLOCK = {
    "attn.q_proj": "self_attn.q_proj",
    "attn.k_proj": "self_attn.k_proj",
    "attn.v_proj": "self_attn.v_proj",
    "attn.o_proj": "self_attn.out_proj",
    "attn_norm": "self_attn_layer_norm",
    "mlp.up_proj": "fc1",
    "mlp.down_proj": "fc2",
    "mlp_norm": "final_layer_norm",
}


def _encoder(source: TensorSource, config: BartConfig, table: np.ndarray) -> BartStack[EncoderBlock]:
    sources = (source.at(f"layers.{i}") for i in range(config.num_layers))
    return BartStack(
        _embedding(source, config, table),
        tuple(encoder_block(at, _ENCODER_BLOCK, config, _NORM_EPS) for at in sources),
    )


def _decoder(source: TensorSource, config: BartConfig, table: np.ndarray) -> BartStack[BartDecoderBlock]:
    sources = (source.at(f"layers.{i}") for i in range(config.num_decoder_layers))
    return BartStack(_embedding(source, config, table), tuple(_decoder_block(at, config) for at in sources))


def _decoder_block(source: TensorSource, config: BartConfig) -> BartDecoderBlock:
    E, H = config.embed_dim, config.num_decoder_heads
    attn, cross_attn = source.at("self_attn"), source.at("encoder_attn")
    return BartDecoderBlock(
        attn=SelfAttention(*projections(attn, _PROJECTIONS, E, (E, E)), num_heads=H),
        attn_norm=layer_norm(source, "self_attn_layer_norm", E, _NORM_EPS),
        cross_attn=CrossAttention(*projections(cross_attn, _PROJECTIONS, E, (E, E)), num_heads=H),
        cross_norm=layer_norm(source, "encoder_attn_layer_norm", E, _NORM_EPS),
        mlp=feed_forward(source, ("fc1", "fc2"), E, config.decoder_hidden_dim, config.activation),
        mlp_norm=layer_norm(source, "final_layer_norm", E, _NORM_EPS),
    )
