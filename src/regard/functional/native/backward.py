"""Bridge to the kernel's backward pass.

The kernel returns gradients for each query head, and those of a bias summed over the axes along which it broadcasts;
gradients that heads and leading axes share are summed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from regard.functional import native
from regard.functional.arrays import Array, is_finite
from regard.functional.biases.base import Bias, DenseBias, sum_to_shape
from regard.functional.heads import sum_over_query_groups
from regard.functional.inputs import AttentionInputs
from regard.functional.native.attention import kernel_calls, to_library
from regard.functional.native.convert import to_kernel
from regard.functional.online_softmax import SoftmaxStats

_STRIP = 1024  # distances at a time in the gradient of a distance bias


def native_backward(
    p: AttentionInputs, context: Array, stats: SoftmaxStats, d_output: Array
) -> dict[str, Array | None] | None:
    """Return the gradients of q, k, v, bias and sinks in the compute dtype.

    None if an input that a query attends to is not finite, for the kernel does not determine which gradients it
    affects, or if a sum overflows.
    """
    xp, kernel = p.layout.xp, native.kernel()
    d_out = to_kernel(xp.astype(d_output, p.dtype if d_output.dtype == p.dtype else p.compute_dtype, copy=False))
    out = to_kernel(context)
    row_max, row_sum = (to_kernel(x[..., 0]) for x in stats)
    lead, keys = p.context_shape[:-2], p.layout.keys
    delta = np.empty(p.context_shape[:-1], out.dtype)
    d_q = native.empty_like(to_kernel(p.q), (*delta.shape, p.q.shape[-1]), out.dtype)  # in the memory order of q
    d_kv: list[np.ndarray] = []
    bias = _BiasGradient(p, out.dtype)
    for rows, call in kernel_calls(p):
        parts = [native.empty_like(to_kernel(x), (*lead, keys, x.shape[-1]), out.dtype) for x in (p.k, p.v)]
        sums = (x if x.shape[-1] == 1 else x[..., rows] for x in (row_max, row_sum))
        valid = kernel.backward(
            call, d_out[..., rows, :], out[..., rows, :], *sums, delta[..., rows], d_q[..., rows, :], *parts,
            **bias.arguments(rows),
        )  # fmt: skip
        if not valid:
            return None
        bias.gather(rows)
        d_kv = [total + part for total, part in zip(d_kv, parts, strict=True)] if d_kv else parts

    if d_kv[0] is not parts[0] and not all(is_finite(x) for x in d_kv):  # the kernel saw the parts of the sums
        return None

    d_sinks = None
    if p.sinks is not None:
        sinks = xp.astype(p.sinks, p.compute_dtype, copy=False)
        d_sinks = sum_to_shape(-to_library(p, delta)[..., None] * stats.weights(sinks, xp), p.sinks.shape)
    d_bias = bias.total()
    if not all(x is None or is_finite(x) for x in (d_bias, d_sinks)):
        return None
    return {
        "q": sum_to_shape(to_library(p, d_q), p.q.shape),
        "k": sum_over_query_groups(to_library(p, d_kv[0]), p.k.shape),
        "v": sum_over_query_groups(to_library(p, d_kv[1]), p.v.shape),
        "bias": d_bias,
        "sinks": d_sinks,
    }


class _BiasGradient:
    """The gradient of a bias: the arrays that the kernel writes to, and their sum in the shape of the parameter.

    The kernel returns the gradient of an array cell by cell or summed along an axis, and that of a distance bias summed
    for each distance; other biases receive the gradient of a strip of queries at a time.
    """

    def __init__(self, p: AttentionInputs, dtype: Any) -> None:
        self._p, self._dtype, self._gradient = p, dtype, None
        (queries, keys), lead = p.layout.shape[-2:], p.context_shape[:-2]
        parameter = getattr(p.bias, "parameter", None)  # a custom bias may have none
        self._shape = () if parameter is None else tuple(parameter.shape)
        self._kind = "none"
        if not queries or not keys:
            return
        if isinstance(p.bias, DenseBias):
            has_rows, has_cols = (size != 1 for size in (1, 1, *self._shape)[-2:])
            self._kind = "d_key_bias" if not has_rows else "d_bias" if has_cols else "d_query_bias"
        elif p.bias is not None and p.bias.differentiated:
            self._kind = "d_distance_bias" if p.bias.by_distance else "strips"
        if self._kind == "d_bias":
            self._sums = np.zeros(self._shape, dtype)
        elif self._kind == "d_query_bias":
            self._sums = np.empty((*lead, queries), dtype)
        elif self._kind == "d_distance_bias":
            self._sums = np.zeros((*lead, queries + keys - 1), dtype)

    def arguments(self, rows: slice) -> dict[str, np.ndarray]:
        """Return the kernel's keyword arguments for some queries."""
        keys, lead = self._p.layout.keys, self._p.context_shape[:-2]
        if self._kind == "none":
            return {}
        if self._kind == "d_query_bias":
            return {"d_query_bias": self._sums[..., rows]}
        if self._kind == "d_distance_bias":
            return {"d_distance_bias": self._sums[..., rows.start : rows.stop + keys - 1]}
        if self._kind == "d_bias":
            return {"d_bias": self._sums[..., rows, :]}
        if self._kind == "d_key_bias":
            self._part = np.empty((*lead, keys), self._dtype)
            return {"d_key_bias": self._part}
        self._part = np.zeros((*lead, rows.stop - rows.start, keys), self._dtype)
        return {"d_bias": self._part}

    def gather(self, rows: slice) -> None:
        """Accumulate what the kernel wrote for some queries."""
        if self._kind == "d_key_bias":
            self._add(sum_to_shape(self._part[..., None, :], self._shape))
        elif self._kind == "strips":
            self._add(self._parameter_gradient(rows, slice(0, self._p.layout.keys), self._part))

    def total(self) -> Array | None:
        """Return the gradient in the shape of the parameter."""
        if self._p.bias is None or not self._p.bias.differentiated:
            return None
        if self._kind == "d_bias":
            self._add(self._sums)
        elif self._kind == "d_query_bias":
            self._add(sum_to_shape(self._sums[..., None], self._shape))
        elif self._kind == "d_distance_bias":
            for rows, cols, part in self._distance_cells():
                self._add(self._parameter_gradient(rows, cols, part))
        gradient = np.zeros(self._shape, self._dtype) if self._gradient is None else self._gradient
        return to_library(self._p, gradient)

    def _distance_cells(self) -> Iterator[tuple[slice, slice, np.ndarray]]:
        """Yield the sums of the distances as gradients of the first row and first column, which hold them all."""
        queries, keys = self._p.layout.shape[-2:]
        yield slice(0, 1), slice(0, keys), self._sums[..., None, keys - 1 :: -1]
        for start in range(1, queries, _STRIP):
            stop = min(start + _STRIP, queries)
            yield slice(start, stop), slice(0, 1), self._sums[..., keys - 1 + start : keys - 1 + stop, None]

    def _parameter_gradient(self, rows: slice, cols: slice, part: np.ndarray) -> Array:
        layout, bias = self._p.layout, self._p.bias
        assert isinstance(bias, Bias)
        return bias.gradient(layout, rows, cols, layout.xp.asarray(np.ascontiguousarray(part), device=layout.device))

    def _add(self, part: Array) -> None:
        self._gradient = part if self._gradient is None else self._gradient + part
