"""GPT-NeoX: a decoder whose attention and feed-forward read the same input (Black et al. 2022, arXiv:2204.06745).

Pythia has this architecture (Biderman et al. 2023, arXiv:2304.01373). The first quarter of the features of each head is
rotated by its position, the rest is not. Norms have a mean and a bias, as those of GPT-2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from regard.functional.recorder import Recorder
from regard.models import decoder_checkpoint as shared
from regard.models.build import causal_attention, feed_forward, layer_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.open import Checkpoint
from regard.models.checkpoint.tensors import TensorSpec, fused_tensors, linear_tensors, norm_tensors
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
        reader.ignore("hidden_dropout")
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
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = GPTNeoXConfig.read(checkpoint.config())
        weights = shared.load_decoder_tensors(
            checkpoint,
            config,
            _tensors,
            prefix="gpt_neox.",
            embedding="embed_in.weight",
            head="embed_out",
            dtype=dtype,
        )
        return cls(
            **shared.common_fields(checkpoint, config, weights, name=name),
            blocks=tuple(_block(weights, f"blocks.{i}", config) for i in range(config.num_layers)),
            final_norm=layer_norm(weights, "final_norm", config.norm_eps),
        )


def _block(weights: dict[str, np.ndarray], at: str, config: GPTNeoXConfig) -> DecoderBlock:
    return DecoderBlock(
        layer_norm(weights, f"{at}.attn_norm", config.norm_eps),
        causal_attention(weights, f"{at}.attn", num_heads=config.num_heads),
        layer_norm(weights, f"{at}.mlp_norm", config.norm_eps),
        feed_forward(weights, f"{at}.mlp", config.activation),
        parallel=config.parallel,
    )


def _tensors(config: GPTNeoXConfig, prefix: str) -> Iterator[TensorSpec]:
    """Yield every tensor except the head.

    Queries, keys and values are one tensor in the checkpoint, which has the three of a head together.
    """
    E, F, bias = config.embed_dim, config.hidden_dim, config.attn_bias
    yield TensorSpec("token_embedding.weight", f"{prefix}embed_in.weight", (config.vocab_size, E), table=True)
    for i in range(config.num_layers):
        at, hf = f"blocks.{i}", f"{prefix}layers.{i}"
        yield from norm_tensors(f"{at}.attn_norm", f"{hf}.input_layernorm", E)
        qkv = {f"{at}.attn.{part}_proj": E for part in "qkv"}
        yield from fused_tensors(qkv, f"{hf}.attention.query_key_value", E, bias=bias, interleaved=config.head_dim)
        yield from linear_tensors(f"{at}.attn.o_proj", f"{hf}.attention.dense", E, E, bias=bias)
        yield from norm_tensors(f"{at}.mlp_norm", f"{hf}.post_attention_layernorm", E)
        yield from linear_tensors(f"{at}.mlp.up_proj", f"{hf}.mlp.dense_h_to_4h", E, F)
        yield from linear_tensors(f"{at}.mlp.down_proj", f"{hf}.mlp.dense_4h_to_h", F, E)
    yield from norm_tensors("final_norm", f"{prefix}final_layer_norm", E)
