"""Qwen3: a Llama that norms each query and key before it turns them (Yang et al. 2025, arXiv:2505.09388)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from regard.models.checkpoint.config import ConfigReader
from regard.models.decoder import read_sizes
from regard.models.llama import Llama, LlamaConfig
from regard.models.qwen2 import read_qwen_windows


class Qwen3Config(LlamaConfig):
    """The sizes of a Qwen3, and its choices."""

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Take the fields of a Hugging Face config.json; anything unknown is an error."""
        reader.choice("model_type", "qwen3", ["qwen3"])
        sizes = read_sizes(reader, head_dim=128)
        bias = reader.flag("attention_bias", False)
        windows = read_qwen_windows(reader, sizes)
        return cls._finish(reader, sizes, windows=windows, qkv_bias=bias, output_bias=bias, qk_norm=True)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Qwen3(Llama):
    """A Qwen3 with its tokenizer."""

    configuration: ClassVar[type[LlamaConfig]] = Qwen3Config
