"""T5: every task as text to text, with an encoder and a decoder (Raffel et al. 2019, arXiv:1910.10683).

Positions enter as a relative position bias on the scores, the same in every block. Scores are not scaled, norms are
RMS norms, and linear maps have no bias. Version 1.1 and Flan-T5 have a gated feed-forward layer and an untied head; so
has mT5, for a hundred languages (Xue et al. 2020, arXiv:2010.11934).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np

from regard.functional import RelativePositionBias
from regard.functional.activation import ACTIVATIONS
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.base import PretrainedModel, TextModel
from regard.models.build import feed_forward, gated_feed_forward, projections, rms_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.generation_config import config_with_start_id, has_start_id
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.open import Checkpoint, tokenizer_for
from regard.models.checkpoint.tensors import TensorSource, load_layers
from regard.models.encoder_decoder import EncoderDecoder, embedding_names, embedding_tables
from regard.models.generation.decoding_state import DecodingState
from regard.models.language import language_fields
from regard.nn import CrossAttention, Embedding, FeedForward, GatedFeedForward, Layer, Linear, RMSNorm, SelfAttention
from regard.nn.kv_cache import KVCache
from regard.nn.layers import normed, traced_norm

_MAX_DISTANCE = 2**31


@dataclass(frozen=True)
class T5Config(ModelConfig):
    """The configuration of a T5.

    ``V``, ``E``, blocks of encoder and decoder, ``H``, ``D``, feed-forward width; the number of distance buckets and
    the distance where the last begins; whether the decoder's vectors are divided by √E before the head.
    """

    vocab_size: int
    embed_dim: int
    num_layers: int
    num_decoder_layers: int
    num_heads: int
    head_dim: int
    hidden_dim: int
    num_buckets: int
    max_distance: int
    activation: str
    is_gated: bool
    norm_eps: float
    scales_head: bool
    is_tied: bool
    start_id: int

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        is_mt5 = reader.choice("model_type", None, ["t5", "mt5"]) == "mt5"
        reader.only(is_decoder=False)
        reader.choice("is_encoder_decoder", True, [True, False])  # transformers says False of an encoder alone
        reader.without_effect("dropout_rate", "initializer_factor", "n_positions")
        kinds = [*ACTIVATIONS, *(f"gated-{name}" for name in ACTIVATIONS)]
        forward = reader.choice("feed_forward_proj", "gated-gelu" if is_mt5 else "relu", kinds)
        activation = forward.removeprefix("gated-")
        if forward == "gated-gelu":  # the name of the tanh formula in version 1.1
            activation = "gelu_new"
        is_gated = reader.choice("is_gated_act", forward.startswith("gated-"), [forward.startswith("gated-")])
        activation = reader.choice("dense_act_fn", activation, [activation])
        tied = reader.flag("tie_word_embeddings", True) or is_mt5  # whose head is what is stored, else the embeddings
        num_layers, vocab_size = reader.num_layers("num_layers"), reader.count("vocab_size")
        has_own_number = reader.peek("num_decoder_layers") is not None
        num_decoder_layers = reader.num_layers("num_decoder_layers") if has_own_number else num_layers
        pad_id = reader.index("pad_token_id", 0, vocab_size)
        config = cls(
            vocab_size=vocab_size,
            embed_dim=reader.count("d_model"),
            num_layers=num_layers,
            num_decoder_layers=num_decoder_layers,
            num_heads=reader.count("num_heads"),
            head_dim=reader.count("d_kv"),
            hidden_dim=reader.count("d_ff"),
            num_buckets=reader.count("relative_attention_num_buckets", 32),
            max_distance=reader.count("relative_attention_max_distance", 128),
            activation=activation,
            is_gated=is_gated,
            norm_eps=reader.positive("layer_norm_epsilon", 1e-6),
            scales_head=not is_mt5 and reader.flag("scale_decoder_outputs", tied),
            is_tied=tied,
            start_id=reader.index("decoder_start_token_id", 0 if is_mt5 else pad_id, vocab_size),
        )
        reader.require(
            config.num_buckets >= 4 and config.num_buckets // 2 < config.max_distance <= _MAX_DISTANCE,
            f"relative_attention_num_buckets {config.num_buckets} and relative_attention_max_distance "
            f"{config.max_distance} do not fit: there must be at least 4 buckets, half of them for one distance each, "
            f"and a maximum distance above that half and up to {_MAX_DISTANCE}",
        )
        return config


@dataclass(frozen=True, eq=False, repr=False)
class T5EncoderBlock(Layer):
    """Self-attention and feed-forward, each with a norm before it and a residual connection."""

    attn_norm: RMSNorm
    attn: SelfAttention
    mlp_norm: RMSNorm
    mlp: FeedForward | GatedFeedForward

    def __call__(
        self, x: np.ndarray, bias: RelativePositionBias, *, mask: np.ndarray | None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return ``B T E`` for x, ``B T E``; taps ``attn.*``, ``attn_residual``, ``mlp.*`` and ``output``."""
        y = normed(self.attn_norm, x, trace, "attn_norm")
        with trace.scope("attn"):
            y = self.attn(y, scale=1.0, bias=bias, mask=mask, trace=trace)
        x = trace("attn_residual", x + y, "B T E")
        y = normed(self.mlp_norm, x, trace, "mlp_norm")
        with trace.scope("mlp"):
            y = self.mlp(y, trace=trace)
        return trace("output", x + y, "B T E")


