"""Mistral: a Llama with a sliding window in every layer (Jiang et al. 2023, arXiv:2310.06825)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from regard.models.checkpoint.config import ConfigReader
from regard.models.decoder_checkpoint import read_sizes
from regard.models.llama import Llama, LlamaConfig


class MistralConfig(LlamaConfig):
    """The configuration of a Mistral."""

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="mistral")
        sizes = read_sizes(reader, num_kv_heads=8)
        window = reader.optional_count("sliding_window", 4096)
        return cls._rest(reader, sizes, windows=window)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Mistral(Llama):
    """A Mistral with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = MistralConfig
