"""OLMo 2: a Llama with its norms behind attention and feed-forward instead of before them, and norms of q and k.

OLMo team (2025), "2 OLMo 2 furious", https://arxiv.org/abs/2501.00656. Queries are normed as one vector of all heads,
and so are keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.models import decoder_checkpoint as shared
from regard.models.build import causal_attention, rms_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSpec
from regard.models.llama import Llama, LlamaConfig
from regard.nn import DecoderBlock


class Olmo2Config(LlamaConfig):
    """The configuration of an OLMo 2."""

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="olmo2")
        sizes = shared.read_sizes(reader, norm_eps=1e-5)
        bias = reader.flag("attention_bias", False)
        return cls._finish(reader, sizes, windows=(None,) * sizes["num_layers"], qkv_bias=bias, output_bias=bias)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Olmo2(Llama):
    """An OLMo 2 with its tokenizer; its forward pass is Llama's, with other norms in the blocks."""

    config_type: ClassVar[type[LlamaConfig]] = Olmo2Config

    @classmethod
    def block(cls, weights: dict[str, np.ndarray], layer: int, config: Any) -> DecoderBlock:
        """Return the block of a layer: x + norm(attn(x)), then x + norm(mlp(x))."""
        at, eps = f"blocks.{layer}", config.norm_eps
        q_norm, k_norm = (rms_norm(weights, f"{at}.attn.{part}_norm", eps) for part in "qk")
        return DecoderBlock(
            None,
            causal_attention(weights, f"{at}.attn", num_heads=config.num_heads, q_norm=q_norm, k_norm=k_norm),
            None,
            cls.mlp(weights, layer, config),
            attn_post_norm=rms_norm(weights, f"{at}.attn_post_norm", eps),
            mlp_post_norm=rms_norm(weights, f"{at}.mlp_post_norm", eps),
        )

    @classmethod
    def tensors(cls, config: Any, prefix: str) -> Iterator[TensorSpec]:
        """Yield every tensor except the head."""
        E, D = config.embed_dim, config.head_dim
        widths = {"q_norm": config.num_heads * D, "k_norm": config.num_kv_heads * D}

        def block_tensors(name: str, hf_name: str) -> Iterator[TensorSpec]:
            for norm, width in widths.items():
                yield TensorSpec(f"{name}.attn.{norm}.weight", f"{hf_name}.self_attn.{norm}.weight", (width,))
            yield TensorSpec(f"{name}.attn_post_norm.weight", f"{hf_name}.post_attention_layernorm.weight", (E,))
            yield TensorSpec(f"{name}.mlp_post_norm.weight", f"{hf_name}.post_feedforward_layernorm.weight", (E,))
            yield from cls.mlp_tensors(name, hf_name, config)

        bias = config.qkv_bias
        return shared.decoder_tensors(config, prefix, block_tensors, qkv_bias=bias, output_bias=bias, attn_norm=False)
