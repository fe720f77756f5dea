"""T5: every task as text to text, with an encoder and a decoder (Raffel et al. 2019, arXiv:1910.10683).

Positions enter as a relative position bias on the scores, the same in every block. Scores are not scaled, norms are
RMS norms, and linear maps have no bias. Version 1.1 and Flan-T5 have a gated feed-forward layer and an untied head.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np

from regard.functional import RelativePositionBias
from regard.functional.activation import ACTIVATIONS
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.base import PretrainedModel, TextModel
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.generation_config import config_with_start_id
from regard.models.checkpoint.listed_tensors import TensorSpec, linear_tensors, load_tensors
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.open import Checkpoint, tokenizer_for
from regard.models.encoder_decoder import EncoderDecoder, embedding_names
from regard.models.generation.decoding_state import DecodingState
from regard.models.language import language_fields
from regard.models.listed_build import feed_forward, gated_feed_forward, projections, rms_norm
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
    def read(cls, reader: ConfigReader) -> T5Config:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="t5", is_decoder=False)
        reader.choice("is_encoder_decoder", True, [True, False])  # transformers says False of an encoder alone
        reader.ignore("dropout_rate", "initializer_factor", "n_positions")
        forward = reader.choice("feed_forward_proj", "relu", [*ACTIVATIONS, *(f"gated-{name}" for name in ACTIVATIONS)])
        activation = forward.removeprefix("gated-")
        if forward == "gated-gelu":  # the name of the tanh formula in version 1.1
            activation = "gelu_new"
        is_gated = reader.choice("is_gated_act", forward.startswith("gated-"), [forward.startswith("gated-")])
        activation = reader.choice("dense_act_fn", activation, [activation])
        tied = reader.flag("tie_word_embeddings", True)
        num_layers, vocab_size = reader.count("num_layers"), reader.count("vocab_size")
        pad_id = reader.index("pad_token_id", 0, vocab_size)
        config = cls(
            vocab_size=vocab_size,
            embed_dim=reader.count("d_model"),
            num_layers=num_layers,
            num_decoder_layers=reader.optional_count("num_decoder_layers") or num_layers,
            num_heads=reader.count("num_heads"),
            head_dim=reader.count("d_kv"),
            hidden_dim=reader.count("d_ff"),
            num_buckets=reader.count("relative_attention_num_buckets", 32),
            max_distance=reader.count("relative_attention_max_distance", 128),
            activation=activation,
            is_gated=is_gated,
            norm_eps=reader.positive("layer_norm_epsilon", 1e-6),
            scales_head=reader.flag("scale_decoder_outputs", tied),
            is_tied=tied,
            start_id=reader.index("decoder_start_token_id", pad_id, vocab_size),
        )
        reader.require(
            config.num_buckets >= 4 and config.num_buckets // 2 < config.max_distance <= _MAX_DISTANCE,
            f"relative_attention_num_buckets {config.num_buckets} and relative_attention_max_distance "
            f"{config.max_distance} do not fit: there must be at least 4 buckets, half of them for one distance each, "
            f"and a maximum distance above that half and up to {_MAX_DISTANCE}",
        )
        reader.finish()
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
    def of(cls, checkpoint: Checkpoint) -> type[PretrainedModel]:
        """Return this class, or that of an encoder that was saved alone."""
        names = checkpoint.tensors().shapes  # none of a model that is made
        is_encoder = any(name.startswith("encoder.") for name in names)
        return T5Encoder if is_encoder and not any(name.startswith("decoder.") for name in names) else cls

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = T5Config.read(config_with_start_id(checkpoint))
        name_of = embedding_names(checkpoint.tensors().shapes, "", tied=config.is_tied)
        weights = _load(checkpoint, config, sorted(set(name_of.values())), ("encoder", "decoder"), dtype)
        return cls(
            **language_fields(checkpoint, config, name=name),
            encoder=_encoder(weights, config, name_of["encoder"]),
            decoder=_decoder(weights, config, name_of["decoder"]),
            lm_head=Linear(weights[name_of["head"]].T),
        )


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
        shapes = checkpoint.tensors().shapes
        table = next((x for x in ("shared.weight", "encoder.embed_tokens.weight") if x in shapes), "shared.weight")
        weights = _load(checkpoint, config, [table], ("encoder",), dtype)
        return cls(
            name=name,
            config=config,
            tokenizer=tokenizer_for(checkpoint, config.vocab_size),
            encoder=_encoder(weights, config, table),
        )


def _encode(stack: T5Stack[T5EncoderBlock], ids: np.ndarray, mask: np.ndarray | None, trace: Recorder) -> np.ndarray:
    x = trace("token_embeddings", stack.token_embedding(ids), "B T E")
    for index, block in enumerate(stack.blocks):
        with trace.scope(f"blocks.{index}"):
            x = block(x, stack.position_bias, mask=mask, trace=trace)
    return trace("final_norm", traced_norm(stack.final_norm, x, trace, "final_norm"), "B T E")


def _load(
    checkpoint: Checkpoint, config: T5Config, embeddings: list[str], stacks: tuple[str, ...], dtype: Any
) -> dict[str, Any]:
    return load_tensors(
        checkpoint,
        _tensors(config, embeddings, stacks),
        num_layers=config.num_layers + config.num_decoder_layers * ("decoder" in stacks),
        unused=(
            *("shared.weight", "encoder.embed_tokens.weight"),
            "qa_outputs.",
            "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.",  # in the oldest files, never used
        ),
        dtype=dtype,
    )


def _stack(
    weights: Mapping[str, Any], config: T5Config, at: str, table: str, blocks: Iterable[Block], *, bidirectional: bool
) -> T5Stack[Block]:
    bias = RelativePositionBias(
        weights[f"{at}.position_bias.parameter"], bidirectional=bidirectional, max_distance=config.max_distance
    )
    norm = rms_norm(weights, f"{at}.final_norm", config.norm_eps)
    return T5Stack(Embedding(weights[table]), bias, tuple(blocks), norm)


def _encoder(weights: Mapping[str, Any], config: T5Config, table: str) -> T5Stack[T5EncoderBlock]:
    blocks = (
        T5EncoderBlock(
            rms_norm(weights, f"{at}.attn_norm", config.norm_eps),
            SelfAttention(*projections(weights, f"{at}.attn"), num_heads=config.num_heads),
            rms_norm(weights, f"{at}.mlp_norm", config.norm_eps),
            _mlp(weights, config, f"{at}.mlp"),
        )
        for at in (f"encoder.blocks.{i}" for i in range(config.num_layers))
    )
    return _stack(weights, config, "encoder", table, blocks, bidirectional=True)


def _decoder(weights: Mapping[str, Any], config: T5Config, table: str) -> T5Stack[T5DecoderBlock]:
    blocks = (
        T5DecoderBlock(
            rms_norm(weights, f"{at}.attn_norm", config.norm_eps),
            SelfAttention(*projections(weights, f"{at}.attn"), num_heads=config.num_heads),
            rms_norm(weights, f"{at}.cross_norm", config.norm_eps),
            CrossAttention(*projections(weights, f"{at}.cross_attn"), num_heads=config.num_heads),
            rms_norm(weights, f"{at}.mlp_norm", config.norm_eps),
            _mlp(weights, config, f"{at}.mlp"),
        )
        for at in (f"decoder.blocks.{i}" for i in range(config.num_decoder_layers))
    )
    return _stack(weights, config, "decoder", table, blocks, bidirectional=False)


def _mlp(weights: Mapping[str, Any], config: T5Config, at: str) -> FeedForward | GatedFeedForward:
    return (gated_feed_forward if config.is_gated else feed_forward)(weights, at, config.activation)


def _tensors(config: T5Config, embeddings: list[str], stacks: tuple[str, ...]) -> Iterator[TensorSpec]:
    """Yield every tensor of the encoder, the decoder or both."""
    E, F, HD = config.embed_dim, config.hidden_dim, config.num_heads * config.head_dim

    def attention(name: str, hf_name: str) -> Iterator[TensorSpec]:
        for part in "qkv":
            yield from linear_tensors(f"{name}.{part}_proj", f"{hf_name}.{part}", E, HD, bias=False)
        yield from linear_tensors(f"{name}.o_proj", f"{hf_name}.o", HD, E, bias=False)

    for hf_name in embeddings:
        yield TensorSpec(hf_name, hf_name, (config.vocab_size, E))
    layers = {"encoder": config.num_layers, "decoder": config.num_decoder_layers}
    for stack, num_layers in ((stack, layers[stack]) for stack in stacks):
        yield TensorSpec(
            f"{stack}.position_bias.parameter",
            f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            (config.num_buckets, config.num_heads),
        )
        yield TensorSpec(f"{stack}.final_norm.weight", f"{stack}.final_layer_norm.weight", (E,))
        for i in range(num_layers):
            name, hf_name = f"{stack}.blocks.{i}", f"{stack}.block.{i}.layer"
            yield TensorSpec(f"{name}.attn_norm.weight", f"{hf_name}.0.layer_norm.weight", (E,))
            yield from attention(f"{name}.attn", f"{hf_name}.0.SelfAttention")
            if stack == "decoder":
                yield TensorSpec(f"{name}.cross_norm.weight", f"{hf_name}.1.layer_norm.weight", (E,))
                yield from attention(f"{name}.cross_attn", f"{hf_name}.1.EncDecAttention")
            last = f"{hf_name}.{2 if stack == 'decoder' else 1}"
            yield TensorSpec(f"{name}.mlp_norm.weight", f"{last}.layer_norm.weight", (E,))
            if config.is_gated:
                yield from linear_tensors(f"{name}.mlp.gate_proj", f"{last}.DenseReluDense.wi_0", E, F, bias=False)
            up = "wi_1" if config.is_gated else "wi"
            yield from linear_tensors(f"{name}.mlp.up_proj", f"{last}.DenseReluDense.{up}", E, F, bias=False)
            yield from linear_tensors(f"{name}.mlp.down_proj", f"{last}.DenseReluDense.wo", F, E, bias=False)
