"""The encoder block: attention and feed-forward, each with a residual connection and a norm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard._errors import RegardError
from regard._recorder import SILENT, Recorder
from regard.nn._attention import SelfAttention
from regard.nn._layer import Layer
from regard.nn._layers import FeedForward, LayerNorm


@dataclass(frozen=True, eq=False, repr=False)
class EncoderBlock(Layer):
    """Words exchange what they know (attention), then each thinks it over (feed-forward).

    With ``norm_first=False`` the norm stands behind each residual sum, as in the Transformer paper and BERT:
    x = norm(x + sublayer(x)). With True it stands before each sublayer, as in GPT-2 and after:
    x = x + sublayer(norm(x)).

    Parameters
    ----------
    attn : SelfAttention
    attn_norm : LayerNorm
    mlp : FeedForward
    mlp_norm : LayerNorm
    norm_first : bool

    References
    ----------
    Vaswani et al. (2017), section 3.1; Xiong et al. (2020), "On layer normalization in the Transformer
    architecture", https://arxiv.org/abs/2002.04745.
    """

    attn: SelfAttention
    attn_norm: LayerNorm
    mlp: FeedForward
    mlp_norm: LayerNorm
    norm_first: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.attn.o_proj is None and self.attn.v_proj.weight.shape[1] != self.attn.q_proj.weight.shape[0]:
            raise RegardError("an encoder block adds attention to its input: give attn an output projection")

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        embed_dim: int,
        num_heads: int,
        *,
        hidden_dim: int | None = None,
        activation: str = "gelu",
        norm_first: bool = False,
        dtype: Any = np.float32,
    ) -> EncoderBlock:
        """Draw a fresh block; see the `init` of its parts."""
        return cls(
            SelfAttention.init(rng, embed_dim, num_heads, dtype=dtype),
            LayerNorm.init(embed_dim, dtype=dtype),
            FeedForward.init(rng, embed_dim, hidden_dim, activation=activation, dtype=dtype),
            LayerNorm.init(embed_dim, dtype=dtype),
            norm_first=norm_first,
        )

    def __call__(
        self,
        x: np.ndarray,
        *,
        mask: np.ndarray | None = None,
        causal: bool = False,
        trace: Recorder = SILENT,
    ) -> np.ndarray:
        """Return ``... T E`` for x ``... T E``; taps ``attn.*``, ``attn_residual``, ``mlp.*`` and ``output``."""
        with trace.scope("attn"):
            y = self.attn_norm(x) if self.norm_first else x
            x = x + self.attn(y, mask=mask, causal=causal, trace=trace)
        x = trace("attn_residual", x if self.norm_first else self.attn_norm(x), "... T E")
        with trace.scope("mlp"):
            y = self.mlp_norm(x) if self.norm_first else x
            x = x + self.mlp(y, trace=trace)
        output: np.ndarray = trace("output", x if self.norm_first else self.mlp_norm(x), "... T E")
        return output

    forward = __call__
