"""The encoder block: attention and feed-forward, each with a residual connection and a norm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from regard._utils.errors import RegardError
from regard.functional import Options
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.nn import fast_paths
from regard.nn.attention import CosSin, SelfAttention
from regard.nn.layer import REQUIRED, Layer
from regard.nn.layers import FeedForward, GatedFeedForward, LayerNorm, normed


@dataclass(frozen=True, eq=False, repr=False)
class EncoderBlock(Layer):
    """Transformer encoder block: self-attention and feed-forward, each with a residual connection and a norm.

    With ``norm_first=False`` (post-norm) the norm comes after each residual sum, as in the Transformer paper and BERT:
    x = norm(x + sublayer(x)). With True (pre-norm) it comes before each sublayer, as in GPT-2:
    x = x + sublayer(norm(x)).

    Parameters
    ----------
    attn : SelfAttention
    attn_norm : LayerNorm, or None, with `norm_first`, for no norm
    mlp : FeedForward or GatedFeedForward
    mlp_norm : LayerNorm
    norm_first : bool
    attn_scale, mlp_scale : array, ``E``, optional
        Layer scale: of each feature of what attention and feed-forward return, before it is added; with `norm_first`.

    References
    ----------
    Vaswani et al. (2017), section 3.1; Xiong et al. (2020), "On layer normalization in the Transformer
    architecture", https://arxiv.org/abs/2002.04745; for layer scale Touvron et al. (2021), "Going deeper with image
    transformers", https://arxiv.org/abs/2103.17239.
    """

    attn: SelfAttention
    attn_norm: LayerNorm | None = None
    mlp: FeedForward | GatedFeedForward = REQUIRED
    mlp_norm: LayerNorm = REQUIRED
    norm_first: bool = field(default=False, kw_only=True)
    attn_scale: np.ndarray | None = field(default=None, kw_only=True)
    mlp_scale: np.ndarray | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        kinds = {"attn": SelfAttention, "attn_norm": LayerNorm, "mlp": FeedForward, "mlp_norm": LayerNorm}
        parts = {name: getattr(self, name) for name in kinds}
        fits = [
            isinstance(part, kinds[name])
            or (name == "mlp" and isinstance(part, GatedFeedForward))
            or (name == "attn_norm" and part is None and self.norm_first)
            for name, part in parts.items()
        ]
        if not all(fits):
            raise RegardError(
                f"an EncoderBlock is made from {', '.join(kind.__name__ for kind in kinds.values())}, got "
                f"{', '.join(type(part).__name__ for part in parts.values())}; for a fresh one call "
                f"EncoderBlock.init(rng, embed_dim, num_heads)"
            )
        widths = {
            "attn takes": self.attn.q_proj.weight.shape[0],
            "attn returns": self.attn.output_dim,
            "attn_norm has": self.attn.output_dim if self.attn_norm is None else len(self.attn_norm.weight),
            "mlp takes": self.mlp.up_proj.weight.shape[0],
            "mlp returns": self.mlp.down_proj.weight.shape[1],
            "mlp_norm has": len(self.mlp_norm.weight),
        }
        scales = {"attn_scale has": self.attn_scale, "mlp_scale has": self.mlp_scale}
        scale_widths = {name: len(scale) for name, scale in scales.items() if scale is not None}
        if scale_widths and not self.norm_first:
            raise RegardError("attn_scale and mlp_scale are of a block with norm_first=True")
        widths |= scale_widths
        if len(set(widths.values())) > 1:
            raise RegardError(
                f"an encoder block adds what its parts return to what they take, so all need one width, but "
                f"{', '.join(f'{part} {width}' for part, width in widths.items())} features; the output projection of "
                f"attn and the down_proj of mlp must return the width of the input"
            )

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        embed_dim: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        num_kv_heads: int | None = None,
        hidden_dim: int | None = None,
        activation: str = "gelu",
        norm_first: bool = False,
        bias: bool = True,
        eps: float = 1e-5,
        dtype: Any = np.float32,
    ) -> EncoderBlock:
        """Draw a fresh block; see the `init` of its parts."""
        return cls(
            SelfAttention.init(
                rng, embed_dim, num_heads, head_dim=head_dim, num_kv_heads=num_kv_heads, bias=bias, dtype=dtype
            ),
            LayerNorm.init(embed_dim, eps=eps, dtype=dtype),
            FeedForward.init(rng, embed_dim, hidden_dim, activation=activation, bias=bias, dtype=dtype),
            LayerNorm.init(embed_dim, eps=eps, dtype=dtype),
            norm_first=norm_first,
        )

    def __call__(
        self,
        x: np.ndarray,
        *,
        rotation: CosSin | None = None,
        trace: Recorder = NULL_RECORDER,
        **options: Unpack[Options],
    ) -> np.ndarray:
        """Return ``... T E`` for x ``... T E``; taps ``attn.*``, ``attn_residual``, ``mlp.*`` and ``output``.

        With layer scale it taps ``attn_scaled`` and ``mlp_scaled`` too. `rotation` is that of `SelfAttention`; `mask`,
        `causal` and the other options are those of `regard.attention`.
        """
        if self.norm_first:
            y = normed(self.attn_norm, x, trace, "attn_norm")
            with trace.scope("attn"):
                y = self.attn(y, rotation=rotation, trace=trace, **options)
            x = trace("attn_residual", x + self._scaled("attn", y, trace), "... T E")
            y = normed(self.mlp_norm, x, trace, "mlp_norm")
            with trace.scope("mlp"):
                y = self.mlp(y, trace=trace)
            x = x + self._scaled("mlp", y, trace)
        elif rotation is None and (fused := fast_paths.post_norm_block(self, x, trace, options)) is not None:
            x = fused
        else:
            with trace.scope("attn"):
                y = self.attn(x, rotation=rotation, trace=trace, **options)
            x = self.after_attention(x, y, trace)
        return trace("output", x, "... T E")

    forward = __call__

    def before_residual(self, part: str) -> tuple[Any, Any]:
        """Return no norm, and the layer scale."""
        scale = getattr(self, f"{part}_scale")
        return None, 1.0 if scale is None else scale

    def _scaled(self, part: str, y: np.ndarray, trace: Recorder) -> np.ndarray:
        scale = getattr(self, f"{part}_scale")
        return y if scale is None else trace(f"{part}_scaled", y * scale, "... T E")

    def after_attention(self, x: np.ndarray, y: np.ndarray, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the rest of a post-norm block: norm(x + y), then norm(x + mlp(x)).

        Taps ``attn_residual`` and ``mlp.*``, and optionally those of `normed`.
        """
        assert self.attn_norm is not None  # of a post-norm block
        x = trace("attn_residual", normed(self.attn_norm, x, trace, "attn_norm", residual=y), "... T E")
        with trace.scope("mlp"):
            y = self.mlp(x, trace=trace)
        return normed(self.mlp_norm, x, trace, "mlp_norm", residual=y)
