"""Mistral: a Llama whose layers look back no further than a window (Jiang et al. 2023, arXiv:2310.06825)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from regard.models.checkpoint.config import ConfigReader
from regard.models.decoder import read_sizes
from regard.models.llama import Llama, LlamaConfig


class MistralConfig(LlamaConfig):
    """The sizes of a Mistral, and its choices."""

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Take the fields of a Hugging Face config.json; anything unknown is an error."""
        reader.choice("model_type", "mistral", ["mistral"])
        sizes = read_sizes(reader, num_kv_heads=8)
        window = reader.optional_count("sliding_window", 4096)
        return cls._finish(reader, sizes, windows=(window,) * sizes["num_layers"])


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Mistral(Llama):
    """A Mistral with its tokenizer."""

    configuration: ClassVar[type[LlamaConfig]] = MistralConfig
