"""Granite: a Llama with four multipliers: of embeddings, scores, outputs of sublayers, and logits.

Granite Team, IBM (2024), "Granite 3.0 language models", https://github.com/ibm-granite/granite-3.0-language-models. The
multipliers let one learning rate serve models of all sizes (Yang et al. 2022, arXiv:2203.03466).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder_checkpoint import read_sizes
from regard.models.llama import Llama, LlamaConfig
from regard.nn import DecoderBlock


@dataclass(frozen=True, kw_only=True)
class GraniteConfig(LlamaConfig):
    """The configuration of a Granite."""

    embedding_scale: float
    score_scale: float
    residual_scale: float
    logit_scale: float

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="granite")
        sizes = read_sizes(reader)
        bias = reader.flag("attention_bias", False)
        return cls._finish(
            reader,
            sizes,
            windows=(None,) * sizes["num_layers"],
            qkv_bias=bias,
            output_bias=bias,
            mlp_bias=reader.flag("mlp_bias", False),
            embedding_scale=reader.positive("embedding_multiplier", 1.0),
            score_scale=reader.positive("attention_multiplier", 1.0),
            residual_scale=reader.positive("residual_multiplier", 1.0),
            logit_scale=1 / reader.positive("logits_scaling", 1.0),
        )


@dataclass(frozen=True, eq=False, repr=False)
class GraniteBlock(DecoderBlock):
    """A block whose outputs of attention and feed-forward are multiplied by `residual_scale` before they are added."""

    residual_scale: float = field(default=1.0, kw_only=True)

    def before_residual(self, part: str) -> tuple[Any, Any]:  # noqa: ARG002
        """Return the residual scale, and no norm."""
        return None, self.residual_scale


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Granite(Llama):
    """A Granite with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = GraniteConfig

    config: GraniteConfig

    @property
    def embedding_scale(self) -> float:
        """The factor of the embeddings of tokens."""
        return self.config.embedding_scale

    @property
    def logit_scale(self) -> float:
        """The factor of the logits."""
        return self.config.logit_scale

    @classmethod
    def block(cls, source: TensorSource, config: Any, layer: int) -> GraniteBlock:
        """Return the block of a layer."""
        block = super().block(source, config, layer)
        attn = replace(block.attn, scale=config.score_scale)
        return GraniteBlock(block.attn_norm, attn, block.mlp_norm, block.mlp, residual_scale=config.residual_scale)
