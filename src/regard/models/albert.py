"""ALBERT: BERT with one block that all layers share, and narrower embeddings (Lan et al. 2019, arXiv:1909.11942).

With several groups, consecutive layers share the block of their group. The embeddings are widened by a linear map.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from regard.models.bert import Bert, BertConfig, block_tensors, embedding_tensors, read_sizes
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.listed_tensors import TensorSpec, linear_tensors
from regard.models.listed_build import encoder_blocks
from regard.nn import EncoderBlock


@dataclass(frozen=True)
class AlbertConfig(BertConfig):
    """The configuration of a BERT, the width of its embeddings, and how many blocks its layers share."""

    num_groups: int = field(default=1, kw_only=True)

    @classmethod
    def read(cls, reader: ConfigReader) -> AlbertConfig:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(inner_group_num=1)
        reader.ignore("classifier_dropout_prob")
        reader.ignore("down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks")  # of no effect
        sizes, groups = read_sizes(reader, "albert", activation="gelu_new"), reader.count("num_hidden_groups", 1)
        reader.require(
            groups <= sizes["num_layers"], f"num_hidden_groups {groups} is more than the {sizes['num_layers']} layers"
        )
        config = cls(**sizes, embedding_dim=reader.count("embedding_size", 128), num_groups=groups)
        reader.finish()
        return config


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
    def make_blocks(cls, weights: dict[str, np.ndarray], config: Any) -> tuple[EncoderBlock, ...]:
        """Return the blocks, of which those of a group are one."""
        groups = encoder_blocks(weights, "", replace(config, num_layers=config.num_groups), config.norm_eps)
        return tuple(groups[i * config.num_groups // config.num_layers] for i in range(config.num_layers))

    @classmethod
    def tensors(cls, config: Any) -> Iterator[TensorSpec]:
        """Yield every tensor."""
        yield from embedding_tensors(config)
        hf = "encoder.embedding_hidden_mapping_in"
        yield from linear_tensors("embedding_proj", hf, config.embedding_dim, config.embed_dim)
        for i in range(config.num_groups):
            hf_name = f"encoder.albert_layer_groups.{i}.albert_layers.0"
            yield from block_tensors(config, f"blocks.{i}", hf_name, cls.block_names)
