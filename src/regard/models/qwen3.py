"""Qwen3: a Llama with an RMS norm of each query and key before the rotation (Yang et al. 2025, arXiv:2505.09388)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from regard.models.checkpoint.config import ConfigReader
from regard.models.decoder_checkpoint import read_sizes
from regard.models.llama import Llama, LlamaConfig
from regard.models.qwen2 import read_qwen_windows


class Qwen3Config(LlamaConfig):
    """The configuration of a Qwen3."""

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="qwen3")
        sizes = read_sizes(reader, head_dim=128)
        bias, windows = reader.flag("attention_bias", False), read_qwen_windows(reader, sizes)
        return cls._rest(reader, sizes, windows=windows, bias=bias, qk_norm=True)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Qwen3(Llama):
    """A Qwen3 with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = Qwen3Config
