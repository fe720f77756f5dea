"""ModernBERT: an encoder with rotary positions, a window in two of three layers, and gated feed-forward.

Warner et al. (2024), "Smarter, better, faster, longer", https://arxiv.org/abs/2412.13663. Norms come before each
sublayer, without biases; the first block begins without one, for the embeddings are normed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.build import embedding, fused_linears, layer_norm, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.tensors import TensorSource
from regard.models.decoder_checkpoint import check_unsupported_flags, read_windows
from regard.models.encoder import Encoder, run_blocks, without_padding
from regard.models.rope import Rope, read_ropes_by_type
from regard.nn import CosSin, Embedding, EncoderBlock, GatedFeedForward, LayerNorm, SelfAttention
from regard.nn.layers import traced_norm
from regard.text import SubwordTokenizer


@dataclass(frozen=True)
class ModernBertConfig(ModelConfig):
    """The sizes of a ModernBERT, and its choices.

    `windows` has for each layer the distance to which it attends, at either side, None for all; `rope` is the rotation
    of layers without a window, `local_rope` that of the others.
    """

    vocab_size: int
    embed_dim: int
    num_layers: int
    num_heads: int
    head_dim: int
    hidden_dim: int
    max_positions: int
    activation: str
    norm_eps: float
    norm_bias: bool
    attn_bias: bool
    mlp_bias: bool
    windows: tuple[int | None, ...]
    rope: Rope
    local_rope: Rope

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="modernbert", position_embedding_type="absolute")
        check_unsupported_flags(reader)
        reader.without_effect("initializer_cutoff_factor", "embedding_dropout", "mlp_dropout")  # for training
        reader.without_effect("deterministic_flash_attn", "reference_compile", "repad_logits_with_grad")
        reader.without_effect("decoder_bias", "sparse_prediction", "sparse_pred_ignore_index")  # of task heads
        reader.without_effect(*(f"classifier_{name}" for name in ("pooling", "bias", "activation")))
        embed_dim, num_heads = reader.count("hidden_size"), reader.count("num_attention_heads")
        reader.splits("hidden_size", embed_dim, num_heads)
        layers = reader.num_layers("num_hidden_layers")
        sizes: dict[str, Any] = {"head_dim": embed_dim // num_heads}
        sizes["max_positions"] = reader.count("max_position_embeddings")
        reader.require(sizes["head_dim"] % 2 == 0, f"heads of {sizes['head_dim']} features cannot rotate in pairs")
        every, window = reader.count("global_attn_every_n_layers", 3), reader.count("local_attention", 128) // 2
        bases = {"sliding_attention": ("local_rope_theta", 1e4), "full_attention": ("global_rope_theta", 1.6e5)}
        ropes = read_ropes_by_type(reader, sizes, bases, scaled=list(bases))
        return cls(
            **sizes,
            vocab_size=reader.count("vocab_size"),
            embed_dim=embed_dim,
            num_layers=layers,
            num_heads=num_heads,
            hidden_dim=reader.count("intermediate_size"),
            activation=reader.activation("hidden_activation", "gelu"),
            norm_eps=reader.positive("norm_eps", 1e-5),
            norm_bias=reader.flag("norm_bias", False),
            attn_bias=reader.flag("attention_bias", False),
            mlp_bias=reader.flag("mlp_bias", False),
            windows=read_windows(reader, layers, window, [i % every != 0 for i in range(layers)]),
            rope=ropes["full_attention"],
            local_rope=ropes["sliding_attention"],
        )


@dataclass(frozen=True, eq=False, repr=False)
class ModernBert(Encoder):
    """A ModernBERT encoder with its tokenizer."""

    name: str
    config: ModernBertConfig
    tokenizer: SubwordTokenizer
    token_embedding: Embedding
    embedding_norm: LayerNorm
    blocks: tuple[EncoderBlock, ...]
    final_norm: LayerNorm

    config_type: ClassVar[Any] = ModernBertConfig
    prefixes: ClassVar[tuple[str, ...]] = ("", "model.")
    unused: ClassVar[tuple[str, ...]] = ("head.", "decoder.", "classifier.")

    def forward(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of ids ``B T``; `mask`, ``B 1 1 T``, is True where there is text.

        Vectors of padding are 0. Taps ``token_embeddings``, ``normed_embeddings``, for each block ``blocks.i.attn.*``,
        ``blocks.i.attn_residual``, ``blocks.i.mlp.*`` and ``blocks.i.output``, and ``final_norm``.
        """
        x = trace("token_embeddings", self.token_embedding(ids), "B T E")
        x = trace("normed_embeddings", traced_norm(self.embedding_norm, x, trace, "embedding_norm"), "B T E")
        options: list[dict[str, Any]] = [
            {"rotation": rotation} | ({} if window is None else {"window": (window, window)})
            for rotation, window in zip(
                self.rotation(np.arange(ids.shape[1]), x.dtype), self.config.windows, strict=True
            )
        ]
        x = run_blocks(self.blocks, x, mask, trace, each=options)
        return without_padding(trace("final_norm", traced_norm(self.final_norm, x, trace, "final_norm"), "B T E"), mask)

    def rotation(self, positions: np.ndarray, dtype: Any) -> list[CosSin]:
        """Return the rotation of queries and keys at some positions, of each block."""
        wide, local = self.config.rope(positions, dtype), self.config.local_rope(positions, dtype)
        return [wide if window is None else local for window in self.config.windows]

    @classmethod
    def layers(cls, source: TensorSource, config: ModernBertConfig) -> dict[str, Any]:
        """Return the fields that are layers."""
        embeddings = source.at("embeddings")
        return {
            "token_embedding": embedding(embeddings, "tok_embeddings", config.vocab_size, config.embed_dim),
            "embedding_norm": _norm(embeddings, "norm", config),
            "blocks": tuple(_block(source.at(f"layers.{i}"), config, i) for i in range(config.num_layers)),
            "final_norm": _norm(source, "final_norm", config),
        }


def _norm(source: TensorSource, name: str, config: ModernBertConfig) -> LayerNorm:
    return layer_norm(source, name, config.embed_dim, config.norm_eps, bias=config.norm_bias)


def _block(source: TensorSource, config: ModernBertConfig, layer: int) -> EncoderBlock:
    E, F, attn_bias, mlp_bias = config.embed_dim, config.hidden_dim, config.attn_bias, config.mlp_bias
    attn_norm = _norm(source, "attn_norm", config) if layer else None
    q, k, v = fused_linears(source, "attn.Wqkv", E, (E, E, E), bias=attn_bias)
    o = linear(source, "attn.Wo", E, E, bias=attn_bias)
    attn = SelfAttention(q, k, v, o, num_heads=config.num_heads)
    mlp_norm = _norm(source, "mlp_norm", config)
    gate, up = fused_linears(source, "mlp.Wi", E, (F, F), bias=mlp_bias)
    down = linear(source, "mlp.Wo", F, E, bias=mlp_bias)
    mlp = GatedFeedForward(gate, up, down, activation=config.activation)
    return EncoderBlock(attn, attn_norm, mlp, mlp_norm, norm_first=True)
