"""Biases, added to the scores: arrays, and functions of the distance that never hold n² numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, as_array, compute_dtype, concat, device, is_boolean, is_floating, namespace
from regard.functional.masks import check_broadcast
from regard.functional.positions import relative_position_buckets
from regard.functional.rules import Axes, Rule, replaced, rule
from regard.functional.score_layout import ALL, Index, ScoreLayout, bounds_of, broadcasts, take_broadcast
from regard.functional.score_part import ScorePart


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


class _FiniteByDistance(Bias):
    """A bias whose values are finite numbers that depend on the distance from query to key only."""

    uses_positions = True
    shift_invariant = True
    can_mask = False
    by_distance = True

    def __post_init__(self) -> None:
        array = as_array(self.parameter, f"the parameter of {type(self).__name__}")
        if not is_floating(array):
            raise RegardError(f"the parameter of {type(self).__name__} must be floating, got {array.dtype}")
        object.__setattr__(self, "parameter", array)


@rule
class ALiBi(_FiniteByDistance):
    """Attention with linear biases: −slope · |key position − query position|.

    Parameters
    ----------
    parameter : floating array, ``H``
        The slopes; `alibi_slopes` returns those of the paper.

    References
    ----------
    Press, Smith and Lewis (2022), "Train short, test long", https://arxiv.org/abs/2108.12409.
    """

    parameter: Annotated[Array, Axes("H")]

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless each head has a slope."""
        if tuple(self.parameter.shape) not in ((layout.heads,), (1,)):
            raise RegardError(
                f"ALiBi needs one slope for each of the {layout.heads} heads, got {tuple(self.parameter.shape)}"
            )

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return −slope · distance."""
        slopes = _to_compute_dtype(self.parameter)[:, None, None]
        return _without_head_axis(
            -slopes * layout.xp.astype(layout.xp.abs(_distances(layout, rows, cols)), slopes.dtype), layout
        )

    def gradient(self, layout: ScoreLayout, rows: slice, cols: slice, d_values: Array) -> Array:
        """Return −Σ gradient · distance of each head."""
        distance = layout.xp.astype(layout.xp.abs(_distances(layout, rows, cols)), d_values.dtype)
        return sum_to_shape(-d_values * distance, (*self.parameter.shape, 1, 1))[..., 0, 0]


@rule
class RelativePositionBias(_FiniteByDistance):
    """A learned value for each head and bucket of distances, as in T5: fine buckets near, coarse ones far away.

    Parameters
    ----------
    parameter : floating array, ``buckets H``
        The learned table.
    bidirectional : bool
        Whether half of the buckets are for keys after the query; else those share the bucket of distance 0.
    max_distance : int
        All distances from here on share the last bucket.

    References
    ----------
    Raffel et al. (2020), "Exploring the limits of transfer learning", https://arxiv.org/abs/1910.10683.
    """

    parameter: Annotated[Array, Axes("N H")]
    bidirectional: bool = True
    max_distance: int = 128

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless the table has a column for each head."""
        shape = tuple(self.parameter.shape)
        if len(shape) != 2 or shape[1] not in (1, layout.heads):
            raise RegardError(f"RelativePositionBias needs a table of buckets × {layout.heads} heads, got {shape}")
        self.buckets(layout.key_indices(slice(0, 0)))

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return the value of each head for the bucket of each distance."""
        buckets = self.buckets(_distances(layout, rows, cols))  # R C, or ... 1 R C
        values = layout.xp.take(_to_compute_dtype(self.parameter), layout.xp.reshape(buckets, (-1,)), axis=0)
        values = layout.xp.moveaxis(
            layout.xp.reshape(values, (*buckets.shape, self.parameter.shape[1])), -1, -3
        )  # ... H R C
        return _without_head_axis(values if buckets.ndim == 2 else values[..., 0, :, :, :], layout)

    def gradient(self, layout: ScoreLayout, rows: slice, cols: slice, d_values: Array) -> Array:
        """Return the sum of the gradients in each bucket."""
        xp, heads = layout.xp, self.parameter.shape[1]
        by_distance = _diagonal_sums(d_values)[..., None, :]  # ... H 1 R+C-1
        steps = xp.arange(by_distance.shape[-1], device=layout.device)[None, :]
        first = cols.start - (rows.stop - 1)
        buckets = self.buckets(steps + first - layout.resolve_offset())  # 1 R+C-1, or ... 1 1 R+C-1
        sums = [
            sum_to_shape(xp.where(buckets == b, by_distance, xp.zeros_like(by_distance)), (heads, 1, 1))[:, 0, 0]
            for b in range(self.parameter.shape[0])
        ]
        return xp.stack(sums)

    def buckets(self, relative: Array) -> Array:
        """Return the row of the table for each distance, key position − query position."""
        return relative_position_buckets(
            relative,
            bidirectional=self.bidirectional,
            num_buckets=int(self.parameter.shape[0]),
            max_distance=self.max_distance,
        )


@rule
class DistanceBias(_FiniteByDistance):
    """A value for each head and each distance from query to key: any translation-invariant (Toeplitz) bias.

    Parameters
    ----------
    parameter : floating array, ``... H N`` or ``N``
        The values of N consecutive distances, key position − query position.
    min_distance : int
        The distance of the first value: the smallest, signed.
    """

    parameter: Annotated[Array, Axes("... H N")]
    min_distance: int

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless each distance of the layout has a value."""
        shape = tuple(self.parameter.shape)
        if not shape or not broadcasts(shape[:-1], layout.shape[:-2] or (1,)):
            raise RegardError(
                f"DistanceBias of shape {shape} does not fit scores {layout.shape} (... heads, distances)"
            )
        offsets = bounds_of(layout.resolve_offset())
        if offsets is not None and 0 not in layout.shape[-2:]:
            least, most = -(layout.queries - 1) - offsets[1], layout.keys - 1 - offsets[0]
            if least < self.min_distance or most >= self.min_distance + shape[-1]:
                raise RegardError(
                    f"DistanceBias has values of the distances from {self.min_distance} to "
                    f"{self.min_distance + shape[-1] - 1}, but scores {layout.shape} have distances "
                    f"from {least} to {most}"
                )

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return the value of each head for the distance of each query and key."""
        xp, table = layout.xp, _to_compute_dtype(self.parameter)
        columns = _distances(layout, rows, cols) - self.min_distance  # R C, or ... 1 R C
        if columns.ndim == 2:
            values = xp.take(table, xp.reshape(columns, (-1,)), axis=-1)
            return _without_head_axis(xp.reshape(values, (*table.shape[:-1], *columns.shape)), layout)
        shape = np.broadcast_shapes(tuple(table.shape[:-1]), tuple(columns.shape[:-2]))
        table = xp.broadcast_to(table[..., None, :], (*shape, columns.shape[-2], table.shape[-1]))
        return xp.take_along_axis(table, xp.broadcast_to(columns, (*shape, *columns.shape[-2:])), axis=-1)

    def take(self, part: ScorePart) -> Bias:
        """Return the bias of a part; of a block, the values of its distances."""
        if not part.is_block:
            return super().take(part)
        offsets = bounds_of(part.layout.resolve_offset())
        assert offsets is not None
        least = part.cols.start - (part.rows.stop - 1) - offsets[1]
        most = part.cols.stop - 1 - part.rows.start - offsets[0]
        at = slice(least - self.min_distance, max(least, most + 1) - self.min_distance)
        return DistanceBias(part.take(np.asarray(self.parameter), "... H N")[..., at], least)

    def gradient(self, layout: ScoreLayout, rows: slice, cols: slice, d_values: Array) -> Array:
        """Return the sum of the gradients of each distance."""
        xp, sums = layout.xp, _diagonal_sums(d_values)  # ... H R+C-1
        count = int(sums.shape[-1])
        distances = xp.arange(self.parameter.shape[-1], device=layout.device) + self.min_distance
        columns = distances - (cols.start - (rows.stop - 1)) + layout.resolve_offset()
        columns = columns[..., 0, :] if columns.ndim > 1 else columns  # N, or ... 1 N
        shape = np.broadcast_shapes(tuple(sums.shape[:-1]), tuple(columns.shape[:-1]))
        columns = xp.broadcast_to(columns, (*shape, columns.shape[-1]))
        inside = xp.logical_and(columns >= 0, columns < count)
        sums = xp.take_along_axis(
            xp.broadcast_to(sums, (*shape, count)), xp.where(inside, columns, xp.zeros_like(columns)), axis=-1
        )
        return sum_to_shape(xp.where(inside, sums, xp.zeros_like(sums)), tuple(self.parameter.shape))


@rule
class DenseBias(Bias):
    """A floating array that broadcasts to ``... H T S``; −inf masks."""

    parameter: Annotated[Array, Axes("... H T S")]
    shift_invariant = True

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
        return _to_compute_dtype(take_broadcast(self.parameter, rows, cols))

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


def _diagonal_sums(x: Array) -> Array:
    """Return the sums of ``... R C`` along its diagonals, ``... R+C-1``, from the lower left corner to the upper right.

    The rows, flipped and padded with R zeros each, are read again in rows that are one shorter: each is then one column
    further right than the row before, and a diagonal is a column.
    """
    xp, rows, cols = namespace(x), x.shape[-2], x.shape[-1]
    x = xp.concat([xp.flip(x, axis=-2), xp.zeros((*x.shape[:-1], rows), dtype=x.dtype, device=device(x))], axis=-1)
    x = xp.reshape(x, (*x.shape[:-2], rows * (cols + rows)))[..., : rows * (cols + rows - 1)]
    return xp.sum(xp.reshape(x, (*x.shape[:-1], rows, cols + rows - 1)), axis=-2)


def _distances(layout: ScoreLayout, rows: Index, cols: Index) -> Array:
    """Return key position − query position, ``R C`` or ``... 1 R C``."""
    return layout.key_indices(cols) - (layout.query_indices(rows) + layout.resolve_offset())


def _without_head_axis(values: Array, layout: ScoreLayout) -> Array:
    """Return ``H R C`` as ``R C`` if the scores have no head axis."""
    return values[0, ...] if len(layout.shape) == 2 and values.ndim == 3 else values


def _to_compute_dtype(x: Array) -> Array:
    xp = namespace(x)
    return xp.astype(x, compute_dtype(xp, x.dtype), copy=False)
