"""Gemma 3: a Gemma 2 with a norm of each query and key, and other rotations in layers with a window than in the others.

Gemma Team (2025), "Gemma 3 technical report", https://arxiv.org/abs/2503.19786. Five of six layers have a window. There
are no soft caps. Of one that looks at pictures too (4B and larger), the part that reads texts is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.models import decoder_checkpoint as shared
from regard.models.checkpoint.config import ConfigReader
from regard.models.gemma2 import Gemma2, Gemma2Config, read_cap
from regard.models.llama import LlamaConfig
from regard.models.rope import Rope, read_ropes_by_type
from regard.nn import CosSin

# What published text_configs leave out.
_SIZES = {"vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216}
_SIZES |= {"num_hidden_layers": 26, "num_attention_heads": 8}


@dataclass(frozen=True, kw_only=True)
class Gemma3Config(Gemma2Config):
    """The configuration of a Gemma 3; `rope` is that of layers without a window, `local_rope` that of the others."""

    local_rope: Rope

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        part = shared.text_part(reader, "gemma3", _SIZES)
        cap = part.peek("final_logit_softcapping")
        part.require(
            cap is None or part is reader,
            f"final_logit_softcapping is {cap}, which transformers ignores in a gemma3: remove it",
        )
        return super().read(part)

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="gemma3_text", attn_logit_softcapping=None)
        reader.choice("use_bidirectional_attention", None, [None, False])
        reader.without_effect("cache_implementation", "_sliding_window_pattern")
        sizes = shared.read_sizes(reader, head_dim=256, num_kv_heads=4)
        layers, window = sizes["num_layers"], reader.optional_count("sliding_window", 4096)
        pattern = reader.count("sliding_window_pattern", 6)
        bases = {"sliding_attention": ("rope_local_base_freq", 1e4), "full_attention": ("rope_theta", 1e6)}
        ropes = read_ropes_by_type(reader, sizes, bases, scaled=["full_attention"])
        return cls._of_gemma(
            reader,
            sizes,
            rope=ropes["full_attention"],
            local_rope=ropes["sliding_attention"],
            windows=shared.read_windows(reader, layers, window, [bool((i + 1) % pattern) for i in range(layers)]),
            logit_softcap=read_cap(reader, "final_logit_softcapping", None),
            qk_norm=True,
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Gemma3(Gemma2):
    """A Gemma 3 with its tokenizer; its forward pass is that of Gemma 2."""

    config_type: ClassVar[type[LlamaConfig]] = Gemma3Config

    config: Gemma3Config

    def rotation(self, positions: np.ndarray, dtype: Any) -> CosSin | list[CosSin | None]:
        """Return the rotation of each block."""
        wide, local = self.config.rope(positions, dtype), self.config.local_rope(positions, dtype)
        return [wide if window is None else local for window in self.config.windows]
