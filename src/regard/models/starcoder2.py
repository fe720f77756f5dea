"""StarCoder 2: a Mistral with layer norms, biases everywhere and a plain feed-forward layer (Lozhkov et al. 2024).

"StarCoder 2 and The Stack v2: the next generation", https://arxiv.org/abs/2402.19173.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from regard.models.build import feed_forward, layer_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder_checkpoint import read_sizes
from regard.models.llama import Llama, LlamaConfig
from regard.nn import FeedForward


class Starcoder2Config(LlamaConfig):
    """The configuration of a StarCoder 2."""

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="starcoder2")
        reader.without_effect("residual_dropout", "embedding_dropout")  # for training
        sizes = read_sizes(reader, num_kv_heads=2, norm_eps=1e-5, norm_eps_name="norm_epsilon")
        window, bias = reader.optional_count("sliding_window"), reader.flag("use_bias", True)
        return cls._rest(
            reader,
            sizes,
            windows=window,
            bias=bias,
            mlp_bias=bias,
            activation="gelu_pytorch_tanh",
            tied=True,
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Starcoder2(Llama):
    """A StarCoder 2 with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = Starcoder2Config
    make_norm: ClassVar[Callable[..., Any]] = layer_norm

    @classmethod
    def mlp(cls, source: TensorSource, config: Any, layer: int) -> FeedForward:  # noqa: ARG003
        """Return the feed-forward layer of a block."""
        sizes = config.embed_dim, config.hidden_dim
        return feed_forward(source.at("mlp"), ("c_fc", "c_proj"), *sizes, config.activation, bias=config.mlp_bias)
