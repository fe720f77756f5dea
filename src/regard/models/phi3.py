"""Phi-3: a Llama whose checkpoint has queries, keys and values as one tensor, and gate and up projection as another.

Abdin et al. (2024), "Phi-3 technical report", https://arxiv.org/abs/2404.14219. Phi-4 has the same architecture; its
mini model rotates three quarters of each head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from regard.models import decoder_checkpoint as shared
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSpec, fused_tensors, linear_tensors
from regard.models.llama import Llama, LlamaConfig


class Phi3Config(LlamaConfig):
    """The configuration of a Phi-3."""

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="phi3", attention_bias=False, mlp_bias=False, lm_head_bias=False)
        reader.ignore("resid_pdrop", "embd_pdrop")  # for training
        sizes = shared.read_sizes(reader, norm_eps=1e-5, with_head_dim=False)
        window = reader.optional_count("sliding_window")
        return cls._finish(reader, sizes, windows=(window,) * sizes["num_layers"], partial=1.0)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Phi3(Llama):
    """A Phi-3 with its tokenizer; its forward pass is Llama's."""

    config_type: ClassVar[type[LlamaConfig]] = Phi3Config

    @classmethod
    def tensors(cls, config: Any, prefix: str) -> Iterator[TensorSpec]:
        """Yield every tensor except the head."""
        E, F = config.embed_dim, config.hidden_dim

        def block_tensors(name: str, hf_name: str) -> Iterator[TensorSpec]:
            yield TensorSpec(f"{name}.mlp_norm.weight", f"{hf_name}.post_attention_layernorm.weight", (E,))
            parts = {f"{name}.mlp.gate_proj": F, f"{name}.mlp.up_proj": F}
            yield from fused_tensors(parts, f"{hf_name}.mlp.gate_up_proj", E, bias=False)
            yield from linear_tensors(f"{name}.mlp.down_proj", f"{hf_name}.mlp.down_proj", F, E, bias=False)

        return shared.decoder_tensors(
            config, prefix, block_tensors, qkv_bias=False, output_bias=False, fused="qkv_proj"
        )
