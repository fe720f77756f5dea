"""OLMo 2: a Llama with its norms behind attention and feed-forward instead of before them, and norms of q and k.

OLMo team (2025), "2 OLMo 2 furious", https://arxiv.org/abs/2501.00656. Queries are normed as one vector of all heads,
and so are keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from regard.models.build import causal_attention, rms_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder_checkpoint import read_sizes
from regard.models.llama import Llama, LlamaConfig
from regard.nn import DecoderBlock


class Olmo2Config(LlamaConfig):
    """The configuration of an OLMo 2."""

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="olmo2")
        sizes = read_sizes(reader, norm_eps=1e-5)
        bias = reader.flag("attention_bias", False)
        return cls._finish(reader, sizes, windows=(None,) * sizes["num_layers"], qkv_bias=bias, output_bias=bias)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Olmo2(Llama):
    """An OLMo 2 with its tokenizer; its forward pass is Llama's, with other norms in the blocks."""

    config_type: ClassVar[type[LlamaConfig]] = Olmo2Config

    @classmethod
    def block(cls, source: TensorSource, config: Any, layer: int) -> DecoderBlock:
        """Return the block of a layer: x + norm(attn(x)), then x + norm(mlp(x))."""
        attn, E, eps, (q_width, kv_width) = source.at("self_attn"), config.embed_dim, config.norm_eps, config.widths
        return DecoderBlock(
            attn_norm=None,
            attn=causal_attention(
                cls.projections(attn, config),
                num_heads=config.num_heads,
                q_norm=rms_norm(attn, "q_norm", q_width, eps),
                k_norm=rms_norm(attn, "k_norm", kv_width, eps),
            ),
            attn_post_norm=rms_norm(source, "post_attention_layernorm", E, eps),
            mlp_post_norm=rms_norm(source, "post_feedforward_layernorm", E, eps),
            mlp=cls.mlp(source, config, layer),
        )
