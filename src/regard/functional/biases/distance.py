"""Biases by the distance from query to key, which never hold n² numbers."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, as_array, device, is_floating, namespace
from regard.functional.biases.base import Bias, sum_to_shape, to_compute_dtype
from regard.functional.positions.embeddings import relative_position_buckets
from regard.functional.rules import Axes, rule
from regard.functional.scores.layout import Index, ScoreLayout, bounds_of, broadcasts
from regard.functional.scores.part import ScorePart

__all__ = ("ALiBi", "DistanceBias", "RelativePositionBias")


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
        slopes = to_compute_dtype(self.parameter)[:, None, None]
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
        values = layout.xp.take(to_compute_dtype(self.parameter), layout.xp.reshape(buckets, (-1,)), axis=0)
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
        xp, table = layout.xp, to_compute_dtype(self.parameter)
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
