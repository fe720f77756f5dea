"""GPT-2: a decoder with a table of positions, its norms before each step (Radford et al. 2019).

"Language models are unsupervised multitask learners".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.build import layer_norm, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.load import Checkpoint
from regard.models.checkpoint.tensors import Tensor
from regard.models.decoder import MOST_LAYERS, Decoder, check_unsupported_flags, common_fields, load_decoder_tensors
from regard.nn import CausalAttention, DecoderBlock, Embedding, FeedForward, Linear

_SUMMARY = ("type", "use_proj", "activation", "proj_to_labels", "first_dropout")


@dataclass(frozen=True)
class GPT2Config:
    """The sizes of a GPT-2: ``V``, ``E``, ``L``, ``H``, feed-forward width, positions; and its choices."""

    vocab_size: int
    embed_dim: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    max_positions: int
    activation: str
    norm_eps: float
    scaled: bool
    scaled_by_layer: bool
    tied: bool

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Take the fields of a Hugging Face config.json; anything unknown is an error."""
        reader.choice("model_type", "gpt2", ["gpt2"])
        check_unsupported_flags(reader)
        reader.flag("reorder_and_upcast_attn", False)  # short floats are always computed in float32 here
        reader.ignore("attn_pdrop", "embd_pdrop", "resid_pdrop")  # for training
        reader.ignore(*(f"summary_{name}" for name in _SUMMARY))  # of a head that regard does not have
        reader.ignore("n_special", "predict_special_tokens")
        embed_dim, num_heads = reader.count("n_embd"), reader.count("n_head")
        reader.splits("n_embd", embed_dim, num_heads)
        num_layers = reader.count("n_layer")
        reader.require(num_layers <= MOST_LAYERS, f"n_layer {num_layers} is more than any model has")
        positions = reader.count("n_positions")
        reader.choice("n_ctx", positions, [positions])
        config = cls(
            vocab_size=reader.count("vocab_size"),
            embed_dim=embed_dim,
            num_layers=num_layers,
            num_heads=num_heads,
            hidden_dim=reader.optional_count("n_inner") or 4 * embed_dim,
            max_positions=positions,
            activation=reader.activation("activation_function", "gelu_new"),
            norm_eps=reader.positive("layer_norm_epsilon", 1e-5),
            scaled=reader.flag("scale_attn_weights", True),
            scaled_by_layer=reader.flag("scale_attn_by_inverse_layer_idx", False),
            tied=reader.flag("tie_word_embeddings", True),
        )
        reader.finish()
        return config

    def scale(self, layer: int) -> float:
        """Return what scores of a layer are multiplied with."""
        scale = 1 / math.sqrt(self.embed_dim // self.num_heads) if self.scaled else 1.0
        return scale / (layer + 1) if self.scaled_by_layer else scale


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GPT2(Decoder):
    """A GPT-2 with its tokenizer."""

    config: GPT2Config
    position_embedding: Embedding

    @property
    def max_length(self) -> int:
        """The most tokens that it looks at at once: the rows of its table of positions."""
        return self.config.max_positions

    def embed_tokens(self, ids: np.ndarray, positions: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the sum of token and position embeddings, ``B T E``; taps both and their sum."""
        tokens = trace("token_embeddings", self.token_embedding(ids), "B T E")
        table = trace("position_embeddings", self.position_embedding(positions), "... T E")
        embeddings: np.ndarray = trace("embeddings", tokens + table, "B T E")
        return embeddings

    def rotation(self, positions: np.ndarray) -> None:  # noqa: ARG002
        """Return None: nothing turns."""
        return

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its files."""
        config = GPT2Config.read(checkpoint.config())
        weights = load_decoder_tensors(
            checkpoint,
            config,
            _tensors,
            first=("transformer.", "wte.weight"),
            unused=lambda prefix: _masks(config, prefix),
            dtype=dtype,
        )
        return cls(
            **common_fields(checkpoint, config, weights, name=name),
            position_embedding=Embedding(weights["position_embedding.weight"]),
            blocks=tuple(_block(weights, i, config) for i in range(config.num_layers)),
            final_norm=layer_norm(weights, "final_norm", config.norm_eps),
        )


def _block(weights: dict[str, np.ndarray], layer: int, config: GPT2Config) -> DecoderBlock:
    at = f"blocks.{layer}"
    q, k, v = (  # side by side in the file, each a view here
        Linear(weight, bias)
        for weight, bias in zip(
            np.split(weights[f"{at}.attn.qkv.weight"], 3, axis=1),
            np.split(weights[f"{at}.attn.qkv.bias"], 3),
            strict=True,
        )
    )
    return DecoderBlock(
        layer_norm(weights, f"{at}.attn_norm", config.norm_eps),
        CausalAttention(
            q, k, v, linear(weights, f"{at}.attn.o_proj"), num_heads=config.num_heads, scale=config.scale(layer)
        ),
        layer_norm(weights, f"{at}.mlp_norm", config.norm_eps),
        FeedForward(
            linear(weights, f"{at}.mlp.up_proj"),
            linear(weights, f"{at}.mlp.down_proj"),
            activation=config.activation,
        ),
    )


def _tensors(config: GPT2Config, prefix: str) -> Iterator[Tensor]:
    """Yield every tensor but the head, under our name and under that of a Hugging Face checkpoint.

    Its linear maps are stored as (inputs, outputs), as they are here.
    """

    def both(name: str, stored: str, *shape: int) -> Iterator[Tensor]:
        yield Tensor(f"{name}.weight", f"{stored}.weight", shape)
        yield Tensor(f"{name}.bias", f"{stored}.bias", shape[-1:])

    E, F = config.embed_dim, config.hidden_dim
    yield Tensor("token_embedding.weight", f"{prefix}wte.weight", (config.vocab_size, E))
    yield Tensor("position_embedding.weight", f"{prefix}wpe.weight", (config.max_positions, E))
    for i in range(config.num_layers):
        ours, theirs = f"blocks.{i}", f"{prefix}h.{i}"
        yield from both(f"{ours}.attn_norm", f"{theirs}.ln_1", E)
        yield from both(f"{ours}.attn.qkv", f"{theirs}.attn.c_attn", E, 3 * E)
        yield from both(f"{ours}.attn.o_proj", f"{theirs}.attn.c_proj", E, E)
        yield from both(f"{ours}.mlp_norm", f"{theirs}.ln_2", E)
        yield from both(f"{ours}.mlp.up_proj", f"{theirs}.mlp.c_fc", E, F)
        yield from both(f"{ours}.mlp.down_proj", f"{theirs}.mlp.c_proj", F, E)
    yield from both("final_norm", f"{prefix}ln_f", E)


def _masks(config: GPT2Config, prefix: str) -> tuple[str, ...]:
    """Return the names of the masks that older files keep."""
    return tuple(f"{prefix}h.{i}.attn.{name}" for i in range(config.num_layers) for name in ("bias", "masked_bias"))
