"""Linear maps, norms, embedding tables and feed-forward networks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from regard import functional as F
from regard._utils.errors import RegardError
from regard._utils.validation import float_dtype, generator, whole_number
from regard.functional.recorder import NULL_RECORDER, Recorder, optional_tap
from regard.nn import fast_paths
from regard.nn.layer import REQUIRED, Layer
from regard.nn.quantized import QuantizedWeight


@dataclass(frozen=True, eq=False, repr=False)
class Linear(Layer):
    """The map x · W + b.

    Parameters
    ----------
    weight : array or QuantizedWeight, ``E F``
        Columns are output features.
    bias : array, ``F``, optional
    """

    weight: np.ndarray | QuantizedWeight
    bias: np.ndarray | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.weight, np.ndarray | QuantizedWeight) and self.weight.ndim == 2):
            raise RegardError(
                f"a Linear is made from its weight, an array of 2 dimensions (inputs, outputs), got "
                f"{_described(self.weight)}; for a fresh one call Linear.init(rng, in_dim, out_dim)"
            )
        if self.bias is not None and not (
            isinstance(self.bias, np.ndarray) and self.bias.shape == self.weight.shape[1:]
        ):
            raise RegardError(
                f"the bias of weight {self.weight.shape} must be an array {self.weight.shape[1:]}, got "
                f"{_described(self.bias)}"
            )

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        in_dim: int,
        out_dim: int,
        *,
        bias: bool = True,
        dtype: Any = np.float32,
    ) -> Linear:
        """Draw the weight uniformly from ±√(6 / (in_dim + out_dim)); the bias is 0.

        This is the initialisation of Glorot and Bengio (2010), also called Xavier's: its variance,
        2 / (in_dim + out_dim), keeps the scale of signals. The lessons draw from the standard normal instead: each
        entry of q and k is then a sum of E terms with a standard deviation of √E, a score q·k/√D has one of about E,
        and the softmax saturates. At E = 128 its rows are one-hot, and gradients vanish.
        """
        in_dim, out_dim = whole_number("in_dim", in_dim, 1), whole_number("out_dim", out_dim, 1)
        limit = math.sqrt(6 / (in_dim + out_dim))
        weight = generator(rng).uniform(-limit, limit, (in_dim, out_dim)).astype(float_dtype(dtype))
        return cls(weight, np.zeros(out_dim, dtype) if bias else None)

    def packed_together(self) -> tuple[Linear, ...]:
        """Return itself."""
        return (self,)

    def __call__(self, x: np.ndarray, *, activation: str | None = None) -> np.ndarray:
        """Return ``... F`` for x ``... E``, after an activation if one is named."""
        y = fast_paths.linear(self, x, activation)
        if y is not None:
            return y
        if isinstance(self.weight, QuantizedWeight):
            return self.weight.linear(x, self.bias, activation)
        product: np.ndarray = F.linear(x, self.weight, self.bias, activation=activation)
        return product

    forward = __call__


@dataclass(frozen=True, eq=False, repr=False)
class LayerNorm(Layer):
    """Layer normalization: each vector to mean 0 and variance 1, then scaled and shifted by learned parameters.

    Parameters
    ----------
    weight : array, ``E``
    bias : array, ``E``, optional
    eps : float
    """

    weight: np.ndarray
    bias: np.ndarray | None = None
    eps: float = 1e-5

    def __post_init__(self) -> None:
        has_weight = isinstance(self.weight, np.ndarray) and self.weight.ndim == 1
        has_bias = isinstance(self.bias, np.ndarray)
        if not has_weight or (self.bias is not None and not (has_bias and self.bias.shape == self.weight.shape)):
            raise RegardError(
                f"a LayerNorm is made from weight and bias (or None), arrays of one shape (features,), got "
                f"{_described(self.weight)} and {_described(self.bias)}; for a fresh one call LayerNorm.init(dim)"
            )
        if not 0 <= self.eps < math.inf:
            raise RegardError(f"eps must be a finite number of at least 0, got {self.eps}")

    @classmethod
    def init(cls, embed_dim: int, *, eps: float = 1e-5, dtype: Any = np.float32) -> LayerNorm:
        """Make the plain normalization: weight 1, bias 0."""
        embed_dim, dtype = whole_number("embed_dim", embed_dim, 1), float_dtype(dtype)
        return cls(np.ones(embed_dim, dtype), np.zeros(embed_dim, dtype), eps)

    def __call__(self, x: np.ndarray, *, residual: np.ndarray | None = None) -> np.ndarray:
        """Return ``... E`` for x ``... E``, or for x + residual."""
        y: np.ndarray = F.layer_norm(x, self.weight, self.bias, eps=self.eps, residual=residual)
        return y

    forward = __call__


@dataclass(frozen=True, eq=False, repr=False)
class RMSNorm(Layer):
    """Root mean square normalization: each vector to a mean square of 1, then scaled by learned parameters.

    Parameters
    ----------
    weight : array, ``E``
    eps : float
    """

    weight: np.ndarray
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if not (isinstance(self.weight, np.ndarray) and self.weight.ndim == 1):
            raise RegardError(
                f"an RMSNorm is made from its weight, an array (features,), got {_described(self.weight)}; for a fresh "
                f"one call RMSNorm.init(dim)"
            )
        if not 0 <= self.eps < math.inf:
            raise RegardError(f"eps must be a finite number of at least 0, got {self.eps}")

    @classmethod
    def init(cls, embed_dim: int, *, eps: float = 1e-6, dtype: Any = np.float32) -> RMSNorm:
        """Make the plain normalization: weight 1."""
        return cls(np.ones(whole_number("embed_dim", embed_dim, 1), float_dtype(dtype)), eps)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return ``... E`` for x ``... E``."""
        y: np.ndarray = F.rms_norm(x, self.weight, eps=self.eps)
        return y

    forward = __call__


