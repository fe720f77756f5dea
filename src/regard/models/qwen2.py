"""Qwen2: a Llama with biases on queries, keys and values (Yang et al. 2024, arXiv:2407.10671)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from regard.models.checkpoint.config import ConfigReader
from regard.models.decoder_checkpoint import read_sizes, read_windows
from regard.models.llama import Llama, LlamaConfig


class Qwen2Config(LlamaConfig):
    """The configuration of a Qwen2."""

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="qwen2", use_mrope=False)
        sizes = read_sizes(reader)
        return cls._rest(reader, sizes, windows=read_qwen_windows(reader, sizes), qkv_bias=True)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Qwen2(Llama):
    """A Qwen2 with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = Qwen2Config


def read_qwen_windows(reader: ConfigReader, sizes: dict[str, Any]) -> tuple[int | None, ...]:
    """Read the sliding windows: none, or one in every layer from ``max_window_layers`` on."""
    slides = reader.flag("use_sliding_window", False)
    window, first = reader.optional_count("sliding_window", 4096), reader.take("max_window_layers", 28)
    reader.require(
        type(first) is int and first >= 0, f"max_window_layers must be a whole number of at least 0, got {first!r}"
    )
    if not slides or type(first) is not int:
        window = None
    default = [window is not None and i >= first for i in range(sizes["num_layers"])]
    return read_windows(reader, sizes["num_layers"], window, default)
