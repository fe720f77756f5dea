"""DeBERTa-v3: a BERT whose scores also compare words with the distances between them (He et al. 2021).

https://arxiv.org/abs/2111.09543. The distance between two tokens has a vector, the same in all blocks, from which each
head makes a query and a key with its own projections: a score is (q·k + q·key(distance) + query(distance)·k) / √(3 D)
(He et al. 2020, arXiv:2006.03654). There are no absolute positions. Models with other options, such as DeBERTa-v2 with
its convolution, are not supported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from regard import functional as F
from regard.functional import learned_positions
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.bert import BLOCK_NAMES, BertConfig, read_sizes, run_blocks
from regard.models.build import embedding, encoder_block, layer_norm
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.encoder import Encoder
from regard.nn import CosSin, Embedding, EncoderBlock, LayerNorm, SelfAttention
from regard.nn.layers import traced_norm
from regard.text import SubwordTokenizer

_NAMES = BLOCK_NAMES | {f"attn.{part[0]}_proj": f"attention.self.{part}_proj" for part in ("query", "key", "value")}
_BOTH = ("p2c|c2p", "c2p|p2c", ["p2c", "c2p"], ["c2p", "p2c"])


@dataclass(frozen=True)
class DebertaV2Config(BertConfig):
    """The configuration of a BERT, how many buckets the distances at either side have, and where the last begins.

    With `has_positions` the input is the sum of the embeddings of tokens and positions.
    """

    num_buckets: int
    max_distance: int
    has_positions: bool = False

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(type_vocab_size=0, conv_kernel_size=0)
        for name in ("relative_attention", "share_att_key"):
            reader.choice(name, False, [True])
        reader.choice("norm_rel_ebd", "none", ["layer_norm"])
        reader.choice("pos_att_type", None, _BOTH)
        reader.ignore("legacy", *(f"pooler_{name}" for name in ("dropout", "hidden_act", "hidden_size")))
        reader.ignore("conv_act", "conv_groups")
        sizes = read_sizes(reader, "deberta-v2", with_types=False, norm_eps=1e-7)
        distance = reader.take("max_relative_positions", -1)
        reader.require(type(distance) is int, f"max_relative_positions must be a whole number, got {distance!r}")
        config = cls(
            **sizes,
            num_buckets=reader.count("position_buckets"),
            max_distance=distance if type(distance) is int and distance > 0 else sizes["max_positions"],
            has_positions=reader.flag("position_biased_input", True),
        )
        reader.require(
            2 <= config.num_buckets < 2 * config.max_distance - 2,
            f"position_buckets {config.num_buckets} do not fit distances up to {config.max_distance}",
        )
        reader.finish()
        return config

    def bucket_indices(self, length: int) -> np.ndarray:
        """Return the row of each distance in the table, ``T S``: one for each near distance, shared ones beyond."""
        distance = np.subtract.outer(np.arange(length), np.arange(length))
        middle = self.num_buckets // 2
        far = np.maximum(np.abs(distance), middle) / np.float32(middle)
        scale = np.log(np.float32((self.max_distance - 1) / middle))
        buckets = np.ceil(np.log(far.astype(np.float32)) / scale * np.float32(middle - 1)) + middle
        buckets = np.where(np.abs(distance) <= middle, distance, buckets * np.sign(distance)).astype(int)
        indices: np.ndarray = np.clip(buckets + self.num_buckets, 0, 2 * self.num_buckets - 1)
        return indices


@dataclass(frozen=True, eq=False, repr=False)
class DisentangledAttention(SelfAttention):
    """Self-attention whose scores also compare queries and keys with those of distances."""

    def __call__(
        self,
        x: np.ndarray,
        *,
        rotation: CosSin | None = None,  # noqa: ARG002
        distances: Any = None,
        indices: Any = None,
        trace: Recorder = NULL_RECORDER,
        **options: Any,
    ) -> np.ndarray:
        """Return the contextual vectors, ``... T E``, of x, ``... T E``; taps as `SelfAttention`.

        Parameters
        ----------
        distances : array, ``R E``
            The vectors of distances.
        indices : integer array, ``T S``
            For each query and key the index of their distance.
        """
        q, k, v = self.project_qkv(x, trace=trace)
        distance_q = F.split_heads(self.q_proj(distances), self.num_heads)  # H R D
        distance_k = F.split_heads(self.k_proj(distances), self.num_heads)
        shape = (*q.shape[:-1], k.shape[-2])
        of_query = np.take_along_axis(q @ distance_k.mT, np.broadcast_to(indices, shape), -1)
        of_key = np.take_along_axis(k @ distance_q.mT, np.broadcast_to(indices.T, shape), -1)  # ... H S T
        scale = 1 / math.sqrt(3 * self.head_dim)
        bias = (of_query + np.swapaxes(of_key, -1, -2)) * scale
        return self.attend(q, k, v, trace=trace, **{**options, "bias": bias, "scale": scale})

    forward = __call__


@dataclass(frozen=True, eq=False, repr=False)
class DebertaV2(Encoder):
    """A DeBERTa-v3 encoder with its tokenizer; `distance_norm` is that of the rows of `distance_embedding`."""

    name: str
    config: DebertaV2Config
    tokenizer: SubwordTokenizer
    token_embedding: Embedding
    embedding_norm: LayerNorm
    distance_embedding: Embedding
    distance_norm: LayerNorm
    blocks: tuple[EncoderBlock, ...]
    position_embedding: Embedding | None = field(default=None, kw_only=True)

    config_type: ClassVar[Any] = DebertaV2Config
    prefixes: ClassVar[tuple[str, ...]] = ("", "deberta.")
    unused: ClassVar[tuple[str, ...]] = (
        "pooler.", "cls.", "classifier.", "qa_outputs.", "lm_predictions.", "mask_predictions.",
    )  # fmt: skip

    @property
    def max_length(self) -> int:
        """The most tokens of a text."""
        return self.config.max_positions

    def forward(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of ids ``B T``; `mask`, ``B 1 1 T``, is True where there is text.

        Vectors of padding are 0. Taps ``token_embeddings``, with positions ``position_embeddings`` and their sum
        ``embeddings``, ``normed_embeddings``, and for each block
        ``blocks.i.attn.*``, ``blocks.i.attn_residual``, ``blocks.i.mlp.*`` and ``blocks.i.output``.
        """
        x = trace("token_embeddings", self.token_embedding(ids), "B T E")
        if self.position_embedding is not None:
            positions = learned_positions(self.position_embedding.weight, ids.shape[1])
            x = trace("embeddings", x + trace("position_embeddings", positions, "T E"), "B T E")
        x = trace("normed_embeddings", traced_norm(self.embedding_norm, x, trace, "embedding_norm"), "B T E")
        distances = self.distance_norm(self.distance_embedding(np.arange(2 * self.config.num_buckets)))
        options = {"distances": distances, "indices": self.config.bucket_indices(ids.shape[1])}
        return run_blocks(self.blocks, x, mask, trace, [options] * len(self.blocks))

    @classmethod
    def layers(cls, source: TensorSource, config: DebertaV2Config) -> dict[str, Any]:
        """Return the fields that are layers."""
        embeddings, encoder, E, eps = source.at("embeddings"), source.at("encoder"), config.embed_dim, config.norm_eps
        has_positions = config.has_positions
        return {
            "token_embedding": embedding(embeddings, "word_embeddings", config.vocab_size, E),
            "position_embedding": (
                embedding(embeddings, "position_embeddings", config.max_positions, E) if has_positions else None
            ),
            "embedding_norm": layer_norm(embeddings, "LayerNorm", E, eps),
            "distance_embedding": embedding(encoder, "rel_embeddings", 2 * config.num_buckets, E),
            "distance_norm": layer_norm(encoder, "LayerNorm", E, eps),
            "blocks": tuple(
                encoder_block(encoder.at(f"layer.{i}"), _NAMES, config, eps, attention=DisentangledAttention)
                for i in range(config.num_layers)
            ),
        }

    @classmethod
    def unused_with(cls, config: DebertaV2Config) -> tuple[str, ...]:
        """Return `unused`, and without positions the beginning of the name of their table."""
        return cls.unused if config.has_positions else ("embeddings.position_embeddings.", *cls.unused)
