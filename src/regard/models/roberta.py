"""RoBERTa: BERT trained longer and on more (Liu et al. 2019, arXiv:1907.11692), also for a hundred languages.

XLM-RoBERTa (Conneau et al. 2019, arXiv:1911.02116) has the same shape. What differs from BERT is how positions are
counted: the first rows of the table, up to that of the padding token's id, stand for no place in a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from regard.models.bert import Bert, BertConfig, read_sizes
from regard.models.checkpoint.config import ConfigReader


@dataclass(frozen=True)
class RobertaConfig(BertConfig):
    """The sizes of a BERT, and the id of its padding token."""

    pad_id: int

    @classmethod
    def read(cls, reader: ConfigReader) -> RobertaConfig:
        """Take the fields of a Hugging Face config.json; anything unknown is an error."""
        sizes = read_sizes(reader, "roberta", "xlm-roberta")
        config = cls(**sizes, pad_id=reader.index("pad_token_id", 1, sizes["vocab_size"]))
        reader.require(
            config.max_positions > config.pad_id + 1,
            f"max_position_embeddings {config.max_positions} leaves no place behind those up to pad_token_id "
            f"{config.pad_id}",
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False)
class Roberta(Bert):
    """A RoBERTa encoder with its tokenizer."""

    config: RobertaConfig

    config_type: ClassVar[type[BertConfig]] = RobertaConfig
    prefixes: ClassVar[tuple[str, ...]] = ("", "roberta.")
    unused: ClassVar[tuple[str, ...]] = ("embeddings.position_ids", "pooler.", "lm_head.", "classifier.", "qa_outputs.")

    @property
    def max_length(self) -> int:
        """The most tokens that it looks at at once."""
        return self.config.max_positions - self.config.pad_id - 1

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Return the position embeddings, ``B T E``: tokens count from behind the padding's, which all share one."""
        is_text = ids != self.config.pad_id
        return self.position_embedding(self.config.pad_id + np.where(is_text, is_text.cumsum(axis=1), 0))
