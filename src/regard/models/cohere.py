"""Command R: a Llama of parallel blocks with layer norms without biases, which scales its logits (Cohere 2024).

https://cohere.com/blog/command-r. Rotations turn neighbouring features; the largest model norms each query and key,
with weights of their own for each head. Three of four layers of ``cohere2`` (Command R7B, Command A) have a window; the
fourth attends to all tokens without positions (Cohere 2025, "Command A", arXiv:2504.00698).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from regard import functional as F
from regard.models.build import layer_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder_checkpoint import read_sizes, read_windows
from regard.models.llama import Llama, LlamaConfig
from regard.nn import DecoderBlock, LayerNorm


class CohereConfig(LlamaConfig):
    """The configuration of a Command R."""

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        is_second = reader.choice("model_type", None, ["cohere", "cohere2"]) == "cohere2"
        sizes = read_sizes(reader, norm_eps=1e-5, norm_eps_name="layer_norm_eps")
        layers = sizes["num_layers"]
        windows: tuple[int | None, ...] = (None,) * layers
        if is_second:
            reader.choice("position_embedding_type", "rope_gptj", ["rope_gptj"])
            share = reader.take("rotary_pct", 1)
            reader.require(share == 1, f"rotary_pct is {share!r}, which transformers takes for 1")
            width, heads = sizes["embed_dim"], sizes["num_heads"]
            reader.require(
                sizes["head_dim"] * heads == width,
                f"head_dim {sizes['head_dim']} is not {width} / {heads}, which transformers takes in its place",
            )
            window, pattern = reader.optional_count("sliding_window", 4096), reader.count("sliding_window_pattern", 4)
            windows = read_windows(reader, layers, window, [bool((i + 1) % pattern) for i in range(layers)])
        return cls._rest(
            reader,
            sizes,
            windows=windows,
            rotated=tuple(window is not None for window in windows) if is_second else None,
            rope_base=10_000.0 if is_second else 500_000.0,
            bias=reader.flag("attention_bias", False),
            parallel=True,
            qk_norm=not is_second and reader.flag("use_qk_norm", False),
            logit_scale=reader.positive("logit_scale", 0.0625),
            tied=True,
        )


@dataclass(frozen=True, eq=False, repr=False)
class HeadNorm(LayerNorm):
    """Layer normalization of the features of each head, ``... H T D``, whose weight, ``H 1 D``, is of each head."""

    def __post_init__(self) -> None:
        """Leave out the check of `LayerNorm`, whose weight has one axis."""

    def __call__(self, x: np.ndarray, *, residual: np.ndarray | None = None) -> np.ndarray:
        """Return ``... H T D`` for x ``... H T D``, or for x + residual."""
        normalized: np.ndarray = F.layer_norm(x, eps=self.eps, residual=residual) * self.weight
        return normalized

    forward = __call__


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Cohere(Llama):
    """A Command R with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = CohereConfig
    make_norm: ClassVar[Callable[..., Any]] = partial(layer_norm, bias=False)
    interleaved: ClassVar[bool] = True

    config: CohereConfig

    @classmethod
    def block(cls, source: TensorSource, config: Any, layer: int) -> DecoderBlock:
        """Return the block of a layer, in which attention and feed-forward read the same norm."""
        norm = cls.norm(source, "input_layernorm", config.embed_dim, config)
        attn = cls.attention(source.at(cls.attention_name), config, layer)
        return DecoderBlock(norm, attn, norm, cls.mlp(source, config, layer), parallel=config.parallel)

    @classmethod
    def head_norm(cls, source: TensorSource, name: str, heads: int, config: Any) -> HeadNorm:
        """Return the norm of each query or each key, of so many heads."""
        D = config.head_dim
        return HeadNorm(source.array(f"{name}.weight", (heads, D), (heads, 1, D)), eps=config.norm_eps)
