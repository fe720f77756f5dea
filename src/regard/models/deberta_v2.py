"""DeBERTa-v2 and v3: a BERT whose scores also compare words with the distances between them (He et al. 2021).

https://arxiv.org/abs/2111.09543. The distance between two tokens has a vector, the same in all blocks, from which each
head makes a query and a key, with its own projections or with others: a score is
(q·k + q·key(distance) + query(distance)·k) / √(3 D) (He et al. 2020, arXiv:2006.03654), or has fewer of these terms.
Models with a convolution, such as the larger ones of DeBERTa-v2, are not supported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from regard import functional as F
from regard.functional import learned_positions
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.bert import BLOCK_NAMES, BertConfig, read_sizes
from regard.models.build import embedding, encoder_block, layer_norm, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.encoder import Encoder, run_blocks
from regard.nn import CosSin, Embedding, EncoderBlock, LayerNorm, Linear, SelfAttention
from regard.nn.layers import traced_norm
from regard.text import SubwordTokenizer

_NAMES = BLOCK_NAMES | {f"attn.{part[0]}_proj": f"attention.self.{part}_proj" for part in ("query", "key", "value")}
_TERMS = ("c2p", "p2c")


@dataclass(frozen=True)
class DebertaV2Config(BertConfig):
    """The configuration of a BERT, and how its scores depend on distances.

    With `has_positions` the input is the sum of the embeddings of tokens and positions.

    `terms` are those of the scores besides q·k: ``"c2p"``, a query with the key of a distance, and ``"p2c"``. They
    count in the scale of the scores also where distances have no vectors, without `has_distances`. With
    `norms_distances` these vectors are normed; with `shares_projections` the projections of the words make queries and
    keys of them. Distances at either side have `num_buckets` buckets, of which the last begins at `max_distance`; None:
    each distance has its own.
    """

    max_distance: int
    num_buckets: int | None
    has_distances: bool
    norms_distances: bool
    shares_projections: bool
    terms: tuple[str, ...]
    has_positions: bool = False

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(conv_kernel_size=0)
        reader.without_effect("conv_act", "conv_groups")
        reader.without_effect("legacy", *(f"pooler_{name}" for name in ("dropout", "hidden_act", "hidden_size")))
        sizes = read_sizes(reader, "deberta-v2", with_types=False, norm_eps=1e-7)
        sizes["num_types"] = reader.width("type_vocab_size")
        E, H = sizes["embed_dim"], sizes["num_heads"]
        reader.only(embedding_size=E, attention_head_size=E // H)
        distance = reader.integer("max_relative_positions", -1)
        buckets = reader.integer("position_buckets", -1)
        norm = reader.take("norm_rel_ebd", "none")
        reader.require(isinstance(norm, str), f"norm_rel_ebd must be a text, got {norm!r}")
        config = cls(
            **sizes,
            max_distance=distance if distance > 0 else sizes["max_positions"],
            num_buckets=buckets if buckets > 0 else None,
            has_distances=reader.flag("relative_attention", False),
            norms_distances="layer_norm" in _parts(str(norm)),
            shares_projections=reader.flag("share_att_key", False),
            terms=_terms(reader),
            has_positions=reader.flag("position_biased_input", True),
        )
        middle = (config.num_buckets or 2) // 2
        reader.require(
            not config.has_distances or middle not in (0, config.max_distance - 1),
            f"position_buckets {config.num_buckets} do not fit distances up to {config.max_distance}",
        )
        return config

    @property
    def num_distances(self) -> int:
        """The number of vectors of distances at either side, with 0 at one of them."""
        return self.num_buckets or self.max_distance

    def bucket_indices(self, length: int) -> np.ndarray:
        """Return the row of each distance in the table, ``T S``: one for each near distance, shared ones beyond."""
        distance = np.subtract.outer(np.arange(length), np.arange(length))
        buckets = distance if self.num_buckets is None else _buckets(distance, self.num_buckets, self.max_distance)
        indices: np.ndarray = np.clip(buckets + self.num_distances, 0, 2 * self.num_distances - 1)
        return indices


def _buckets(distance: np.ndarray, num_buckets: int, max_distance: int) -> np.ndarray:
    middle = num_buckets // 2
    far = np.maximum(np.abs(distance), middle) / np.float32(middle)
    scale = np.log(np.float32((max_distance - 1) / middle))
    buckets = np.ceil(np.log(far.astype(np.float32)) / scale * np.float32(middle - 1)) + middle
    return np.where(np.abs(distance) <= middle, distance, buckets * np.sign(distance)).astype(int)


def _terms(reader: ConfigReader) -> tuple[str, ...]:
    """Return those terms of the scores that `pos_att_type` names, a list, or a text with | between them."""
    value = reader.take("pos_att_type")
    names = _parts(value) if isinstance(value, str) else [] if value is None else value
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    reader.require(is_list, f"pos_att_type must be a list of texts, got {value!r}")
    return tuple(term for term in _TERMS if is_list and term in names)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.lower().split("|")]


@dataclass(frozen=True, eq=False, repr=False)
class DisentangledAttention(SelfAttention):
    """Self-attention whose scores also compare queries and keys with those of distances.

    `terms` are those of `DebertaV2Config`. `distance_q_proj` and `distance_k_proj` make queries and keys of the vectors
    of distances; None: `q_proj` and `k_proj` do.
    """

    terms: tuple[str, ...] = field(default=_TERMS, kw_only=True)
    distance_q_proj: Linear | None = field(default=None, kw_only=True)
    distance_k_proj: Linear | None = field(default=None, kw_only=True)

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
        distances : array, ``R E``, optional
            The vectors of distances; None: scores have no terms with them.
        indices : integer array, ``T S``
            For each query and key the index of their distance.
        """
        q, k, v = self.project_qkv(x, trace=trace)
        scale = 1 / math.sqrt((1 + len(self.terms)) * self.head_dim)
        options = {**options, "scale": scale}
        if distances is not None and self.terms:
            options["bias"] = self._bias(q, k, distances, indices) * scale
        return self.attend(q, k, v, trace=trace, **options)

    def _bias(self, q: Any, k: Any, distances: Any, indices: Any) -> Any:
        """Return the sum of the terms, ``... H T S``."""
        shape = (*q.shape[:-1], k.shape[-2])
        each = []
        if "c2p" in self.terms:
            distance_k = F.split_heads((self.distance_k_proj or self.k_proj)(distances), self.num_heads)  # H R D
            each.append(np.take_along_axis(q @ distance_k.mT, np.broadcast_to(indices, shape), -1))
        if "p2c" in self.terms:
            distance_q = F.split_heads((self.distance_q_proj or self.q_proj)(distances), self.num_heads)
            of_key = np.take_along_axis(k @ distance_q.mT, np.broadcast_to(indices.T, shape), -1)  # ... H S T
            each.append(np.swapaxes(of_key, -1, -2))
        return each[0] if len(each) == 1 else each[0] + each[1]

    forward = __call__


