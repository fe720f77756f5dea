"""Granite: a Llama with four multipliers: of embeddings, scores, outputs of sublayers, and logits.

Granite Team, IBM (2024), "Granite 3.0 language models", https://github.com/ibm-granite/granite-3.0-language-models. The
multipliers let one learning rate serve models of all sizes (Yang et al. 2022, arXiv:2203.03466).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from regard.models.checkpoint.config import ConfigReader
from regard.models.decoder_checkpoint import read_sizes
from regard.models.llama import Llama, LlamaConfig


class GraniteConfig(LlamaConfig):
    """The configuration of a Granite."""

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="granite")
        return cls._rest(
            reader,
            read_sizes(reader),
            bias=reader.flag("attention_bias", False),
            mlp_bias=reader.flag("mlp_bias", False),
            embedding_scale=reader.positive("embedding_multiplier", 1.0),
            score_scale=reader.positive("attention_multiplier", 1.0),
            residual_scale=reader.positive("residual_multiplier", 1.0),
            logit_scale=1 / reader.positive("logits_scaling", 1.0),
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Granite(Llama):
    """A Granite with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = GraniteConfig
