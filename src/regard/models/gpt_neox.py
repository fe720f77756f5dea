"""GPT-NeoX: a decoder whose attention and feed-forward read the same input (Black et al. 2022, arXiv:2204.06745).

Pythia has this architecture (Biderman et al. 2023, arXiv:2304.01373). The first quarter of the features of each head is
rotated by its position, the rest is not. Norms have a mean and a bias, as those of GPT-2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from regard.models.build import feed_forward, fused_linears, layer_norm, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder_checkpoint import read_sizes
from regard.models.llama import Llama, LlamaConfig
from regard.models.rope import read_rope
from regard.nn import FeedForward, Linear


class GPTNeoXConfig(LlamaConfig):
    """The configuration of a GPT-NeoX."""

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="gpt_neox")
        reader.without_effect("hidden_dropout")
        sizes = read_sizes(
            reader, norm_eps=1e-5, norm_eps_name="layer_norm_eps", with_kv_heads=False, with_head_dim=False
        )
        return cls._rest(
            reader,
            sizes,
            activation="gelu",
            rope=read_rope(reader, sizes, partial=0.25, base_name="rotary_emb_base", partial_name="rotary_pct"),
            bias=reader.flag("attention_bias", True),
            parallel=reader.flag("use_parallel_residual", True),
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GPTNeoX(Llama):
    """A GPT-NeoX with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = GPTNeoXConfig
    make_norm: ClassVar[Callable[..., Any]] = layer_norm
    prefix: ClassVar[str] = "gpt_neox"
    embedding: ClassVar[str] = "embed_in"
    head_name: ClassVar[str] = "embed_out"
    last_norm: ClassVar[str] = "final_layer_norm"
    attention_name: ClassVar[str] = "attention"

    @classmethod
    def projections(cls, source: TensorSource, config: Any) -> list[Linear]:
        """Return the linear maps of queries, keys, values and output; the first three of a head are stored together."""
        E, bias = config.embed_dim, config.qkv_bias
        qkv = fused_linears(source, "query_key_value", E, (E, E, E), bias=bias, interleaved=config.head_dim)
        return [*qkv, linear(source, "dense", E, E, bias=bias)]

    @classmethod
    def mlp(cls, source: TensorSource, config: Any, layer: int) -> FeedForward:  # noqa: ARG003
        """Return the feed-forward layer of a block."""
        names = ("dense_h_to_4h", "dense_4h_to_h")
        return feed_forward(source.at("mlp"), names, config.embed_dim, config.hidden_dim, config.activation)