@dataclass(frozen=True, eq=False, repr=False)
class DebertaV2(Encoder):
    """A DeBERTa-v2 or v3 encoder with its tokenizer.

    `distance_norm` is that of the rows of `distance_embedding`; a part that the configuration leaves out is None.
    """

    name: str
    config: DebertaV2Config
    tokenizer: SubwordTokenizer
    token_embedding: Embedding
    embedding_norm: LayerNorm
    distance_embedding: Embedding | None
    distance_norm: LayerNorm | None
    blocks: tuple[EncoderBlock, ...]
    position_embedding: Embedding | None = field(default=None, kw_only=True)
    type_embedding: Embedding | None = field(default=None, kw_only=True)

    config_type: ClassVar[Any] = DebertaV2Config
    prefixes: ClassVar[tuple[str, ...]] = ("", "deberta.")
    unused: ClassVar[tuple[str, ...]] = (
        "pooler.", "cls.", "classifier.", "qa_outputs.", "lm_predictions.", "mask_predictions.",
    )  # fmt: skip

    def forward(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of ids ``B T``; `mask`, ``B 1 1 T``, is True where there is text.

        Vectors of padding are 0. Taps ``token_embeddings``, ``position_embeddings`` and ``type_embeddings`` if there
        are any, and then their sum ``embeddings``, ``normed_embeddings``, and for each block ``blocks.i.attn.*``,
        ``blocks.i.attn_residual``, ``blocks.i.mlp.*`` and ``blocks.i.output``.
        """
        token_embeddings = x = trace("token_embeddings", self.token_embedding(ids), "B T E")
        if self.position_embedding is not None:
            positions = learned_positions(self.position_embedding.weight, ids.shape[1])
            x = x + trace("position_embeddings", positions, "T E")
        if self.type_embedding is not None:
            x = x + trace("type_embeddings", self.type_embedding(np.zeros(ids.shape[1], int)), "T E")
        if x is not token_embeddings:
            x = trace("embeddings", x, "B T E")
        x = trace("normed_embeddings", traced_norm(self.embedding_norm, x, trace, "embedding_norm"), "B T E")
        options: dict[str, Any] = {}
        if self.distance_embedding is not None:
            distances = self.distance_embedding(np.arange(2 * self.config.num_distances))
            distances = distances if self.distance_norm is None else self.distance_norm(distances)
            options = {"distances": distances, "indices": self.config.bucket_indices(ids.shape[1])}
        return run_blocks(self.blocks, x, mask, trace, **options)

    @classmethod
    def layers(cls, source: TensorSource, config: DebertaV2Config) -> dict[str, Any]:
        """Return the fields that are layers."""
        embeddings, encoder, E, eps = source.at("embeddings"), source.at("encoder"), config.embed_dim, config.norm_eps
        distances, norm = (
            f"encoder.{name}." not in cls.unused_with(config) for name in ("rel_embeddings", "LayerNorm")
        )

        def table(name: str, size: int, is_there: bool) -> Embedding | None:
            return embedding(embeddings, f"{name}_embeddings", size, E) if is_there else None

        return {
            "token_embedding": embedding(embeddings, "word_embeddings", config.vocab_size, E),
            "position_embedding": table("position", config.max_positions, config.has_positions),
            "type_embedding": table("token_type", config.num_types, config.num_types > 0),
            "embedding_norm": layer_norm(embeddings, "LayerNorm", E, eps),
            "distance_embedding": (
                embedding(encoder, "rel_embeddings", 2 * config.num_distances, E) if distances else None
            ),
            "distance_norm": layer_norm(encoder, "LayerNorm", E, eps) if norm else None,
            "blocks": tuple(cls._block(encoder.at(f"layer.{i}"), config) for i in range(config.num_layers)),
        }

    @classmethod
    def _block(cls, source: TensorSource, config: DebertaV2Config) -> EncoderBlock:
        E, at = config.embed_dim, source.at("attention.self")
        is_own = config.has_distances and not config.shares_projections
        projections: dict[str, Any] = {
            f"distance_{field}_proj": linear(at, f"{name}_proj", E, E)
            for field, name, term in (("k", "pos_key", "c2p"), ("q", "pos_query", "p2c"))
            if is_own and term in config.terms
        }
        attention = partial(DisentangledAttention, terms=config.terms, **projections)
        return encoder_block(source, _NAMES, config, config.norm_eps, attention=attention)

    @classmethod
    def unused_with(cls, config: DebertaV2Config) -> tuple[str, ...]:
        """Return `unused`, and the beginnings of the names of parts that the configuration leaves out."""
        uses_distances = config.has_distances and bool(config.terms)
        parts = {
            "embeddings.position_embeddings.": config.has_positions,
            "encoder.rel_embeddings.": uses_distances,
            "encoder.LayerNorm.": uses_distances and config.norms_distances,
        }
        return (*(name for name, is_used in parts.items() if not is_used), *cls.unused)
