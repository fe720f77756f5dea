"""Numbers so large that sums of them overflow: such a call is computed in a wider dtype and rounded once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard.functional.arrays import Array, namespace, no_grad, widest_float
from regard.functional.biases.base import DenseBias
from regard.functional.inputs import AttentionInputs

_MARGIN = 4  # how far below the largest float sums must stay, for rounding


def widened(p: AttentionInputs, d_output: Array | None = None) -> AttentionInputs:
    """Return inputs in the compute dtype, or in a wider one if `may_overflow`."""
    p = p.to_compute_dtype()
    return p.cast(_wider(p)) if _may_overflow(p, d_output) else p


def may_overflow(p: AttentionInputs, d_output: Array | None = None) -> bool:
    """Tell whether finite inputs are so large that a sum in the compute dtype could overflow.

    The sums are those of scores and of values, and with `d_output` those of the gradients. False while a library traces
    the call without values.
    """
    return _may_overflow(p.to_compute_dtype(), d_output)


def _may_overflow(p: AttentionInputs, d_output: Array | None) -> bool:
    xp, (queries, keys) = p.layout.xp, p.layout.shape[-2:]
    with no_grad(xp):
        q, k, v = _largest(p.q, xp), _largest(p.k, xp), 0.0 if p.v is None else _largest(p.v, xp)
        scale, bias = max(1.0, abs(p.scale)), 0.0 if p.bias is None else _largest_bias(p)
        d_out = 0.0 if d_output is None else _largest(d_output, xp)
    scores = scale * (q * k * p.q.shape[-1]) + bias
    values = v * keys / (1.0 if p.dropout is None else 1 - p.dropout.rate)
    d_weights = d_out * (1 + v) * (queries + keys) * (1 if p.v is None else p.v.shape[-1])
    limit = float(xp.finfo(p.q.dtype).max) / _MARGIN
    return bool(max(abs(p.scale), scores, values, d_weights * (1 + q + k) * scale) >= limit)


def narrowed(x: Array, dtype: Any) -> Array:
    """Return a result in its dtype; what is beyond that is infinite."""
    if x.dtype == dtype:
        return x
    with np.errstate(over="ignore"):
        return namespace(x).astype(x, dtype)


def _largest(x: Array, xp: Any) -> float:
    """Return the largest magnitude of the finite numbers of `x`, 0 if there are none or while a library traces."""
    if 0 in x.shape:
        return 0.0
    try:
        largest = float(xp.max(xp.abs(x)))
        return (
            largest if math.isfinite(largest) else float(xp.max(xp.where(xp.isfinite(x), xp.abs(x), xp.zeros_like(x))))
        )
    except (TypeError, RuntimeError):  # JAX under jit; PyTorch under vmap
        return 0.0


def _largest_bias(p: AttentionInputs) -> float:
    parameter = getattr(p.bias, "parameter", None)  # a custom bias may have none
    if parameter is None:
        return 0.0
    return _largest(parameter, p.layout.xp) * (1 if isinstance(p.bias, DenseBias) else sum(p.layout.shape[-2:]))


def _wider(p: AttentionInputs) -> Any:
    """Return float64 for narrower dtypes; for float64 what NumPy has beyond it, if anything."""
    xp = p.layout.xp
    if xp is np and p.q.dtype == np.float64:
        return np.longdouble if np.finfo(np.longdouble).maxexp > np.finfo(np.float64).maxexp else np.float64
    return widest_float(xp, p.layout.device) if p.q.dtype == xp.float32 else p.q.dtype
