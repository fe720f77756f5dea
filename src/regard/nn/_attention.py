"""Attention as a layer: projections around the equation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from regard import functional as F
from regard._errors import RegardError
from regard._recorder import SILENT, Recorder
from regard.nn._layer import Layer
from regard.nn._layers import Linear


@dataclass(frozen=True, eq=False, repr=False)
class _Attention(Layer):
    """Projections to queries, keys and values, attention for each head, and the output projection.

    Parameters
    ----------
    q_proj : Linear, ``E (H D)``
    k_proj : Linear, ``E (G D)``
    v_proj : Linear, ``E (G Dv)``
    o_proj : Linear, ``(H Dv) E``, optional
        Without it the output is the heads' contexts side by side.
    num_heads : int
        ``H``. The number of key/value heads ``G`` follows from the width of `k_proj`.
    """

    q_proj: Linear
    k_proj: Linear
    v_proj: Linear
    o_proj: Linear | None = None
    num_heads: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        name = type(self).__name__
        projections = (self.q_proj, self.k_proj, self.v_proj, *([self.o_proj] if self.o_proj else []))
        if not all(isinstance(projection, Linear) for projection in projections):
            raise RegardError(
                f"{name} is made from Linear projections; for fresh ones call {name}.init(rng, embed_dim, "
                f"num_heads), for arrays {name}.from_weights(w_q, w_k, w_v, w_o, num_heads=...)"
            )
        q, k, v = (p.weight.shape[1] for p in (self.q_proj, self.k_proj, self.v_proj))
        if self.num_heads < 1 or q % self.num_heads:
            raise RegardError(f"q_proj makes {q} features, which do not split into {self.num_heads} heads")
        if k % self.head_dim or self.num_heads % self.num_kv_heads or v % self.num_kv_heads:
            raise RegardError(
                f"k_proj makes {k} and v_proj {v} features, which do not split into key/value heads for "
                f"{self.num_heads} query heads of {self.head_dim} features"
            )
        context = v // self.num_kv_heads * self.num_heads
        if self.o_proj is not None and self.o_proj.weight.shape[0] != context:
            raise RegardError(f"o_proj {self.o_proj.weight.shape} does not take {context} features of the heads")

    @property
    def head_dim(self) -> int:
        """``D``, the number of features of one query or key."""
        return int(self.q_proj.weight.shape[1]) // self.num_heads

    @property
    def num_kv_heads(self) -> int:
        """``G``, the number of key/value heads."""
        return max(1, int(self.k_proj.weight.shape[1]) // self.head_dim)

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        embed_dim: int,
        num_heads: int = 1,
        *,
        head_dim: int | None = None,
        num_kv_heads: int | None = None,
        bias: bool = True,
        output_projection: bool = True,
        dtype: Any = np.float32,
    ) -> Self:
        """Draw all projections once, as `Linear.init` does; calling the layer never draws again.

        Parameters
        ----------
        rng : numpy.random.Generator
        embed_dim, num_heads : int
            ``E`` and ``H``.
        head_dim : int, optional
            ``D``; E / H by default.
        num_kv_heads : int, optional
            ``G``; H by default.
        bias, output_projection : bool
            Whether the projections add a bias, and whether there is an output projection.
        """
        if head_dim is None:
            if num_heads < 1 or embed_dim % num_heads:
                raise RegardError(
                    f"embed_dim {embed_dim} does not split into {num_heads} heads of equal size; give head_dim"
                )
            head_dim = embed_dim // num_heads
        groups = num_heads if num_kv_heads is None else num_kv_heads
        widths = (num_heads * head_dim, groups * head_dim, groups * head_dim)
        q, k, v = (Linear.init(rng, embed_dim, width, bias=bias, dtype=dtype) for width in widths)
        o = Linear.init(rng, num_heads * head_dim, embed_dim, bias=bias, dtype=dtype)
        return cls(q, k, v, o if output_projection else None, num_heads=num_heads)

    @classmethod
    def from_weights(
        cls,
        w_q: np.ndarray,
        w_k: np.ndarray,
        w_v: np.ndarray,
        w_o: np.ndarray | None = None,
        *,
        num_heads: int | None = None,
    ) -> Self:
        """Make the layer, without biases, from plain weight arrays.

        Parameters
        ----------
        w_q, w_k, w_v : array, ``E (H D)`` or ``H E D``
            One matrix for all heads, or one matrix for each head.
        w_o : array, ``(H Dv) E``, optional
            Output projection.
        num_heads : int, optional
            With one matrix for all heads; 1 by default. Matrices for each head bring their number along.
        """
        w_q, w_k, w_v = (np.asarray(w) for w in (w_q, w_k, w_v))
        if w_q.ndim == 3:
            if num_heads not in (None, len(w_q)):
                raise RegardError(f"w_q {w_q.shape} has {len(w_q)} heads, but num_heads={num_heads}")
            num_heads = len(w_q)
        q, k, v = (Linear(_side_by_side(w)) for w in (w_q, w_k, w_v))
        o = None if w_o is None else Linear(np.asarray(w_o))
        return cls(q, k, v, o, num_heads=1 if num_heads is None else num_heads)

    def _attend(
        self,
        x: np.ndarray,
        memory: np.ndarray,
        mask: np.ndarray | None,
        bias: np.ndarray | None,
        causal: bool,
        trace: Recorder,
    ) -> np.ndarray:
        q = trace("q", F.split_heads(self.q_proj(x), self.num_heads), "... H T D")
        k = trace("k", F.split_heads(self.k_proj(memory), self.num_kv_heads), "... G S D")
        v = trace("v", F.split_heads(self.v_proj(memory), self.num_kv_heads), "... G S Dv")
        context = F.merge_heads(F.attention(q, k, v, mask=mask, bias=bias, causal=causal, trace=trace))
        output = context if self.o_proj is None else self.o_proj(context)
        recorded: np.ndarray = trace("output", output, "... T E")
        return recorded


@dataclass(frozen=True, eq=False, repr=False)
class SelfAttention(_Attention):
    """Every token of a text looks at every token of the same text."""

    def __call__(
        self,
        x: np.ndarray,
        *,
        mask: np.ndarray | None = None,
        bias: np.ndarray | None = None,
        causal: bool = False,
        trace: Recorder = SILENT,
    ) -> np.ndarray:
        """Return the contextual vectors, ``... T E``, of x, ``... T E``.

        `mask`, `bias` and `causal` are those of `regard.attention`. Taps ``q``, ``k``, ``v``, ``scores``,
        ``weights``, ``context`` and ``output``.
        """
        return self._attend(x, x, mask, bias, causal, trace)

    forward = __call__


@dataclass(frozen=True, eq=False, repr=False)
class MultiHeadAttention(_Attention):
    """Every token of one text looks at every token of another: cross-attention."""

    def __call__(
        self,
        x: np.ndarray,
        memory: np.ndarray,
        *,
        mask: np.ndarray | None = None,
        bias: np.ndarray | None = None,
        causal: bool = False,
        trace: Recorder = SILENT,
    ) -> np.ndarray:
        """Return ``... T E``: what the queries of x, ``... T E``, gather from memory, ``... S E``.

        Keys and values come from `memory`. The rest is as in `SelfAttention`.
        """
        return self._attend(x, memory, mask, bias, causal, trace)

    forward = __call__


def _side_by_side(weight: np.ndarray) -> np.ndarray:
    """Return one matrix ``E (H D)`` for matrices of each head ``H E D``; a matrix as it is."""
    if weight.ndim != 3:
        return weight
    heads, embed_dim, head_dim = weight.shape
    return np.moveaxis(weight, 0, 1).reshape(embed_dim, heads * head_dim)
