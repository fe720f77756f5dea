"""GLM-4: a Llama that rotates half of each head, with gate and up projection in one tensor (GLM team 2024).

"ChatGLM: a family of large language models from GLM-130B to GLM-4 All Tools", https://arxiv.org/abs/2406.12793. The
models of 2025 (``glm4``) also have norms after attention and feed-forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder_checkpoint import read_sizes
from regard.models.llama import Llama, LlamaConfig
from regard.models.phi3 import fused_mlp
from regard.nn import GatedFeedForward


@dataclass(frozen=True, kw_only=True)
class GlmConfig(LlamaConfig):
    """The configuration of a GLM-4."""

    post_norms: bool

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        post_norms = reader.choice("model_type", None, ["glm", "glm4"]) != "glm"
        sizes = read_sizes(reader, head_dim=128, num_kv_heads=2, norm_eps=1.5625e-7)
        return cls._rest(
            reader,
            sizes,
            qkv_bias=reader.flag("attention_bias", True),
            partial=0.5,
            post_norms=post_norms,
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Glm(Llama):
    """A GLM-4 with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = GlmConfig
    interleaved: ClassVar[bool] = True

    @classmethod
    def block_norms(cls, config: Any) -> dict[str, str]:
        """Return the norms of a block; those after attention and feed-forward are of the models of 2025."""
        after = {"attn_post_norm": "post_self_attn_layernorm", "mlp_post_norm": "post_mlp_layernorm"}
        return super().block_norms(config) | (after if config.post_norms else {})

    @classmethod
    def mlp(cls, source: TensorSource, config: Any, layer: int) -> GatedFeedForward:  # noqa: ARG003
        """Return the feed-forward layer of a block."""
        return fused_mlp(source, config)
