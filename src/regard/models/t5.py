"""T5: every task as text in, text out (Raffel et al. 2019, arXiv:1910.10683).

An encoder reads the text, a decoder writes another. Positions enter only as a number for each head and distance that
is added to the scores, in every block the same. Scores are not scaled, norms do not centre, no linear map has a bias.
Version 1.1 and Flan-T5 have a gated feed-forward and a head of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from regard.functional import RelativePositionBias
from regard.functional.activation import ACTIVATIONS
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.build import linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.generation_config import config_with_start_id, end_ids, forced_ids
from regard.models.checkpoint.open import Checkpoint, tokenizer_for
from regard.models.checkpoint.tensors import TensorSpec, linear_tensors, load_tensors
from regard.models.encoder_decoder import EncoderDecoder, tables
from regard.models.generation.decoding_state import DecodingState
from regard.models.generation.options import ForcedTokens
from regard.nn import (
    CrossAttention,
    Embedding,
    FeedForward,
    GatedFeedForward,
    Layer,
    Linear,
    RMSNorm,
    SelfAttention,
)
from regard.nn.kv_cache import KVCache
from regard.text import SubwordTokenizer

_MOST_DISTANCE = 2**31


@dataclass(frozen=True)
class T5Config:
    """The sizes of a T5, and its choices.

    ``V``, ``E``, blocks of encoder and decoder, ``H``, ``D``, feed-forward width; how many buckets distances have and
    where the last begins; whether the head takes what the decoder returns divided by √E.
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
        """Take the fields of a Hugging Face config.json; anything unknown is an error."""
        reader.choice("model_type", "t5", ["t5"])
        reader.choice("is_encoder_decoder", True, [True])
        reader.choice("is_decoder", False, [False])
        reader.ignore("dropout_rate", "initializer_factor", "n_positions")
        forward = reader.choice("feed_forward_proj", "relu", [*ACTIVATIONS, *(f"gated-{name}" for name in ACTIVATIONS)])
        activation = forward.removeprefix("gated-")
        if forward == "gated-gelu":  # which is what version 1.1 calls its tanh formula
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
            config.num_buckets >= 4 and config.num_buckets // 2 < config.max_distance <= _MOST_DISTANCE,
            f"relative_attention_num_buckets {config.num_buckets} and relative_attention_max_distance "
            f"{config.max_distance} do not fit: there are at least 4 buckets, half of them for one distance each, "
            f"and none begins beyond {_MOST_DISTANCE}",
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False)
class T5EncoderBlock(Layer):
    """Attention to the whole text, then feed-forward; each has a norm before it and adds to what came in.

    Parameters
    ----------
    attn_norm : RMSNorm
    attn : SelfAttention
    mlp_norm : RMSNorm
    mlp : FeedForward or GatedFeedForward
    """

    attn_norm: RMSNorm
    attn: SelfAttention
    mlp_norm: RMSNorm
    mlp: FeedForward | GatedFeedForward

    def __call__(
        self, x: np.ndarray, bias: RelativePositionBias, *, mask: np.ndarray | None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return ``B T E`` for x, ``B T E``; taps ``attn.*``, ``attn_residual``, ``mlp.*`` and ``output``."""
        with trace.scope("attn"):
            y = self.attn(self.attn_norm(x), scale=1.0, bias=bias, mask=mask, trace=trace)
        x = trace("attn_residual", x + y, "B T E")
        with trace.scope("mlp"):
            y = self.mlp(self.mlp_norm(x), trace=trace)
        output: np.ndarray = trace("output", x + y, "B T E")
        return output


@dataclass(frozen=True, eq=False, repr=False)
class T5DecoderBlock(Layer):
    """Attention to the target so far, attention to what the encoder returned, feed-forward; norms as in the encoder.

    Parameters
    ----------
    attn_norm : RMSNorm
    attn : SelfAttention
    cross_norm : RMSNorm
    cross_attn : CrossAttention
    mlp_norm : RMSNorm
    mlp : FeedForward or GatedFeedForward
    """

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
        """Return ``B T E`` for x, ``B T E``, that stands behind what the cache holds, and the cache with x too.

        Taps ``attn.*``, ``attn_residual``, ``cross_attn.*``, ``cross_attn_residual``, ``mlp.*`` and ``output``.
        """
        with trace.scope("attn"):
            q, k, v = self.attn.project_qkv(self.attn_norm(x), trace=trace)
            cache = cache.append(k, v)
            y = self.attn.attend(q, cache.k, cache.v, scale=1.0, bias=bias, causal=True, mask=mask, trace=trace)
        x = trace("attn_residual", x + y, "B T E")
        with trace.scope("cross_attn"):
            q = self.cross_attn.project_q(self.cross_norm(x), trace=trace)
            y = self.cross_attn.attend(q, memory.k, memory.v, scale=1.0, mask=memory_mask, trace=trace)
        x = trace("cross_attn_residual", x + y, "B T E")
        with trace.scope("mlp"):
            y = self.mlp(self.mlp_norm(x), trace=trace)
        return trace("output", x + y, "B T E"), cache


@dataclass(frozen=True, eq=False, repr=False)
class T5Encoder(Layer):
    """What reads the text: embeddings, the bias of all blocks, the blocks, and a last norm."""

    token_embedding: Embedding
    position_bias: RelativePositionBias
    blocks: tuple[T5EncoderBlock, ...]
    final_norm: RMSNorm


@dataclass(frozen=True, eq=False, repr=False)
class T5Decoder(Layer):
    """What writes the target; made as the encoder is."""

    token_embedding: Embedding
    position_bias: RelativePositionBias
    blocks: tuple[T5DecoderBlock, ...]
    final_norm: RMSNorm


@dataclass(frozen=True, eq=False, repr=False)
class T5(EncoderDecoder):
    """A T5 with its tokenizer."""

    name: str
    config: T5Config
    tokenizer: SubwordTokenizer
    end_ids: tuple[int, ...]
    encoder: T5Encoder
    decoder: T5Decoder
    lm_head: Linear
    forced: ForcedTokens = field(default=ForcedTokens(), kw_only=True)

    @property
    def max_length(self) -> int:
        """The most tokens that it looks at at once: far distances share a bucket, so that there is no end."""
        return sys.maxsize

    def encode(self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the encoder's contextual vectors, ``B S E``, of ids ``B S``; `mask`, ``B 1 1 S``, is True at text.

        Taps ``encoder.token_embeddings``, for each block ``encoder.blocks.i.attn.*`` and so on, and
        ``encoder.final_norm``.
        """
        with trace.scope("encoder"):
            x = trace("token_embeddings", self.encoder.token_embedding(ids), "B T E")
            for index, block in enumerate(self.encoder.blocks):
                with trace.scope(f"blocks.{index}"):
                    x = block(x, self.encoder.position_bias, mask=mask, trace=trace)
            normed: np.ndarray = trace("final_norm", self.encoder.final_norm(x), "B T E")
        return normed

    def decode(
        self, ids: np.ndarray, state: DecodingState, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Return the decoder's contextual vectors, ``B T E``, of ids ``B T`` behind those of the state, and the next.

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
            x = trace("final_norm", self.decoder.final_norm(x), "B T E")
        return x, replace(state, caches=tuple(caches))

    def head(self, hidden: np.ndarray) -> np.ndarray:
        """Return a score for each entry of the vocabulary, ``... V``, of contextual vectors ``... E``."""
        if self.config.scales_head:
            hidden = hidden * hidden.dtype.type(self.config.embed_dim**-0.5)
        return self.lm_head(hidden)

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its files."""
        config = T5Config.read(config_with_start_id(checkpoint))
        table_of = tables(checkpoint.tensors().shapes, "", tied=config.is_tied)
        weights = load_tensors(
            checkpoint,
            _tensors(config, sorted(set(table_of.values()))),
            num_layers=config.num_layers + config.num_decoder_layers,
            unused=(
                "shared.weight",
                "qa_outputs.",
                "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.",  # of the first code, never used
            ),
            dtype=dtype,
        )

        def norm(at: str) -> RMSNorm:
            return RMSNorm(weights[f"{at}.weight"], config.norm_eps)

        def projections(at: str) -> list[Linear]:
            return [linear(weights, f"{at}.{part}_proj") for part in "qkvo"]

        def attention(at: str) -> SelfAttention:
            return SelfAttention(*projections(at), num_heads=config.num_heads)

        def mlp(at: str) -> FeedForward | GatedFeedForward:
            up, down = linear(weights, f"{at}.up_proj"), linear(weights, f"{at}.down_proj")
            if not config.is_gated:
                return FeedForward(up, down, activation=config.activation)
            return GatedFeedForward(linear(weights, f"{at}.gate_proj"), up, down, activation=config.activation)

        def bias(at: str, *, bidirectional: bool) -> RelativePositionBias:
            table = weights[f"{at}.parameter"]
            return RelativePositionBias(table, bidirectional=bidirectional, max_distance=config.max_distance)

        def encoder_block(at: str) -> T5EncoderBlock:
            return T5EncoderBlock(
                norm(f"{at}.attn_norm"), attention(f"{at}.attn"), norm(f"{at}.mlp_norm"), mlp(f"{at}.mlp")
            )

        def decoder_block(at: str) -> T5DecoderBlock:
            return T5DecoderBlock(
                norm(f"{at}.attn_norm"),
                attention(f"{at}.attn"),
                norm(f"{at}.cross_norm"),
                CrossAttention(*projections(f"{at}.cross_attn"), num_heads=config.num_heads),
                norm(f"{at}.mlp_norm"),
                mlp(f"{at}.mlp"),
            )

        return cls(
            name=name,
            config=config,
            tokenizer=tokenizer_for(checkpoint, config.vocab_size),
            end_ids=end_ids(checkpoint),
            forced=forced_ids(checkpoint),
            encoder=T5Encoder(
                Embedding(weights[table_of["encoder"]]),
                bias("encoder.position_bias", bidirectional=True),
                tuple(encoder_block(f"encoder.blocks.{i}") for i in range(config.num_layers)),
                norm("encoder.final_norm"),
            ),
            decoder=T5Decoder(
                Embedding(weights[table_of["decoder"]]),
                bias("decoder.position_bias", bidirectional=False),
                tuple(decoder_block(f"decoder.blocks.{i}") for i in range(config.num_decoder_layers)),
                norm("decoder.final_norm"),
            ),
            lm_head=Linear(weights[table_of["head"]].T),
        )


def _tensors(config: T5Config, embeddings: list[str]) -> Iterator[TensorSpec]:
    """Yield every tensor of a T5, under our name and under that of a Hugging Face checkpoint."""
    E, F, HD = config.embed_dim, config.hidden_dim, config.num_heads * config.head_dim

    def attention(name: str, hf_name: str) -> Iterator[TensorSpec]:
        for part in "qkv":
            yield from linear_tensors(f"{name}.{part}_proj", f"{hf_name}.{part}", E, HD, bias=False)
        yield from linear_tensors(f"{name}.o_proj", f"{hf_name}.o", HD, E, bias=False)

    for hf_name in embeddings:
        yield TensorSpec(hf_name, hf_name, (config.vocab_size, E))
    for stack, num_layers in (("encoder", config.num_layers), ("decoder", config.num_decoder_layers)):
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