@dataclass(frozen=True, eq=False, repr=False)
class T5DecoderBlock(Layer):
    """Causal self-attention, cross-attention and feed-forward, each with a norm before it and a residual connection."""

    attn_norm: RMSNorm
    attn: SelfAttention
    cross_norm: RMSNorm
    cross_attn: CrossAttention
    mlp_norm: RMSNorm
    mlp: FeedForward | GatedFeedForward

    def __call__(
        self,
        x: np.ndarray,
        bias: RelativePositionBias,
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
        y = normed(self.attn_norm, x, trace, "attn_norm")
        with trace.scope("attn"):
            q, k, v = self.attn.project_qkv(y, trace=trace)
            cache = cache.append(k, v)
            y = self.attn.attend(q, cache.k, cache.v, scale=1.0, bias=bias, causal=True, mask=mask, trace=trace)
        x = trace("attn_residual", x + y, "B T E")
        y = normed(self.cross_norm, x, trace, "cross_norm")
        with trace.scope("cross_attn"):
            q = self.cross_attn.project_q(y, trace=trace)
            y = self.cross_attn.attend(q, memory.k, memory.v, scale=1.0, mask=memory_mask, trace=trace)
        x = trace("cross_attn_residual", x + y, "B T E")
        y = normed(self.mlp_norm, x, trace, "mlp_norm")
        with trace.scope("mlp"):
            y = self.mlp(y, trace=trace)
        return trace("output", x + y, "B T E"), cache


Block = TypeVar("Block")


@dataclass(frozen=True, eq=False, repr=False)
class T5Stack(Layer, Generic[Block]):
    """The encoder or the decoder: embeddings, the position bias of all blocks, the blocks, and the final norm."""

    token_embedding: Embedding
    position_bias: RelativePositionBias
    blocks: tuple[Block, ...]
    final_norm: RMSNorm


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class T5(EncoderDecoder):
    """A T5 with its tokenizer."""

    config: T5Config
    encoder: T5Stack[T5EncoderBlock]
    decoder: T5Stack[T5DecoderBlock]
    lm_head: Linear

    @property
    def max_length(self) -> int:
        """No limit: all far distances share a bucket."""
        return sys.maxsize

    def encode(self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the encoder's contextual vectors, ``B S E``, of ids ``B S``; `mask`, ``B 1 1 S``, is True at text.

        Taps ``encoder.token_embeddings``, for each block ``encoder.blocks.i.attn.*`` and so on, and
        ``encoder.final_norm``.
        """
        with trace.scope("encoder"):
            return _encode(self.encoder, ids, mask, trace)

    def decode(
        self, ids: np.ndarray, state: DecodingState, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Return the decoder's contextual vectors, ``B T E``, of tokens after those of `state`, and the next state.

        Taps as `encode` does, under ``decoder.``, and ``decoder.blocks.i.cross_attn.*``.
        """
        caches = []
        with trace.scope("decoder"):
            x = trace("token_embeddings", self.decoder.token_embedding(ids), "B T E")
            for index, block in enumerate(self.decoder.blocks):
                with trace.scope(f"blocks.{index}"):
                    x, cache = block(
                        x,
                        self.decoder.position_bias,
                        state.caches[index],
                        state.memory[index],
                        mask=mask,
                        memory_mask=state.memory_mask,
                        trace=trace,
                    )
                caches.append(cache)
            x = trace("final_norm", traced_norm(self.decoder.final_norm, x, trace, "final_norm"), "B T E")
        return x, replace(state, caches=tuple(caches))

    def head(self, hidden: np.ndarray) -> np.ndarray:
        """Return the logits, ``... V``, of contextual vectors ``... E``."""
        if self.config.scales_head:
            hidden = hidden * hidden.dtype.type(self.config.embed_dim**-0.5)
        return self.lm_head(hidden)

    @classmethod
    def class_for(cls, checkpoint: Checkpoint) -> type[PretrainedModel]:
        """Return this class, or that of an encoder that was saved alone."""
        _, names = _prefix_and_names(checkpoint)  # none of a model that is made
        is_encoder = any(name.startswith("encoder.") for name in names)
        return T5Encoder if is_encoder and not any(name.startswith("decoder.") for name in names) else cls

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = T5Config.read(config_with_start_id(checkpoint))
        prefix, names = _prefix_and_names(checkpoint)
        name_of = embedding_names(names, "", tied=config.is_tied)

        def layers(source: TensorSource) -> dict[str, Any]:
            tables = embedding_tables(source, name_of, (config.vocab_size, config.embed_dim))
            return {
                "encoder": _encoder(source.at("encoder"), config, tables["encoder"]),
                "decoder": _decoder(source.at("decoder"), config, tables["decoder"]),
                "lm_head": Linear(tables["head"].T),
            }

        num_layers = config.num_layers + config.num_decoder_layers
        loaded = load_layers(checkpoint, layers, num_layers=num_layers, prefixes=(prefix,), unused=_UNUSED, dtype=dtype)
        return cls(**language_fields(checkpoint, config, name=name), has_start=has_start_id(checkpoint), **loaded)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class T5Encoder(TextModel):
    """The encoder of a T5 that was saved alone, as those of sentence models are (gtr-t5), with its tokenizer."""

    config: T5Config
    encoder: T5Stack[T5EncoderBlock]

    @property
    def max_length(self) -> int:
        """No limit: all far distances share a bucket."""
        return sys.maxsize

    @property
    def blocks(self) -> tuple[T5EncoderBlock, ...]:
        """Those of the encoder."""
        return self.encoder.blocks

    def forward(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of ids ``B T``; `mask`, ``B 1 1 T``, is True where there is text.

        Taps ``token_embeddings``, for each block ``blocks.i.attn.*`` and so on, and ``final_norm``.
        """
        return _encode(self.encoder, ids, mask, trace)

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = T5Config.read(checkpoint.config())
        prefix, names = _prefix_and_names(checkpoint)
        table = next((x for x in ("shared.weight", "encoder.embed_tokens.weight") if x in names), "shared.weight")

        def encoder(source: TensorSource) -> T5Stack[T5EncoderBlock]:
            weight = source.array(table, (config.vocab_size, config.embed_dim))
            return _encoder(source.at("encoder"), config, weight)

        loaded = load_layers(
            checkpoint, encoder, num_layers=config.num_layers, prefixes=(prefix,), unused=_UNUSED, dtype=dtype
        )
        return cls(name=name, config=config, tokenizer=tokenizer_for(checkpoint, config.vocab_size), encoder=loaded)


def _prefix_and_names(checkpoint: Checkpoint) -> tuple[str, set[str]]:
    """Return what the names of all tensors begin with, and these names without it."""
    names = checkpoint.tensors().shapes
    prefix = _CLASSIFIER_PREFIX if any(name.startswith(_CLASSIFIER_PREFIX) for name in names) else ""
    return prefix, {name.removeprefix(prefix) for name in names}


def _encode(stack: T5Stack[T5EncoderBlock], ids: np.ndarray, mask: np.ndarray | None, trace: Recorder) -> np.ndarray:
    x = trace("token_embeddings", stack.token_embedding(ids), "B T E")
    for index, block in enumerate(stack.blocks):
        with trace.scope(f"blocks.{index}"):
            x = block(x, stack.position_bias, mask=mask, trace=trace)
    return trace("final_norm", traced_norm(stack.final_norm, x, trace, "final_norm"), "B T E")


_CLASSIFIER_PREFIX = "transformer."  # of all names
_UNUSED = (
    *("shared.weight", "encoder.embed_tokens.weight"),
    *("qa_outputs.", "classifier.", "classification_head."),
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.",  # in the oldest files, never used
)


def _encoder(source: TensorSource, config: T5Config, table: np.ndarray) -> T5Stack[T5EncoderBlock]:
    bias, final_norm = _position_bias(source, config, bidirectional=True), _norm(source, "final_layer_norm", config)
    layers = (source.at(f"block.{i}.layer") for i in range(config.num_layers))
    blocks = tuple(
        T5EncoderBlock(
            _norm(layer, "0.layer_norm", config),
            SelfAttention(*_projections(layer.at("0.SelfAttention"), config), num_heads=config.num_heads),
            _norm(layer, "1.layer_norm", config),
            _mlp(layer.at("1.DenseReluDense"), config),
        )
        for layer in layers
    )
    return T5Stack(Embedding(table), bias, blocks, final_norm)


def _decoder(source: TensorSource, config: T5Config, table: np.ndarray) -> T5Stack[T5DecoderBlock]:
    bias, final_norm = _position_bias(source, config, bidirectional=False), _norm(source, "final_layer_norm", config)
    layers = (source.at(f"block.{i}.layer") for i in range(config.num_decoder_layers))
    blocks = tuple(
        T5DecoderBlock(
            _norm(layer, "0.layer_norm", config),
            SelfAttention(*_projections(layer.at("0.SelfAttention"), config), num_heads=config.num_heads),
            _norm(layer, "1.layer_norm", config),
            CrossAttention(*_projections(layer.at("1.EncDecAttention"), config), num_heads=config.num_heads),
            _norm(layer, "2.layer_norm", config),
            _mlp(layer.at("2.DenseReluDense"), config),
        )
        for layer in layers
    )
    return T5Stack(Embedding(table), bias, blocks, final_norm)


def _position_bias(source: TensorSource, config: T5Config, *, bidirectional: bool) -> RelativePositionBias:
    name = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    table = source.array(name, (config.num_buckets, config.num_heads))
    return RelativePositionBias(table, bidirectional=bidirectional, max_distance=config.max_distance)


def _norm(source: TensorSource, name: str, config: T5Config) -> RMSNorm:
    return rms_norm(source, name, config.embed_dim, config.norm_eps)


def _projections(source: TensorSource, config: T5Config) -> list[Linear]:
    width = config.num_heads * config.head_dim
    return projections(source, ("q", "k", "v", "o"), config.embed_dim, (width, width), bias=False, output_bias=False)


def _mlp(source: TensorSource, config: T5Config) -> FeedForward | GatedFeedForward:
    sizes = config.embed_dim, config.hidden_dim, config.activation
    if config.is_gated:
        return gated_feed_forward(source, ("wi_0", "wi_1", "wo"), *sizes)
    return feed_forward(source, ("wi", "wo"), *sizes, bias=False)
