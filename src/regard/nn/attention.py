"""Attention layers: projections before and after the equation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias, Unpack

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard._utils.validation import generator, whole_number
from regard.functional.arrays import as_array
from regard.functional.recorder import NULL_RECORDER, Recorder, optional_tap
from regard.nn import fast_paths
from regard.nn.layer import REQUIRED, Layer
from regard.nn.layers import Linear
from regard.nn.quantized import QuantizedWeight

CosSin: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Cosines and sines of rotary embeddings at each position, ``... T D/2``."""


@dataclass(frozen=True, eq=False, repr=False)
class MultiHeadAttention(Layer):
    """Projections to queries, keys and values, attention of each head, and the output projection.

    The base of `SelfAttention`, `CrossAttention` and `CausalAttention`, which differ in where keys and values come from
    and call these steps. The steps are public, so that keys and values can be stored between calls.

    Parameters
    ----------
    q_proj : Linear, ``E (H D)``
    k_proj : Linear, ``E (G D)``
    v_proj : Linear, ``E (G Dv)``
    o_proj : Linear, ``(H Dv) E``, optional
        Without it the output is the concatenated context of the heads.
    num_heads : int
        ``H``. The number of key/value heads ``G`` follows from the width of `k_proj`.
    """

    q_proj: Linear
    k_proj: Linear = REQUIRED
    v_proj: Linear = REQUIRED
    o_proj: Linear | None = None
    num_heads: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        name = type(self).__name__
        projections = [self.q_proj, self.k_proj, self.v_proj, *([] if self.o_proj is None else [self.o_proj])]
        if not all(isinstance(projection, Linear) for projection in projections):
            raise RegardError(
                f"{name} is made from Linear projections; for fresh ones call {name}.init(rng, embed_dim, "
                f"num_heads), for arrays {name}.from_weights(w_q, w_k, w_v, w_o, num_heads=...)"
            )
        whole_number("num_heads", self.num_heads, 1)
        _, (memory, k), (memory_v, v) = (p.weight.shape for p in (self.q_proj, self.k_proj, self.v_proj))
        q = self.q_proj.weight.shape[1]
        if memory != memory_v:
            raise RegardError(f"k_proj takes {memory} and v_proj {memory_v} features, but both read the same vectors")
        if q == 0 or q % self.num_heads:
            raise RegardError(f"q_proj makes {q} features, which do not split into {self.num_heads} heads")
        if k == 0 or k % self.head_dim or self.num_heads % self.num_kv_heads or v == 0 or v % self.num_kv_heads:
            raise RegardError(
                f"k_proj makes {k} and v_proj {v} features, which do not split into key/value heads for "
                f"{self.num_heads} query heads of {self.head_dim} features"
            )
        if self.o_proj is not None and self.o_proj.weight.shape[0] != self._context_dim:
            raise RegardError(
                f"o_proj {self.o_proj.weight.shape} does not take {self._context_dim} features of the heads"
            )

    @property
    def has_output_gate(self) -> bool:
        """Whether what each head has read is multiplied by a gate of the query."""
        return False

    @property
    def head_step(self) -> str:
        """The step of what enters the output projection: the context of each head, times its gate if there is one."""
        return "gated_context" if self.has_output_gate else "context"

    @property
    def head_dim(self) -> int:
        """``D``, the number of features of one query or key."""
        return int(self.q_proj.weight.shape[1]) // self.num_heads

    @property
    def num_kv_heads(self) -> int:
        """``G``, the number of key/value heads."""
        return int(self.k_proj.weight.shape[1]) // self.head_dim

    @property
    def output_dim(self) -> int:
        """``E``, the number of features that come out."""
        return self._context_dim if self.o_proj is None else int(self.o_proj.weight.shape[1])

    @property
    def _context_dim(self) -> int:
        return int(self.v_proj.weight.shape[1]) // self.num_kv_heads * self.num_heads

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
        rng, embed_dim = generator(rng), whole_number("embed_dim", embed_dim, 1)
        num_heads = whole_number("num_heads", num_heads, 1)
        if head_dim is None:
            if embed_dim % num_heads:
                raise RegardError(
                    f"embed_dim {embed_dim} does not split into {num_heads} heads of equal size; give head_dim"
                )
            head_dim = embed_dim // num_heads
        head_dim = whole_number("head_dim", head_dim, 1)
        groups = whole_number("num_kv_heads", num_heads if num_kv_heads is None else num_kv_heads, 1)
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
            One matrix for all heads, or, in all three, one matrix for each head. For keys and values there may then
            be fewer, each for several consecutive query heads.
        w_o : array, ``(H Dv) E``, optional
            Output projection.
        num_heads : int, optional
            With one matrix for all heads; 1 by default. Matrices for each head bring their number along.
        """
        w_q, w_k, w_v = (np.asarray(as_array(w, name)) for name, w in (("w_q", w_q), ("w_k", w_k), ("w_v", w_v)))
        if 3 in (w_q.ndim, w_k.ndim, w_v.ndim):
            shapes = f"w_q {w_q.shape}, w_k {w_k.shape} and w_v {w_v.shape}"
            if not w_q.ndim == w_k.ndim == w_v.ndim:
                raise RegardError(f"one matrix for each head is for all three or none, got {shapes}")
            if len(w_k) != len(w_v) or not len(w_k) or len(w_q) % len(w_k) or w_q.shape[2] != w_k.shape[2]:
                raise RegardError(
                    f"{shapes} (heads, inputs, features) do not fit: w_k and w_v need the same number of heads, one "
                    f"that divides that of w_q, and w_q and w_k the same number of features"
                )
            if num_heads not in (None, len(w_q)):
                raise RegardError(f"w_q {w_q.shape} has {len(w_q)} heads, but num_heads={num_heads}")
            num_heads = len(w_q)
        q, k, v = (Linear(_concat_heads(w)) for w in (w_q, w_k, w_v))
        o = None if w_o is None else Linear(np.asarray(as_array(w_o, "w_o")))
        return cls(q, k, v, o, num_heads=1 if num_heads is None else num_heads)

    def packed_together(self) -> tuple[Linear, ...]:
        """Return the projections, if all read the same x and keys are as wide as values."""
        (q_in, _), (k_in, k), (_, v) = (p.weight.shape for p in (self.q_proj, self.k_proj, self.v_proj))
        return (self.q_proj, self.k_proj, self.v_proj) if q_in == k_in and k == v else ()

    def rotated_pairs(self, width: int) -> np.ndarray | None:
        """Return which features of a head a rotary embedding of `width` features turns together, ``P 2``.

        None if it rotates none.
        """
        return np.array(F.rotary_pairs(width))

    def project_q(self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the queries, ``... H T D``, of x, ``... T E``; taps ``q``."""
        return trace("q", F.split_heads(self.q_proj(x), self.num_heads), "... H T D")

    def project_kv(self, memory: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> tuple[np.ndarray, np.ndarray]:
        """Return the keys, ``... G S D``, and values, ``... G S Dv``, of memory, ``... S E``; taps ``k`` and ``v``."""
        k = trace("k", F.split_heads(self.k_proj(memory), self.num_kv_heads), "... G S D")
        v = trace("v", F.split_heads(self.v_proj(memory), self.num_kv_heads), "... G S Dv")
        return k, v

    def project_qkv(
        self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the queries, keys and values of one x, ``... T E``; taps ``q``, ``k`` and ``v``."""
        q, k, v = self._project_qkv(x)
        return trace("q", q, "... H T D"), trace("k", k, "... G S D"), trace("v", v, "... G S Dv")

    def _project_qkv(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        packed = fast_paths.project_qkv(self, x)
        if packed is not None:
            return packed
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return (
            F.split_heads(q, self.num_heads), F.split_heads(k, self.num_kv_heads), F.split_heads(v, self.num_kv_heads),
        )  # fmt: skip

    def attend(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        *,
        gate: np.ndarray | None = None,
        trace: Recorder = NULL_RECORDER,
        **options: Unpack[F.Options],
    ) -> np.ndarray:
        """Return ``... T E``: attention of the queries to keys and values, times `gate`, merged and projected.

        Taps what `regard.attention` does, with a gate ``gated_context``, and ``output``.
        """
        plan = trace.plan("weights")
        if plan.dropout:
            options = {**options, "dropout": plan.dropout, "rng": np.random.default_rng(plan.seed)}
        context = F.attention(q, k, v, trace=trace, **options)
        context = context if gate is None else trace(self.head_step, context * gate, "... H T Dv")
        return self.project_out(F.merge_heads(context), trace=trace)

    def project_out(self, context: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return ``... T E`` for the concatenated context of the heads, ``... T (H Dv)``.

        Taps ``output`` and, optionally, ``head_outputs``, ``... H T E``, which with the bias sum to it.
        """
        output = context if self.o_proj is None else self.o_proj(context)
        if self.o_proj is not None and trace is not NULL_RECORDER:
            plan = trace.plan(optional=("head_outputs",))
            if plan.asked:
                weight, bias = self.o_proj.weight, self.o_proj.bias
                weight = np.asarray(weight) if isinstance(weight, QuantizedWeight) else weight
                of_heads = F.split_heads(context, self.num_heads) @ weight.reshape(self.num_heads, -1, weight.shape[1])
                of_heads = trace("head_outputs", of_heads, "... H T E")
                if plan.edited:
                    output = of_heads.sum(-3) if bias is None else of_heads.sum(-3) + bias
        return trace("output", output, "... T E")


@dataclass(frozen=True, eq=False, repr=False)
class SelfAttention(MultiHeadAttention):
    """Every token of a sequence attends to every token of the same sequence."""

    def __post_init__(self) -> None:
        super().__post_init__()
        q_in, k_in = (p.weight.shape[0] for p in (self.q_proj, self.k_proj))
        if q_in != k_in:
            raise RegardError(
                f"q_proj takes {q_in} and k_proj {k_in} features, but in self-attention both read the same vectors; "
                f"use CrossAttention for the keys and values of another sequence"
            )

    def __call__(
        self,
        x: np.ndarray,
        *,
        rotation: CosSin | None = None,
        trace: Recorder = NULL_RECORDER,
        **options: Unpack[F.Options],
    ) -> np.ndarray:
        """Return the contextual vectors, ``... T E``, of x, ``... T E``.

        `rotation` is that of queries and keys, cosines and sines; `mask`, `causal` and the other options are those of
        `regard.attention`. Taps ``q`` and ``k`` (both after the rotation), ``v``, those of `regard.attention`, and
        ``output``; optionally ``projected_q`` and ``projected_k``, before the rotation, and ``head_outputs``.
        """
        if rotation is None:
            return self.attend(*self.project_qkv(x, trace=trace), trace=trace, **options)
        q, k, v = self._project_qkv(x)
        q, k = optional_tap(trace, "projected_q", q, "... H T D"), optional_tap(trace, "projected_k", k, "... G S D")
        q, k = F.apply_rotary(q, *rotation), F.apply_rotary(k, *rotation)
        q, k, v = trace("q", q, "... H T D"), trace("k", k, "... G S D"), trace("v", v, "... G S Dv")
        return self.attend(q, k, v, trace=trace, **options)

    forward = __call__


@dataclass(frozen=True, eq=False, repr=False)
class CrossAttention(MultiHeadAttention):
    """Every token of one sequence attends to every token of another."""

    def packed_together(self) -> tuple[Linear, ...]:
        """Return none: keys and values come from another sequence."""
        return ()

    def __call__(
        self,
        x: np.ndarray,
        memory: np.ndarray,
        *,
        trace: Recorder = NULL_RECORDER,
        **options: Unpack[F.Options],
    ) -> np.ndarray:
        """Return ``... T E``: attention of x, ``... T E``, to memory, ``... S E``.

        Keys and values come from `memory`. Options and taps as in `SelfAttention`.
        """
        q = self.project_q(x, trace=trace)
        return self.attend(q, *self.project_kv(memory, trace=trace), trace=trace, **options)

    forward = __call__


def _concat_heads(weight: np.ndarray) -> np.ndarray:
    """Return one matrix ``E (H D)`` for matrices of each head ``H E D``; a matrix as it is."""
    if weight.ndim != 3:
        return weight
    heads, embed_dim, head_dim = weight.shape
    return np.moveaxis(weight, 0, 1).reshape(embed_dim, heads * head_dim)