def normed(
    norm: LayerNorm | RMSNorm | None,
    x: np.ndarray,
    trace: Recorder,
    name: str,
    axes: str = "... T E",
    *,
    residual: np.ndarray | None = None,
) -> np.ndarray:
    """Return the norm of x, or of x + residual; x itself without a norm.

    Optionally taps the result, called ``attn_norm`` for example, and what `traced_norm` does.
    """
    if norm is None:
        return x
    return optional_tap(trace, name, traced_norm(norm, x, trace, name, axes, residual=residual), axes)


def traced_norm(
    norm: LayerNorm | RMSNorm,
    x: np.ndarray,
    trace: Recorder,
    name: str,
    axes: str = "... T E",
    *,
    residual: np.ndarray | None = None,
) -> np.ndarray:
    """Return the norm of x, or of x + residual.

    Optionally taps ``scale``, by which each vector is divided, and the quotient ``normalized``, in the scope `name`.
    """
    if trace is not NULL_RECORDER:
        plan = trace.plan(optional=(f"{name}.scale", f"{name}.normalized"))
        if plan.asked:
            tapped = _tapped_norm(norm, x if residual is None else x + residual, trace, name, axes)
            if plan.edited:  # looking alone leaves the bits as they are
                return tapped
    if isinstance(norm, LayerNorm):
        return norm(x, residual=residual)
    return norm(x if residual is None else x + residual)


def _tapped_norm(norm: LayerNorm | RMSNorm, x: np.ndarray, trace: Recorder, name: str, axes: str) -> np.ndarray:
    """Return the norm of x by its steps, which are tapped."""
    vectors, scale = F.normalize(x, eps=norm.eps, centered=isinstance(norm, LayerNorm))
    scale = trace(f"{name}.scale", scale[..., 0], axes.rpartition(" ")[0])[..., None]
    normalized = trace(f"{name}.normalized", vectors / scale, axes)
    y: np.ndarray = normalized * norm.weight
    bias = getattr(norm, "bias", None)
    return (y if bias is None else y + bias).astype(x.dtype, copy=False)


@dataclass(frozen=True, eq=False, repr=False)
class Embedding(Layer):
    """A table of one vector for each token id.

    Parameters
    ----------
    weight : array or QuantizedWeight, ``V E``
    """

    weight: np.ndarray | QuantizedWeight

    def __post_init__(self) -> None:
        if not (isinstance(self.weight, np.ndarray | QuantizedWeight) and self.weight.ndim == 2):
            raise RegardError(
                f"an Embedding is made from its table, an array of 2 dimensions (vocabulary, features), got "
                f"{_described(self.weight)}; for a fresh one call Embedding.init(rng, size, embed_dim)"
            )

    @classmethod
    def init(cls, rng: np.random.Generator, size: int, embed_dim: int, *, dtype: Any = np.float32) -> Embedding:
        """Draw every entry from the standard normal, so that two vectors are nearly orthogonal."""
        shape = whole_number("size", size, 0), whole_number("embed_dim", embed_dim, 1)
        return cls(generator(rng).standard_normal(shape).astype(float_dtype(dtype)))

    def __call__(self, ids: ArrayLike) -> np.ndarray:
        """Return ``... E`` for integer ids ``...``.

        Raises
        ------
        RegardError
            An id is not an integer from 0 to V − 1. (NumPy would count a negative one from the end.)
        """
        rows: np.ndarray = F.embedding(self.weight, ids)
        return rows

    forward = __call__


