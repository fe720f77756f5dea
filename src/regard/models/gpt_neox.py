"""GPT-NeoX: a decoder whose attention and feed-forward read the same input (Black et al. 2022, arXiv:2204.06745).

Pythia has this architecture (Biderman et al. 2023, arXiv:2304.01373). The first quarter of the features of each head is
rotated by its position, the rest is not. Norms have a mean and a bias, as those of GPT-2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.functional.recorder import Recorder
from regard.models import decoder_checkpoint as shared
from regard.models.build import causal_attention, embedding, feed_forward, fused_linears, layer_norm, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder import Caches, Decoder
from regard.models.rope import read_rope
from regard.nn import CosSin, DecoderBlock
from regard.nn.layers import traced_norm


@dataclass(frozen=True, kw_only=True)
class GPTNeoXConfig(shared.DecoderConfig):
    """The sizes of a GPT-NeoX, its activation, whether attention has biases, and whether its blocks are parallel."""

    activation: str
    attn_bias: bool
    parallel: bool

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="gpt_neox")
        reader.without_effect("hidden_dropout")
        shared.check_unsupported_flags(reader)
        sizes = shared.read_sizes(
            reader, norm_eps=1e-5, norm_eps_name="layer_norm_eps", with_kv_heads=False, with_head_dim=False
        )
        rope = read_rope(reader, sizes, partial=0.25, base_name="rotary_emb_base", partial_name="rotary_pct")
        config = cls(
            **sizes,
            activation=reader.activation("hidden_act", "gelu"),
            rope=rope,
            tied=reader.flag("tie_word_embeddings", False),
            windows=(None,) * sizes["num_layers"],
            attn_bias=reader.flag("attention_bias", True),
            parallel=reader.flag("use_parallel_residual", True),
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GPTNeoX(Decoder):
    """A GPT-NeoX with its tokenizer."""

    config_type: ClassVar[Any] = GPTNeoXConfig
    prefix: ClassVar[str] = "gpt_neox"
    embedding: ClassVar[str] = "embed_in"
    head_name: ClassVar[str] = "embed_out"

    config: GPTNeoXConfig

    def forward_with_cache(
        self, ids: np.ndarray, positions: np.ndarray, caches: Caches, *, mask: np.ndarray | None, trace: Recorder
    ) -> tuple[np.ndarray, Caches]:
        """Embeddings, blocks, final norm; `Decoder.head` makes logits of the result."""
        x = trace("token_embeddings", self.token_embedding(ids), "B T E")
        x = trace("embeddings", x, "B T E")
        rotation = self.rotation(positions, x.dtype)
        x, caches = self.run_blocks(x, caches, rotation=rotation, mask=mask, trace=trace)
        return trace("final_norm", traced_norm(self.final_norm, x, trace, "final_norm"), "B T E"), caches

    def rotation(self, positions: np.ndarray, dtype: Any) -> CosSin:
        """Return the rotation of queries and keys at some positions, of all blocks."""
        return self.config.rope(positions, dtype)

    @classmethod
    def layers(cls, source: TensorSource, config: Any) -> dict[str, Any]:
        """Return the fields that are layers, except the head."""
        return {
            "token_embedding": embedding(source, cls.embedding, config.vocab_size, config.embed_dim, in_blocks=True),
            "blocks": tuple(_block(source.at(f"layers.{i}"), config) for i in range(config.num_layers)),
            "final_norm": layer_norm(source, "final_layer_norm", config.embed_dim, config.norm_eps),
        }


def _block(source: TensorSource, config: GPTNeoXConfig) -> DecoderBlock:
    """Return a block. The checkpoint has queries, keys and values as one tensor, the three of a head together."""
    attn, E, eps, bias = source.at("attention"), config.embed_dim, config.norm_eps, config.attn_bias
    mlp = ("dense_h_to_4h", "dense_4h_to_h")
    return DecoderBlock(
        layer_norm(source, "input_layernorm", E, eps),
        causal_attention(
            [
                *fused_linears(attn, "query_key_value", E, (E, E, E), bias=bias, interleaved=config.head_dim),
                linear(attn, "dense", E, E, bias=bias),
            ],
            num_heads=config.num_heads,
        ),
        layer_norm(source, "post_attention_layernorm", E, eps),
        feed_forward(source.at("mlp"), mlp, E, config.hidden_dim, config.activation),
        parallel=config.parallel,
    )
