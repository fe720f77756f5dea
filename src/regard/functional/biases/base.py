"""Biases: what they have in common, arrays, and the sum of their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, as_array, compute_dtype, concat, is_boolean, is_floating, namespace
from regard.functional.masks.base import check_broadcast
from regard.functional.rules import Axes, Rule, replaced, rule
from regard.functional.scores.layout import ALL, Index, ScoreLayout, take_broadcast
from regard.functional.scores.part import ScorePart


class Bias(Rule):
    """Base class of biases. Every ``bias=`` takes a subclass of your own with a method `values`.

    Attributes
    ----------
    parameter : array
        The array that gradients are taken with respect to.
    uses_positions : bool
        Whether the values depend on the query_offset of the call.
    can_mask : bool
        Whether values may be −inf, which masks.
    by_distance : bool
        Whether the values depend only on the head, the batch entry and the distance from query to key.
    differentiated : bool
        Whether there is a gradient of the parameter.
    """

    parameter: Array
    can_mask = True
    by_distance = False
    differentiated = True

    def to_namespace(self, layout: ScoreLayout) -> Self:
        """Return the bias with its parameter, and other arrays, in the library of the layout."""
        bias = super().to_namespace(layout)
        parameter = getattr(bias, "parameter", None)  # which a class of a user's has without declaring it
        return bias if parameter is None else bias.with_parameter(layout.to_namespace(parameter))

    def with_parameter(self, parameter: Array) -> Self:
        """Return the bias with another parameter of the same shape."""
        bias: Self = replaced(self, {"parameter": parameter})
        return bias

    def take(self, part: ScorePart) -> Bias:
        """Return the bias of a part of the scores."""
        return self.taken(part) or PartOfBias(self, part)

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return the values of a block; they broadcast to ``... H R C``."""
        raise NotImplementedError

    def gradient(self, layout: ScoreLayout, rows: slice, cols: slice, d_values: Array) -> Array:  # noqa: ARG002
        """Return the gradient of the parameter from that of a block, ``... H R C`` (for an array: of its block)."""
        raise RegardError(
            f"{type(self).__name__} has no gradient; give it a method gradient, or give the bias as an array"
        )


@rule
class DenseBias(Bias):
    """A floating array that broadcasts to ``... H T S``; −inf masks."""

    parameter: Annotated[Array, Axes("... H T S")]
    shift_invariant = head_invariant = True

    def __post_init__(self) -> None:
        array = as_array(self.parameter, "bias")
        if is_boolean(array):
            raise RegardError("bias is boolean, but it is added to the scores; to mask keys use mask=")
        if not is_floating(array):
            raise RegardError(
                f"bias must be floating, got {array.dtype}: convert it; of 0 and 1 that mask keys make mask=bias != 0"
            )
        object.__setattr__(self, "parameter", array)

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless the array broadcasts to the scores."""
        check_broadcast(self.parameter, "bias", layout)

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        """Return the block of the array."""
        return to_compute_dtype(take_broadcast(self.parameter, rows, cols))

    def gradient(self, layout: ScoreLayout, rows: slice, cols: slice, d_values: Array) -> Array:
        """Return the block's gradient, summed over the axes along which the array is broadcast."""
        return sum_to_shape(d_values, self.values(layout, rows, cols).shape)


@dataclass(frozen=True, eq=False)
class PartOfBias(Bias):
    """A bias of all scores, evaluated at a part of them."""

    bias: Bias
    part: ScorePart
    parameter = None

    @property
    def can_mask(self) -> bool:  # type: ignore[override]
        """That of the whole bias."""
        return self.bias.can_mask

    @property
    def by_distance(self) -> bool:  # type: ignore[override]
        """That of the whole bias."""
        return self.bias.by_distance

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        """Return the values of the whole bias."""
        return self.part.take(self.bias.values(self.part.layout, *self.part.whole(rows, cols)), "... H R C")


class BiasGradAccumulator:
    """The gradient of a bias, accumulated block by block.

    The gradients of an array are summed along the axes that it broadcasts and concatenated along the others; those of
    other parameters are summed.
    """

    def __init__(self, bias: Bias, row_blocks: list[slice], col_blocks: list[slice]) -> None:
        self._bias = bias
        shape = (1, 1, *bias.parameter.shape)[-2:] if isinstance(bias, DenseBias) else (1, 1)
        self._rows = row_blocks if shape[0] != 1 else [ALL]
        self._cols = col_blocks if shape[1] != 1 else [ALL]
        self._blocks: dict[tuple[int, int], Array] = {}

    def add(self, layout: ScoreLayout, rows: tuple[int, slice], cols: tuple[int, slice], d_values: Array) -> None:
        """Add the gradient of one block, ``... H R C``; `rows` and `cols` are its index and extent."""
        key = (rows[0] if len(self._rows) > 1 else 0, cols[0] if len(self._cols) > 1 else 0)
        part = self._bias.gradient(layout, rows[1], cols[1], d_values)
        self._blocks[key] = self._blocks[key] + part if key in self._blocks else part

    def result(self, dtype: Any) -> Array:
        """Return the gradient in the shape of the parameter and in `dtype`; blocks without a gradient are 0."""
        parameter = self._bias.parameter
        xp = namespace(parameter)
        zeros = xp.astype(xp.zeros_like(parameter), compute_dtype(xp, parameter.dtype))
        if len(self._rows) == len(self._cols) == 1:
            total = self._blocks.get((0, 0), zeros)
        else:
            row_blocks = []
            for i, rows in enumerate(self._rows):
                empty = {j: take_broadcast(zeros, rows, cols) for j, cols in enumerate(self._cols)}
                row_blocks.append(concat([self._blocks.get((i, j), empty[j]) for j in empty], -1))
            total = concat(row_blocks, -2)
        return xp.astype(xp.reshape(total, parameter.shape), dtype)


def as_bias(bias: Bias | Array) -> Bias:
    """Return an array as a `DenseBias`, a bias unchanged."""
    return bias if isinstance(bias, Bias) else DenseBias(bias)


def sum_to_shape(x: Array, shape: tuple[int, ...]) -> Array:
    """Return `x` summed over the axes along which an array of `shape` was broadcast to it."""
    if tuple(x.shape) == tuple(shape):
        return x
    xp = namespace(x)
    extra = x.ndim - len(shape)
    x = xp.sum(x, axis=tuple(range(extra))) if extra > 0 else xp.reshape(x, (1,) * -extra + tuple(x.shape))
    broadcast = tuple(i for i, (have, want) in enumerate(zip(x.shape, shape, strict=True)) if want == 1 and have != 1)
    return xp.sum(x, axis=broadcast, keepdims=True) if broadcast else x


def to_compute_dtype(x: Array) -> Array:
    """Return numbers in the dtype to compute in."""
    xp = namespace(x)
    return xp.astype(x, compute_dtype(xp, x.dtype), copy=False)
