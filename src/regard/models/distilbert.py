"""DistilBERT: half of BERT's blocks, distilled from the whole (Sanh et al. 2019, arXiv:1910.01108).

The blocks are BERT's. There are no segment embeddings, and checkpoints have other names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from regard.models.bert import Bert, BertConfig
from regard.models.checkpoint.config import ConfigReader


class DistilBertConfig(BertConfig):
    """The configuration of a BERT, without segments."""

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="distilbert", is_decoder=False, is_encoder_decoder=False, pruned_heads={})
        # How the table was initialised; it is stored either way.
        reader.choice("sinusoidal_pos_embds", False, [False, True])
        reader.without_effect("chunk_size_feed_forward", "dropout", "qa_dropout", "seq_classif_dropout", "tie_weights_")
        config = cls(
            vocab_size=reader.count("vocab_size"),
            embed_dim=reader.count("dim"),
            num_layers=reader.num_layers("n_layers"),
            num_heads=reader.count("n_heads"),
            hidden_dim=reader.count("hidden_dim"),
            max_positions=reader.count("max_position_embeddings"),
            num_types=0,
            activation=reader.activation("activation", "gelu"),
            norm_eps=1e-12,  # the file has no field for it
        )
        reader.splits("dim", config.embed_dim, config.num_heads)
        return config


@dataclass(frozen=True, eq=False, repr=False)
class DistilBert(Bert):
    """A DistilBERT encoder with its tokenizer; its forward pass is BERT's."""

    config_type: ClassVar[type[BertConfig]] = DistilBertConfig
    prefixes: ClassVar[tuple[str, ...]] = ("", "distilbert.")
    unused: ClassVar[tuple[str, ...]] = (
        "vocab_", "pre_classifier.", "classifier.", "qa_outputs.",
    )  # fmt: skip
    block_prefix: ClassVar[str] = "transformer.layer"
    block_names: ClassVar[Mapping[str, str]] = {
        "attn.q_proj": "attention.q_lin",
        "attn.k_proj": "attention.k_lin",
        "attn.v_proj": "attention.v_lin",
        "attn.o_proj": "attention.out_lin",
        "attn_norm": "sa_layer_norm",
        "mlp.up_proj": "ffn.lin1",
        "mlp.down_proj": "ffn.lin2",
        "mlp_norm": "output_layer_norm",
    }
