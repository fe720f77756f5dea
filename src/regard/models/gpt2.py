"""GPT-2: a decoder with learned positions and a norm before each sublayer (Radford et al. 2019).

"Language models are unsupervised multitask learners".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.functional.recorder import Recorder
from regard.models.build import embedding, layer_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder import Caches, Decoder
from regard.models.decoder_checkpoint import check_unsupported_flags
from regard.nn import CausalAttention, DecoderBlock, Embedding, FeedForward, Linear
from regard.nn.layers import traced_norm

_SUMMARY = ("type", "use_proj", "activation", "proj_to_labels", "first_dropout")


@dataclass(frozen=True, kw_only=True)
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
    scaled: bool = True
    scaled_by_layer: bool = False
    tied: bool

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="gpt2")
        reader.flag("reorder_and_upcast_attn", False)  # half precision always computes in float32 here
        reader.without_effect("attn_pdrop", "embd_pdrop", "resid_pdrop")  # for training
        ignore_summary(reader)
        reader.without_effect("n_ctx", "n_special", "predict_special_tokens")
        sizes = read_sizes(reader, "n_embd", "n_layer", "n_head", "n_positions")
        return cls(
            **sizes,
            hidden_dim=reader.optional_count("n_inner") or 4 * sizes["embed_dim"],
            norm_eps=reader.positive("layer_norm_epsilon", 1e-5),
            scaled=reader.flag("scale_attn_weights", True),
            scaled_by_layer=reader.flag("scale_attn_by_inverse_layer_idx", False),
        )

    def scale(self, layer: int) -> float:
        """Return the scale of the scores in a layer."""
        scale = 1 / math.sqrt(self.embed_dim // self.num_heads) if self.scaled else 1.0
        return scale / (layer + 1) if self.scaled_by_layer else scale


def read_sizes(
    reader: ConfigReader, width: str, layers: str, heads: str, positions: str, *, activation: str = "gelu_new"
) -> dict[str, Any]:
    """Read what GPT-2 and its relatives have in common, by the names of four sizes; `activation` is the default."""
    check_unsupported_flags(reader)
    sizes: dict[str, Any] = {
        "vocab_size": reader.count("vocab_size"),
        "embed_dim": reader.count(width),
        "num_layers": reader.num_layers(layers),
        "num_heads": reader.count(heads),
        "max_positions": reader.count(positions),
        "activation": reader.activation("activation_function", activation),
        "tied": reader.flag("tie_word_embeddings", True),
    }
    reader.splits(width, sizes["embed_dim"], sizes["num_heads"])
    return sizes


def ignore_summary(reader: ConfigReader) -> None:
    """Read the fields of a task head, which do not affect the model."""
    reader.without_effect(*(f"summary_{name}" for name in _SUMMARY))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GPT2(Decoder):
    """A GPT-2 with its tokenizer."""

    config_type: ClassVar[Any] = GPT2Config  # a relative has its own
    prefix: ClassVar[str] = "transformer"
    embedding: ClassVar[str] = "wte"

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
    def layers(cls, source: TensorSource, config: Any) -> dict[str, Any]:
        """Return the fields that are layers, except the head."""
        E = config.embed_dim
        return {
            "token_embedding": embedding(source, cls.embedding, config.vocab_size, E, in_blocks=True),
            "position_embedding": embedding(source, "wpe", config.max_positions, E),
            "blocks": tuple(cls.block(source.at(f"h.{i}"), config, i) for i in range(config.num_layers)),
            "final_norm": layer_norm(source, "ln_f", E, config.norm_eps),
        }

    @classmethod
    def block(cls, source: TensorSource, config: Any, layer: int) -> DecoderBlock:
        """Return the block of a layer. The checkpoint stores linear maps as (inputs, outputs), as they are here."""

        def arrays(name: str, inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
            return source.array(f"{name}.weight", (inputs, outputs)), source.array(f"{name}.bias", (outputs,))

        E, F, eps = config.embed_dim, config.hidden_dim, config.norm_eps
        attn_norm, (weight, bias) = layer_norm(source, "ln_1", E, eps), arrays("attn.c_attn", E, 3 * E)
        q, k, v = map(Linear, np.split(weight, 3, axis=1), np.split(bias, 3))  # views
        o = Linear(*arrays("attn.c_proj", E, E))
        return DecoderBlock(
            attn_norm,
            CausalAttention(q, k, v, o, num_heads=config.num_heads, scale=config.scale(layer)),
            layer_norm(source, "ln_2", E, eps),
            FeedForward(
                Linear(*arrays("mlp.c_fc", E, F)), Linear(*arrays("mlp.c_proj", F, E)), activation=config.activation
            ),
        )
