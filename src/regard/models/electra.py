"""ELECTRA: BERT trained to find replaced words (Clark et al. 2020, arXiv:2003.10555).

The blocks are BERT's. The embeddings may be narrower and are then widened by a linear map.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from regard.models.bert import Bert, BertConfig, read_sizes
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.listed_tensors import TensorSpec, linear_tensors

_SUMMARY = ("type", "use_proj", "activation", "first_dropout", "last_dropout")


class ElectraConfig(BertConfig):
    """The configuration of a BERT, and the width of its embeddings if it is another."""

    @classmethod
    def read(cls, reader: ConfigReader) -> ElectraConfig:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.ignore(*(f"summary_{name}" for name in _SUMMARY))  # of a task head
        config = cls(**read_sizes(reader, "electra"))
        width = reader.count("embedding_size", 128)
        reader.finish()
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
    def tensors(cls, config: Any) -> Iterator[TensorSpec]:
        """Yield every tensor."""
        yield from super().tensors(config)
        if config.embedding_dim is not None:
            yield from linear_tensors("embedding_proj", "embeddings_project", config.embedding_dim, config.embed_dim)
