"""GPT-2: a decoder with learned positions and a norm before each sublayer (Radford et al. 2019).

"Language models are unsupervised multitask learners".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.functional.recorder import Recorder
from regard.models.build import feed_forward, layer_norm, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.open import Checkpoint
from regard.models.checkpoint.tensors import TensorSpec
from regard.models.decoder import Caches, Decoder
from regard.models.decoder_checkpoint import MAX_LAYERS, check_unsupported_flags, common_fields, load_decoder_tensors
from regard.nn import CausalAttention, DecoderBlock, Embedding, Linear
from regard.nn.layers import traced_norm

_SUMMARY = ("type", "use_proj", "activation", "proj_to_labels", "first_dropout")


@dataclass(frozen=True)
class GPT2Config(ModelConfig):
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
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="gpt2")
        check_unsupported_flags(reader)
        reader.flag("reorder_and_upcast_attn", False)  # half precision always computes in float32 here
        reader.ignore("attn_pdrop", "embd_pdrop", "resid_pdrop")  # for training
        ignore_summary(reader)
        reader.ignore("n_special", "predict_special_tokens")
        embed_dim, num_heads = reader.count("n_embd"), reader.count("n_head")
        reader.splits("n_embd", embed_dim, num_heads)
        num_layers = reader.count("n_layer")
        reader.require(num_layers <= MAX_LAYERS, f"n_layer {num_layers} is more than the maximum of {MAX_LAYERS}")
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
        """Return the scale of the scores in a layer."""
        scale = 1 / math.sqrt(self.embed_dim // self.num_heads) if self.scaled else 1.0
        return scale / (layer + 1) if self.scaled_by_layer else scale


def ignore_summary(reader: ConfigReader) -> None:
    """Read the fields of a task head, which do not affect the model."""
    reader.ignore(*(f"summary_{name}" for name in _SUMMARY))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GPT2(Decoder):
    """A GPT-2 with its tokenizer."""

    config_type: ClassVar[Any] = GPT2Config  # a relative has its own
    prefix: ClassVar[str] = "transformer."
    embedding: ClassVar[str] = "wte.weight"

    config: Any
    position_embedding: Embedding

    @property
    def max_length(self) -> int:
        """The most tokens of a sequence: the rows of the position table."""
        return int(self.config.max_positions)

    def forward_with_cache(
        self, ids: np.ndarray, positions: np.ndarray, caches: Caches, *, mask: np.ndarray | None, trace: Recorder
    ) -> tuple[np.ndarray, Caches]:
        """Token plus position embeddings, blocks, final norm; `Decoder.head` makes logits of the result."""
        x = trace("token_embeddings", self.token_embedding(ids), "B T E")
        table = trace("position_embeddings", self.position_embedding(positions), "... T E")
        x = trace("embeddings", x + table, "B T E")
        x, caches = self.run_blocks(x, caches, mask=mask, trace=trace)
        return trace("final_norm", traced_norm(self.final_norm, x, trace, "final_norm"), "B T E"), caches

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = cls.config_type.read(checkpoint.config())
        weights = load_decoder_tensors(
            checkpoint,
            config,
            cls.tensors,
            prefix=cls.prefix,
            embedding=cls.embedding,
            dtype=dtype,
        )
        return cls(
            **common_fields(checkpoint, config, weights, name=name),
            position_embedding=Embedding(weights["position_embedding.weight"]),
            blocks=tuple(cls.block(weights, i, config) for i in range(config.num_layers)),
            final_norm=layer_norm(weights, "final_norm", config.norm_eps),
        )

    @classmethod
    def block(cls, weights: dict[str, np.ndarray], layer: int, config: Any) -> DecoderBlock:
        """Return the block of a layer."""
        return _block(weights, layer, config)

    @classmethod
    def tensors(cls, config: Any, prefix: str) -> Iterator[TensorSpec]:
        """Yield every tensor except the head."""
        return _tensors(config, prefix)


def _block(weights: dict[str, np.ndarray], layer: int, config: GPT2Config) -> DecoderBlock:
    at = f"blocks.{layer}"
    q, k, v = (  # one tensor in the checkpoint, views here
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
        feed_forward(weights, f"{at}.mlp", config.activation),
    )


def _tensors(config: GPT2Config, prefix: str) -> Iterator[TensorSpec]:
    """Yield every tensor except the head.

    The checkpoint stores linear maps as (inputs, outputs), as they are here.
    """

    def both(name: str, hf_name: str, *shape: int) -> Iterator[TensorSpec]:
        yield TensorSpec(f"{name}.weight", f"{hf_name}.weight", shape)
        yield TensorSpec(f"{name}.bias", f"{hf_name}.bias", shape[-1:])

    E, F = config.embed_dim, config.hidden_dim
    yield TensorSpec("token_embedding.weight", f"{prefix}wte.weight", (config.vocab_size, E))
    yield TensorSpec("position_embedding.weight", f"{prefix}wpe.weight", (config.max_positions, E))
    for i in range(config.num_layers):
        name, hf_name = f"blocks.{i}", f"{prefix}h.{i}"
        yield from both(f"{name}.attn_norm", f"{hf_name}.ln_1", E)
        yield from both(f"{name}.attn.qkv", f"{hf_name}.attn.c_attn", E, 3 * E)
        yield from both(f"{name}.attn.o_proj", f"{hf_name}.attn.c_proj", E, E)
        yield from both(f"{name}.mlp_norm", f"{hf_name}.ln_2", E)
        yield from both(f"{name}.mlp.up_proj", f"{hf_name}.mlp.c_fc", E, F)
        yield from both(f"{name}.mlp.down_proj", f"{hf_name}.mlp.c_proj", F, E)
    yield from both("final_norm", f"{prefix}ln_f", E)
