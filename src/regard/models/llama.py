"""Llama: a decoder with rotary positions, gated feed-forward and RMS norms (Touvron et al. 2023, arXiv:2302.13971).

Query heads share key/value heads (arXiv:2307.09288); the rotation is scaled for longer texts (arXiv:2407.21783).
Mistral and Qwen are configurations of this model; others change its blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.functional.recorder import Recorder
from regard.models import decoder_checkpoint as shared
from regard.models.build import causal_attention, gated_feed_forward, rms_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.open import Checkpoint
from regard.models.checkpoint.tensors import TensorSpec
from regard.models.decoder import Caches, Decoder
from regard.models.rope import read_rope
from regard.nn import CosSin, DecoderBlock
from regard.nn.layers import traced_norm


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(shared.DecoderConfig):
    """The sizes of a Llama, its activation, and which parts have a bias or a norm."""

    activation: str
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="llama", is_llama_config=True, rope_interleaved=False)
        reader.ignore("pretraining_tp")  # how matrices were split for training
        bias = reader.flag("attention_bias", False)
        sizes = shared.read_sizes(reader)
        windows = (None,) * sizes["num_layers"]
        mlp_bias = reader.flag("mlp_bias", False)
        return cls._finish(reader, sizes, windows=windows, qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias)

    @classmethod
    def _finish(
        cls,
        reader: ConfigReader,
        sizes: dict[str, Any],
        *,
        rope_base: float = 10_000.0,
        partial: float | None = None,
        tied: bool = False,
        **choices: Any,
    ) -> Self:
        """Read the fields that Llama and its relatives have in common."""
        shared.check_unsupported_flags(reader)
        config = cls(
            **sizes,
            **choices,
            activation=reader.activation("hidden_act", "silu"),
            rope=read_rope(reader, sizes, base=rope_base, partial=partial),
            tied=reader.flag("tie_word_embeddings", tied),
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Llama(Decoder):
    """A Llama with its tokenizer."""

    config_type: ClassVar[Any] = LlamaConfig  # a relative has its own
    rotates_last: ClassVar[bool] = False  # features of a head, where it rotates some of them; else the first

    config: Any

    def forward_with_cache(
        self, ids: np.ndarray, positions: np.ndarray, caches: Caches, *, mask: np.ndarray | None, trace: Recorder
    ) -> tuple[np.ndarray, Caches]:
        """Embeddings, blocks, final norm; `Decoder.head` makes logits of the result."""
        x = trace("token_embeddings", self.token_embedding(ids), "B T E")
        x = trace("embeddings", x, "B T E")
        rotation = self.rotation(positions, x.dtype)
        x, caches = self.run_blocks(x, caches, rotation=rotation, mask=mask, trace=trace)
        return trace("final_norm", traced_norm(self.final_norm, x, trace, "final_norm"), "B T E"), caches

    def rotation(self, positions: np.ndarray, dtype: Any) -> CosSin | list[CosSin | None]:
        """Return the rotation of queries and keys at some positions, of all blocks or of each."""
        rotation: CosSin = self.config.rope(positions, dtype)
        return rotation

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = cls.config_type.read(checkpoint.config())
        weights = shared.load_decoder_tensors(
            checkpoint, config, cls.tensors, unused=lambda prefix: cls.unused(config, prefix), dtype=dtype
        )
        return cls(
            **shared.common_fields(checkpoint, config, weights, name=name),
            blocks=tuple(cls.block(weights, i, config) for i in range(config.num_layers)),
            final_norm=rms_norm(weights, "final_norm", config.norm_eps),
        )

    @classmethod
    def block(cls, weights: dict[str, np.ndarray], layer: int, config: Any) -> DecoderBlock:
        """Return the block of a layer."""
        at, eps = f"blocks.{layer}", config.norm_eps
        return DecoderBlock(
            rms_norm(weights, f"{at}.attn_norm", eps),
            causal_attention(
                weights,
                f"{at}.attn",
                num_heads=config.num_heads,
                window=config.windows[layer],
                q_norm=rms_norm(weights, f"{at}.attn.q_norm", eps) if config.qk_norm else None,
                k_norm=rms_norm(weights, f"{at}.attn.k_norm", eps) if config.qk_norm else None,
            ),
            rms_norm(weights, f"{at}.mlp_norm", eps),
            cls.mlp(weights, layer, config),
        )

    @classmethod
    def mlp(cls, weights: dict[str, np.ndarray], layer: int, config: Any) -> Any:
        """Return the feed-forward layer of a layer."""
        return gated_feed_forward(weights, f"blocks.{layer}.mlp", config.activation)

    @classmethod
    def tensors(cls, config: Any, prefix: str) -> Iterator[TensorSpec]:
        """Yield every tensor except the head."""
        E, D = config.embed_dim, config.head_dim

        def block_tensors(name: str, hf_name: str) -> Iterator[TensorSpec]:
            if config.qk_norm:
                yield TensorSpec(f"{name}.attn.q_norm.weight", f"{hf_name}.self_attn.q_norm.weight", (D,))
                yield TensorSpec(f"{name}.attn.k_norm.weight", f"{hf_name}.self_attn.k_norm.weight", (D,))
            yield TensorSpec(f"{name}.mlp_norm.weight", f"{hf_name}.post_attention_layernorm.weight", (E,))
            yield from cls.mlp_tensors(name, hf_name, config)

        return shared.decoder_tensors(
            config, prefix, block_tensors, qkv_bias=config.qkv_bias, output_bias=config.output_bias
        )

    @classmethod
    def unused(cls, config: Any, prefix: str) -> tuple[str, ...]:  # noqa: ARG003
        """Return the beginnings of names of tensors that may be present too."""
        return ()

    @classmethod
    def mlp_tensors(cls, name: str, hf_name: str, config: Any) -> Iterator[TensorSpec]:
        """Yield the tensors of the feed-forward layer of a block, by its name here and in the checkpoint."""
        return shared.gated_tensors(f"{name}.mlp", f"{hf_name}.mlp", config, bias=config.mlp_bias)
