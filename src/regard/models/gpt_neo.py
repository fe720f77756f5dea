"""GPT-Neo: a GPT-2 with a sliding window in every second layer, and scores that are not scaled (Black et al. 2021).

"GPT-Neo: large scale autoregressive language modeling with Mesh-TensorFlow", https://doi.org/10.5281/zenodo.5297715.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from regard.models.build import causal_attention, feed_forward, layer_norm, projections
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.gpt2 import GPT2, GPT2Config, ignore_summary, read_sizes
from regard.nn import DecoderBlock


@dataclass(frozen=True, kw_only=True)
class GPTNeoConfig(GPT2Config):
    """The configuration of a GPT-Neo; `windows` as in `DecoderConfig`."""

    windows: tuple[int | None, ...]

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="gpt_neo")
        reader.without_effect("resid_dropout", "embed_dropout")  # for training
        ignore_summary(reader)
        sizes = read_sizes(reader, "hidden_size", "num_layers", "num_heads", "max_position_embeddings")
        return cls(
            **sizes,
            hidden_dim=reader.optional_count("intermediate_size") or 4 * sizes["embed_dim"],
            norm_eps=reader.positive("layer_norm_epsilon", 1e-5),
            scaled=False,
            windows=_read_windows(reader, sizes["num_layers"]),
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GPTNeo(GPT2):
    """A GPT-Neo with its tokenizer; its forward pass is that of GPT-2."""

    config_type: ClassVar[Any] = GPTNeoConfig

    @classmethod
    def block(cls, source: TensorSource, config: GPTNeoConfig, layer: int) -> DecoderBlock:
        """Return the block of a layer."""
        E, eps = config.embed_dim, config.norm_eps
        names = ("q_proj", "k_proj", "v_proj", "out_proj")
        return DecoderBlock(
            layer_norm(source, "ln_1", E, eps),
            causal_attention(
                projections(source.at("attn.attention"), names, E, (E, E), bias=False),
                num_heads=config.num_heads,
                window=config.windows[layer],
                scale=config.scale(layer),
            ),
            layer_norm(source, "ln_2", E, eps),
            feed_forward(source.at("mlp"), ("c_fc", "c_proj"), E, config.hidden_dim, config.activation),
        )


def _read_windows(reader: ConfigReader, num_layers: int) -> tuple[int | None, ...]:
    """Read ``attention_types``: lists of ``global`` and ``local`` layers, each with how often it is repeated."""
    window, types = reader.count("window_size", 256), reader.take("attention_types", [[["global", "local"], 12]])
    kinds: list[Any] = []
    try:
        for names, times in types:
            kinds += list(names) * min(times, num_layers + 1)
    except (TypeError, ValueError):
        kinds = []
    fits = len(kinds) == num_layers and all(kind in ("global", "local") for kind in kinds)
    reader.require(fits, f"attention_types must make global or local of each of {num_layers} layers, got {types!r}")
    reader.choice("attention_layers", kinds, [kinds])  # repeats them
    return tuple(window if kind == "local" else None for kind in kinds) if fits else (None,) * num_layers
