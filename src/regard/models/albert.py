"""ALBERT: BERT with one block that all layers share, and narrower embeddings (Lan et al. 2019, arXiv:1909.11942).

With several groups, consecutive layers share the block of their group. The embeddings are widened by a linear map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from regard.models.bert import Bert, BertConfig, embedding_layers, read_sizes
from regard.models.build import encoder_block, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource


@dataclass(frozen=True)
class AlbertConfig(BertConfig):
    """The configuration of a BERT, the width of its embeddings, and how many blocks its layers share."""

    num_groups: int = field(default=1, kw_only=True)

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(inner_group_num=1)
        reader.without_effect("classifier_dropout_prob")
        reader.without_effect("down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks")
        sizes, groups = read_sizes(reader, "albert", activation="gelu_new"), reader.count("num_hidden_groups", 1)
        reader.require(
            groups <= sizes["num_layers"], f"num_hidden_groups {groups} is more than the {sizes['num_layers']} layers"
        )
        return cls(**sizes, embedding_dim=reader.count("embedding_size", 128), num_groups=groups)


@dataclass(frozen=True, eq=False, repr=False)
class Albert(Bert):
    """An ALBERT encoder with its tokenizer; its forward pass is BERT's, with the same block in several layers."""

    config_type: ClassVar[type[BertConfig]] = AlbertConfig
    prefixes: ClassVar[tuple[str, ...]] = ("", "albert.")
    unused: ClassVar[tuple[str, ...]] = (
        "pooler.", "predictions.", "sop_classifier.", "classifier.", "qa_outputs.",
    )  # fmt: skip
    block_names: ClassVar[Mapping[str, str]] = {
        "attn.q_proj": "attention.query",
        "attn.k_proj": "attention.key",
        "attn.v_proj": "attention.value",
        "attn.o_proj": "attention.dense",
        "attn_norm": "attention.LayerNorm",
        "mlp.up_proj": "ffn",
        "mlp.down_proj": "ffn_output",
        "mlp_norm": "full_layer_layer_norm",
    }

    @classmethod
    def layers(cls, source: TensorSource, config: Any) -> dict[str, Any]:
        """Return the fields that are layers; the blocks of a group are one."""
        embeddings, encoder = embedding_layers(source.at("embeddings"), config), source.at("encoder")
        proj = linear(encoder, "embedding_hidden_mapping_in", config.embedding_dim, config.embed_dim)
        groups = [
            encoder_block(
                encoder.at(f"albert_layer_groups.{i}.albert_layers.0"), cls.block_names, config, config.norm_eps
            )
            for i in range(config.num_groups)
        ]
        blocks = tuple(groups[i * config.num_groups // config.num_layers] for i in range(config.num_layers))
        return {**embeddings, "embedding_proj": proj, "blocks": blocks}
