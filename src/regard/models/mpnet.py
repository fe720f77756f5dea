"""MPNet: RoBERTa with a learned bias for each distance between tokens (Song et al. 2020, arXiv:2004.09297).

All blocks share the bias, whose buckets are those of T5. Padding has the id 1, and there are no segments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from regard.functional import RelativePositionBias
from regard.models.bert import BertConfig, read_sizes
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.roberta import Roberta, RobertaConfig

_PAD_ID = 1
_NUM_BUCKETS = 32


@dataclass(frozen=True)
class MPNetConfig(RobertaConfig):
    """The configuration of a RoBERTa, whose padding has a fixed id."""

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        sizes = read_sizes(reader, "mpnet", with_types=False)
        reader.only(relative_attention_num_buckets=_NUM_BUCKETS)
        config = cls(**sizes, pad_id=_PAD_ID)
        reader.require(
            config.max_positions > _PAD_ID + 1, f"max_position_embeddings {config.max_positions} leaves no position"
        )
        return config


@dataclass(frozen=True, eq=False, repr=False)
class MPNet(Roberta):
    """An MPNet encoder with its tokenizer; its forward pass is BERT's, with a bias of the scores."""

    position_bias: RelativePositionBias = field(kw_only=True)

    config_type: ClassVar[type[BertConfig]] = MPNetConfig
    prefixes: ClassVar[tuple[str, ...]] = ("", "mpnet.")
    block_names: ClassVar[Mapping[str, str]] = {
        "attn.q_proj": "attention.attn.q",
        "attn.k_proj": "attention.attn.k",
        "attn.v_proj": "attention.attn.v",
        "attn.o_proj": "attention.attn.o",
        "attn_norm": "attention.LayerNorm",
        "mlp.up_proj": "intermediate.dense",
        "mlp.down_proj": "output.dense",
        "mlp_norm": "output.LayerNorm",
    }

    def attention_options(self) -> dict[str, Any]:
        """Return the bias."""
        return {"bias": self.position_bias}

    @classmethod
    def layers(cls, source: TensorSource, config: Any) -> dict[str, Any]:
        """Return the fields that are layers."""
        layers, shape = super().layers(source, config), (_NUM_BUCKETS, config.num_heads)
        bias = source.array("encoder.relative_attention_bias.weight", shape)
        return {**layers, "position_bias": RelativePositionBias(bias)}
