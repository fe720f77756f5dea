"""OLMo 2: a Llama with its norms behind attention and feed-forward instead of before them, and norms of q and k.

OLMo team (2025), "2 OLMo 2 furious", https://arxiv.org/abs/2501.00656. Queries are normed as one vector of all heads,
and so are keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from regard.models.build import rms_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder_checkpoint import read_sizes
from regard.models.llama import Llama, LlamaConfig
from regard.nn import RMSNorm


class Olmo2Config(LlamaConfig):
    """The configuration of an OLMo 2."""

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="olmo2")
        sizes = read_sizes(reader, norm_eps=1e-5)
        return cls._rest(reader, sizes, bias=reader.flag("attention_bias", False), qk_norm=True)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Olmo2(Llama):
    """An OLMo 2 with its tokenizer; its forward pass is Llama's, with other norms in the blocks."""

    config_type: ClassVar[type[LlamaConfig]] = Olmo2Config

    @classmethod
    def block_norms(cls, config: Any) -> dict[str, str]:  # noqa: ARG003
        """Return the norms of a block: x + norm(attn(x)), then x + norm(mlp(x))."""
        return {"attn_post_norm": "post_attention_layernorm", "mlp_post_norm": "post_feedforward_layernorm"}

    @classmethod
    def head_norm(cls, source: TensorSource, name: str, heads: int, config: Any) -> RMSNorm:
        """Return the norm of all queries or all keys of a token."""
        return rms_norm(source, name, heads * config.head_dim, config.norm_eps)
