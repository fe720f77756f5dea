"""RoBERTa: BERT trained longer, on more text (Liu et al. 2019, arXiv:1907.11692).

CamemBERT, for French (Martin et al. 2019, arXiv:1911.03894), and XLM-RoBERTa, for a hundred languages (Conneau et al.
2019, arXiv:1911.02116), have the same architecture. Only positions differ from BERT: they count from the row after that
of the padding token's id, and skip padding tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from regard.models.bert import Bert, BertConfig, read_sizes
from regard.models.checkpoint.config import ConfigReader


@dataclass(frozen=True)
class RobertaConfig(BertConfig):
    """The configuration of a BERT, and the id of its padding token."""

    pad_id: int

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        sizes = read_sizes(reader, "roberta", "camembert", "xlm-roberta")
        config = cls(**sizes, pad_id=reader.index("pad_token_id", 1, sizes["vocab_size"]))
        reader.require(
            config.max_positions > config.pad_id + 1,
            f"max_position_embeddings {config.max_positions} leaves no position after pad_token_id {config.pad_id}",
        )
        return config


@dataclass(frozen=True, eq=False, repr=False)
class Roberta(Bert):
    """A RoBERTa encoder with its tokenizer."""

    config: RobertaConfig

    config_type: ClassVar[type[BertConfig]] = RobertaConfig
    prefixes: ClassVar[tuple[str, ...]] = ("", "roberta.")
    unused: ClassVar[tuple[str, ...]] = ("pooler.", "lm_head.", "classifier.", "qa_outputs.")

    @property
    def max_length(self) -> int:
        """The most tokens of a text."""
        return self.config.max_positions - self.config.pad_id - 1

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Return the position embeddings, ``B T E``; padding tokens share the row of their id."""
        is_text = ids != self.config.pad_id
        return self.position_embedding(self.config.pad_id + np.where(is_text, is_text.cumsum(axis=1), 0))