@dataclass(frozen=True, eq=False, repr=False)
class FeedForward(Layer):
    """Position-wise feed-forward network: linear, activation, linear.

    Parameters
    ----------
    up_proj : Linear, ``E F``
    down_proj : Linear, ``F E``
    activation : str
        ``"gelu"``, ``"gelu_new"`` (tanh formula), ``"silu"`` or ``"relu"``.
    """

    up_proj: Linear
    down_proj: Linear = REQUIRED
    activation: str = field(default="gelu", kw_only=True)

    def __post_init__(self) -> None:
        F.activation(self.activation)
        if not (isinstance(self.up_proj, Linear) and isinstance(self.down_proj, Linear)):
            raise RegardError(
                f"a FeedForward is made from two Linear maps, got {_described(self.up_proj)} and "
                f"{_described(self.down_proj)}; for a fresh one call FeedForward.init(rng, embed_dim, hidden_dim)"
            )
        if self.up_proj.weight.shape[1] != self.down_proj.weight.shape[0]:
            raise RegardError(
                f"up_proj {self.up_proj.weight.shape} and down_proj {self.down_proj.weight.shape} do not join"
            )

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        embed_dim: int,
        hidden_dim: int | None = None,
        *,
        activation: str = "gelu",
        bias: bool = True,
        dtype: Any = np.float32,
    ) -> FeedForward:
        """Draw both maps as `Linear.init` does; the hidden width is 4 E by default, as in the Transformer."""
        embed_dim = whole_number("embed_dim", embed_dim, 1)
        hidden_dim = whole_number("hidden_dim", 4 * embed_dim if hidden_dim is None else hidden_dim, 1)
        return cls(
            Linear.init(rng, embed_dim, hidden_dim, bias=bias, dtype=dtype),
            Linear.init(rng, hidden_dim, embed_dim, bias=bias, dtype=dtype),
            activation=activation,
        )

    def __call__(self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return ``... T E`` for x ``... T E``; taps ``hidden`` (``... T F``), ``output`` and, optionally, ``up``."""
        hidden = self.up_proj(x, activation=self.activation)
        if trace is not NULL_RECORDER and (plan := trace.plan(optional=("up",))).asked:
            up = trace("up", self.up_proj(x), "... T F")
            hidden = F.activation(self.activation)(up) if plan.edited else hidden
        hidden = trace("hidden", hidden, "... T F")
        return trace("output", self.down_proj(hidden), "... T E")

    forward = __call__


@dataclass(frozen=True, eq=False, repr=False)
class GatedFeedForward(Layer):
    """Gated feed-forward network: activation(gate_proj(x)) × up_proj(x), then down_proj.

    Parameters
    ----------
    gate_proj, up_proj : Linear, ``E F``
    down_proj : Linear, ``F E``
    activation : str
        Of the gate; names as in `FeedForward`.

    References
    ----------
    Shazeer (2020), "GLU variants improve Transformer", https://arxiv.org/abs/2002.05202.
    """

    gate_proj: Linear
    up_proj: Linear = REQUIRED
    down_proj: Linear = REQUIRED
    activation: str = field(default="silu", kw_only=True)

    def __post_init__(self) -> None:
        F.activation(self.activation)
        maps = (self.gate_proj, self.up_proj, self.down_proj)
        if not all(isinstance(m, Linear) for m in maps):
            raise RegardError(
                f"a GatedFeedForward is made from three Linear maps, got {', '.join(_described(m) for m in maps)}; for "
                f"a fresh one call GatedFeedForward.init(rng, embed_dim, hidden_dim)"
            )
        gate, up, down = (m.weight.shape for m in maps)
        if gate != up or up[1] != down[0]:
            raise RegardError(f"gate_proj {gate}, up_proj {up} and down_proj {down} do not join")

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        embed_dim: int,
        hidden_dim: int,
        *,
        activation: str = "silu",
        bias: bool = False,
        dtype: Any = np.float32,
    ) -> GatedFeedForward:
        """Draw all maps as `Linear.init` does."""
        ins_and_outs = ((embed_dim, hidden_dim), (embed_dim, hidden_dim), (hidden_dim, embed_dim))
        maps = (Linear.init(rng, *sizes, bias=bias, dtype=dtype) for sizes in ins_and_outs)
        return cls(*maps, activation=activation)

    def packed_together(self) -> tuple[Linear, ...]:
        """Return the maps to the gate and to what it gates."""
        return self.gate_proj, self.up_proj

    def __call__(self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return ``... T E`` for x ``... T E``; taps ``gate``, ``up``, ``hidden`` (``... T F``) and ``output``."""
        apart = trace is not NULL_RECORDER and bool(trace.plan("gate", "up").asked)
        gate, up = fast_paths.gate_and_up(self, x, apart=apart) or (self.gate_proj(x), self.up_proj(x))
        gate, up = trace("gate", gate, "... T F"), trace("up", up, "... T F")
        activation = F.activation(self.activation)
        gated = F.swiglu(gate, up) if activation is F.silu else activation(gate) * up
        hidden = trace("hidden", gated, "... T F")
        return trace("output", self.down_proj(hidden), "... T E")

    forward = __call__


def _described(value: object) -> str:
    return f"an array {value.shape}" if isinstance(value, np.ndarray) else repr(value)
