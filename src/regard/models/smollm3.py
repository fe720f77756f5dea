"""SmolLM3: a Llama that rotates no queries and keys in every fourth layer (Bakouch et al. 2025).

"SmolLM3: smol, multilingual, long-context reasoner", https://huggingface.co/blog/smollm3. In those layers only the
causal order tells one position from another (Yang et al. 2025, arXiv:2501.18795).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from regard.models.checkpoint.config import ConfigReader
from regard.models.decoder_checkpoint import read_sizes, read_windows
from regard.models.llama import Llama, LlamaConfig


@dataclass(frozen=True, kw_only=True)
class SmolLM3Config(LlamaConfig):
    """The configuration of a SmolLM3."""

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="smollm3")
        sizes = read_sizes(reader, num_kv_heads=4)
        rotated = read_rotated(reader, sizes["num_layers"])
        slides, window = reader.flag("use_sliding_window", False), reader.optional_count("sliding_window")
        default = [slides and window is not None and not rotates for rotates in rotated]
        return cls._rest(
            reader,
            sizes,
            windows=read_windows(reader, sizes["num_layers"], window, default),
            rotated=rotated,
            bias=reader.flag("attention_bias", False),
            mlp_bias=reader.flag("mlp_bias", False),
            rope_base=2_000_000.0,
            tied=True,
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SmolLM3(Llama):
    """A SmolLM3 with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = SmolLM3Config


def read_rotated(reader: ConfigReader, num_layers: int) -> tuple[bool, ...]:
    """Read ``no_rope_layers``: 0 for a layer without rotation, by default each ``no_rope_layer_interval``-th."""
    interval = reader.count("no_rope_layer_interval", 4)
    layers = reader.take("no_rope_layers")
    if layers is None:
        return tuple((i + 1) % interval != 0 for i in range(num_layers))
    fits = isinstance(layers, list) and len(layers) == num_layers and all(layer in (0, 1) for layer in layers)
    reader.require(fits, f"no_rope_layers must be 0 or 1 for each of {num_layers} layers, got {layers!r}")
    return tuple(map(bool, layers)) if fits else (True,) * num_layers
