"""ELECTRA: BERT trained to find replaced words (Clark et al. 2020, arXiv:2003.10555).

The blocks are BERT's. The embeddings may be narrower and are then widened by a linear map.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from regard.models.bert import Bert, BertConfig, read_sizes
from regard.models.build import linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource

_SUMMARY = ("type", "use_proj", "activation", "first_dropout", "last_dropout")


class ElectraConfig(BertConfig):
    """The configuration of a BERT, and the width of its embeddings if it is another."""

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.without_effect(*(f"summary_{name}" for name in _SUMMARY))  # of a task head
        config = cls(**read_sizes(reader, "electra"))
        width = reader.count("embedding_size", 128)
        return replace(config, embedding_dim=None if width == config.embed_dim else width)


@dataclass(frozen=True, eq=False, repr=False)
class Electra(Bert):
    """An ELECTRA encoder with its tokenizer; its forward pass is BERT's."""

    config_type: ClassVar[type[BertConfig]] = ElectraConfig
    prefixes: ClassVar[tuple[str, ...]] = ("", "electra.")
    unused: ClassVar[tuple[str, ...]] = (
        "discriminator_predictions.", "generator_predictions.", "generator_lm_head.",
        "classifier.", "qa_outputs.", "sequence_summary.",
    )  # fmt: skip

    @classmethod
    def layers(cls, source: TensorSource, config: Any) -> dict[str, Any]:
        """Return the fields that are layers."""
        layers, width = super().layers(source, config), config.embedding_dim
        if width is not None:
            layers["embedding_proj"] = linear(source, "embeddings_project", width, config.embed_dim)
        return layers
