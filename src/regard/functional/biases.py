"""What is added to the scores: an array, or a rule of the distance that never holds n² numbers."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.functional.arrays import as_array, compute_dtype, concat, device, is_boolean, is_floating, namespace
from regard.functional.masks import check_broadcast
from regard.functional.positions import relative_position_buckets
from regard.functional.score_layout import ALL, Index, ScoreLayout, bounds_of, broadcasts, take_broadcast


class Bias:
    """A rule that gives the number to add to the score of any cell. Whatever takes ``bias=`` takes a rule.

    Attributes
    ----------
    parameter : array
        What the rule is made from, and what a gradient is taken with respect to.
    uses_positions : bool
        Whether it asks where the queries stand.
    hides : bool
        Whether its numbers may be −inf, which hides as a mask does.
    by_distance : bool
        Whether its numbers depend on the head, the batch entry and how far query and key are apart alone.
    """

    parameter: Array
    uses_positions = False
    can_mask = True
    by_distance = False

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError if the rule does not fit the layout."""

    def to_namespace(self, layout: ScoreLayout) -> Bias:
        """Return the rule made from an array of the library of the layout."""
        if getattr(self, "parameter", None) is None:
            return self
        rule = copy.copy(self)
        object.__setattr__(rule, "parameter", layout.to_namespace(self.parameter))
        return rule

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return the numbers for a block of cells; they broadcast to ``... H R C``."""
        raise NotImplementedError

    def gradient(self, layout: ScoreLayout, rows: slice, cols: slice, d_tile: Array) -> Array:  # noqa: ARG002
        """Return what a block's ``... H R C`` gradient gives to the parameter (for an array: its block)."""
        raise RegardError(f"{type(self).__name__} has no gradient; give it a method gradient, or the bias as an array")


@dataclass(frozen=True, eq=False)
class ALiBi(Bias):
    """Attention with linear biases: each head looks the less, the farther away a key is.

    The bias is ``−slope · |position of the query − position of the key|``.

    Parameters
    ----------
    parameter : floating array, ``H``
        The slopes; `alibi_slopes` gives those of the paper.

    References
    ----------
    Press, Smith and Lewis (2022), "Train short, test long", https://arxiv.org/abs/2108.12409.
    """

    parameter: Array
    uses_positions = True
    can_mask = False
    by_distance = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameter", _floating(self.parameter, "ALiBi slopes"))

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless there is a slope for each head."""
        if tuple(self.parameter.shape) not in ((layout.heads,), (1,)):
            raise RegardError(
                f"ALiBi needs one slope for each of the {layout.heads} heads, got {tuple(self.parameter.shape)}"
            )

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return −slope · distance."""
        slopes = _computed(self.parameter)[:, None, None]
        return _for_shape(-slopes * layout.xp.astype(_distance(layout, rows, cols), slopes.dtype), layout)

    def gradient(self, layout: ScoreLayout, rows: slice, cols: slice, d_tile: Array) -> Array:
        """Return −Σ gradient · distance for each head."""
        distance = layout.xp.astype(_distance(layout, rows, cols), d_tile.dtype)
        return sum_to_shape(-d_tile * distance, (*self.parameter.shape, 1, 1))[..., 0, 0]


@dataclass(frozen=True, eq=False)
class RelativePositionBias(Bias):
    """One learned number for each head and each bucket of distances, as in T5: fine near by, coarse far away.

    Parameters
    ----------
    parameter : floating array, ``buckets H``
        The learned table.
    bidirectional : bool
        Whether half of the buckets are for keys behind the query; else those share the bucket of distance 0.
    max_distance : int
        From here on all distances share the last bucket.

    References
    ----------
    Raffel et al. (2020), "Exploring the limits of transfer learning", https://arxiv.org/abs/1910.10683.
    """

    parameter: Array
    bidirectional: bool = True
    max_distance: int = 128
    uses_positions = True
    can_mask = False
    by_distance = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameter", _floating(self.parameter, "the table of relative positions"))

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless the table has a column for each head."""
        shape = tuple(self.parameter.shape)
        if len(shape) != 2 or shape[1] not in (1, layout.heads):
            raise RegardError(f"the table of relative positions must be buckets × {layout.heads} heads, got {shape}")
        self._buckets(layout.key_indices(slice(0, 0)))

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return the number of each head for the bucket of each cell."""
        buckets = self._buckets(
            layout.key_indices(cols) - (layout.query_indices(rows) + layout.resolve_offset())
        )  # R C, or ... 1 R C
        numbers = layout.xp.take(_computed(self.parameter), layout.xp.reshape(buckets, (-1,)), axis=0)
        numbers = layout.xp.moveaxis(
            layout.xp.reshape(numbers, (*buckets.shape, self.parameter.shape[1])), -1, -3
        )  # ... H R C
        return _for_shape(numbers if buckets.ndim == 2 else numbers[..., 0, :, :, :], layout)

    def gradient(self, layout: ScoreLayout, rows: slice, cols: slice, d_tile: Array) -> Array:
        """Return the sum of the gradients of the cells in each bucket."""
        xp, heads = layout.xp, self.parameter.shape[1]
        by_distance = _diagonal_sums(d_tile)[..., None, :]  # ... H 1 R+C-1: all cells of a distance share a bucket
        steps = xp.arange(by_distance.shape[-1], device=layout.device)[None, :]
        first = cols.start - (rows.stop - 1)
        buckets = self._buckets(steps + first - layout.resolve_offset())  # 1 R+C-1, or ... 1 1 R+C-1
        sums = [
            sum_to_shape(xp.where(buckets == b, by_distance, xp.zeros_like(by_distance)), (heads, 1, 1))[:, 0, 0]
            for b in range(self.parameter.shape[0])
        ]
        return xp.stack(sums)

    def _buckets(self, relative: Array) -> Array:
        return relative_position_buckets(
            relative,
            bidirectional=self.bidirectional,
            num_buckets=int(self.parameter.shape[0]),
            max_distance=self.max_distance,
        )


@dataclass(frozen=True, eq=False)
class DistanceBias(Bias):
    """One number for each head and each distance from a query to a key: any bias that moves along with the text.

    Parameters
    ----------
    parameter : floating array, ``... H N`` or ``N``
        The numbers of N consecutive distances, position of the key − position of the query.
    min_distance : int
        The distance of the first of them.
    """

    parameter: Array
    min_distance: int
    uses_positions = True
    can_mask = False
    by_distance = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameter", _floating(self.parameter, "the numbers of distances"))

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless there is a number for each distance of the layout."""
        shape = tuple(self.parameter.shape)
        if not shape or not broadcasts(shape[:-1], layout.shape[:-2] or (1,)):
            raise RegardError(f"numbers of distances of shape {shape} are not those of scores {layout.shape}")
        offsets = bounds_of(layout.resolve_offset())
        if offsets is not None and 0 not in layout.shape[-2:]:
            least, most = -(layout.queries - 1) - offsets[1], layout.keys - 1 - offsets[0]
            if least < self.min_distance or most >= self.min_distance + shape[-1]:
                raise RegardError(
                    f"the numbers of distances are those from {self.min_distance} to {self.min_distance + shape[-1] - 1}, but "
                    f"scores {layout.shape} have distances from {least} to {most}"
                )

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return the number of each head for the distance of each cell."""
        xp, numbers = layout.xp, _computed(self.parameter)
        places = (
            layout.key_indices(cols) - (layout.query_indices(rows) + layout.resolve_offset()) - self.min_distance
        )  # R C, or ... 1 R C
        if places.ndim == 2:
            found = xp.take(numbers, xp.reshape(places, (-1,)), axis=-1)
            return _for_shape(xp.reshape(found, (*numbers.shape[:-1], *places.shape)), layout)
        lead = np.broadcast_shapes(tuple(numbers.shape[:-1]), tuple(places.shape[:-2]))
        numbers = xp.broadcast_to(numbers[..., None, :], (*lead, places.shape[-2], numbers.shape[-1]))
        return xp.take_along_axis(numbers, xp.broadcast_to(places, (*lead, *places.shape[-2:])), axis=-1)

    def gradient(self, layout: ScoreLayout, rows: slice, cols: slice, d_tile: Array) -> Array:
        """Return the sum of the gradients of the cells of each distance."""
        xp, sums = layout.xp, _diagonal_sums(d_tile)  # ... H R+C-1
        count = int(sums.shape[-1])
        distances = xp.arange(self.parameter.shape[-1], device=layout.device) + self.min_distance
        places = distances - (cols.start - (rows.stop - 1)) + layout.resolve_offset()
        places = places[..., 0, :] if places.ndim > 1 else places  # N, or ... 1 N
        lead = np.broadcast_shapes(tuple(sums.shape[:-1]), tuple(places.shape[:-1]))
        places = xp.broadcast_to(places, (*lead, places.shape[-1]))
        inside = xp.logical_and(places >= 0, places < count)
        sums = xp.take_along_axis(
            xp.broadcast_to(sums, (*lead, count)), xp.where(inside, places, xp.zeros_like(places)), axis=-1
        )
        return sum_to_shape(xp.where(inside, sums, xp.zeros_like(sums)), tuple(self.parameter.shape))


@dataclass(frozen=True, eq=False)
class DenseBias(Bias):
    """A floating array that broadcasts to ``... H T S``; −inf hides, as in a mask."""

    parameter: Array

    def __post_init__(self) -> None:
        array = as_array(self.parameter, "bias")
        if is_boolean(array):
            raise RegardError("bias is boolean, but it is added to the scores; to hide keys use mask=")
        if not is_floating(array):
            raise RegardError(f"bias must be floating, got {array.dtype}; convert it, or use mask= to hide keys")
        object.__setattr__(self, "parameter", array)

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless the array broadcasts to the scores."""
        check_broadcast(self.parameter, "bias", layout)

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        """Return the block of the array."""
        return _computed(take_broadcast(self.parameter, rows, cols))

    def gradient(self, layout: ScoreLayout, rows: slice, cols: slice, d_tile: Array) -> Array:
        """Return the block's gradient, summed over the axes along which the array is broadcast."""
        return sum_to_shape(d_tile, self.values(layout, rows, cols).shape)


class BiasGradAccumulator:
    """The gradient of a bias, gathered block by block.

    The blocks of a rule's parameter add up. Those of an array also add up along an axis that it broadcasts, and
    stand side by side along an axis that it has.
    """

    def __init__(self, bias: Bias, row_blocks: list[slice], col_blocks: list[slice]) -> None:
        self._bias = bias
        shape = (1, 1, *bias.parameter.shape)[-2:] if isinstance(bias, DenseBias) else (1, 1)
        self._rows = row_blocks if shape[0] != 1 else [ALL]
        self._cols = col_blocks if shape[1] != 1 else [ALL]
        self._blocks: dict[tuple[int, int], Array] = {}

    def add(self, layout: ScoreLayout, rows: tuple[int, slice], cols: tuple[int, slice], d_tile: Array) -> None:
        """Add the gradient of one block, ``... H R C``; rows and cols are its number and its extent."""
        key = (rows[0] if len(self._rows) > 1 else 0, cols[0] if len(self._cols) > 1 else 0)
        part = self._bias.gradient(layout, rows[1], cols[1], d_tile)
        self._blocks[key] = self._blocks[key] + part if key in self._blocks else part

    def total(self, dtype: Any) -> Array:
        """Return the gradient in the shape of the parameter and in `dtype`; blocks nobody looked at are zero."""
        parameter = self._bias.parameter
        xp = namespace(parameter)
        zeros = xp.astype(xp.zeros_like(parameter), compute_dtype(xp, parameter.dtype))
        if len(self._rows) == len(self._cols) == 1:
            total = self._blocks.get((0, 0), zeros)
        else:
            strips = []
            for i, rows in enumerate(self._rows):
                empty = {j: take_broadcast(zeros, rows, cols) for j, cols in enumerate(self._cols)}
                strips.append(concat([self._blocks.get((i, j), empty[j]) for j in empty], -1))
            total = concat(strips, -2)
        return xp.astype(xp.reshape(total, parameter.shape), dtype)


def as_bias(bias: Bias | Array) -> Bias:
    """Return an array as a bias, a rule as it is."""
    return bias if isinstance(bias, Bias) else DenseBias(bias)


def sum_to_shape(x: Array, shape: tuple[int, ...]) -> Array:
    """Return `x` summed over the axes along which an array of `shape` was broadcast to it."""
    if tuple(x.shape) == tuple(shape):
        return x
    xp = namespace(x)
    extra = x.ndim - len(shape)
    x = xp.sum(x, axis=tuple(range(extra))) if extra > 0 else xp.reshape(x, (1,) * -extra + tuple(x.shape))
    ones = tuple(i for i, (have, want) in enumerate(zip(x.shape, shape, strict=True)) if want == 1 and have != 1)
    return xp.sum(x, axis=ones, keepdims=True) if ones else x


def _diagonal_sums(x: Array) -> Array:
    """Return the sums of ``... R C`` along its diagonals, ``... R+C-1``, from the lower left corner to the upper right.

    Rows upside down and one behind the other, each with R zeros behind it and read again with one less: every row is
    then one place further right than the one before, and what was a diagonal is a column.
    """
    xp, rows, cols = namespace(x), x.shape[-2], x.shape[-1]
    x = xp.concat([xp.flip(x, axis=-2), xp.zeros((*x.shape[:-1], rows), dtype=x.dtype, device=device(x))], axis=-1)
    x = xp.reshape(x, (*x.shape[:-2], rows * (cols + rows)))[..., : rows * (cols + rows - 1)]
    return xp.sum(xp.reshape(x, (*x.shape[:-1], rows, cols + rows - 1)), axis=-2)


def _distance(layout: ScoreLayout, rows: Index, cols: Index) -> Array:
    return layout.xp.abs(layout.key_indices(cols) - (layout.query_indices(rows) + layout.resolve_offset()))


def _for_shape(tile: Array, layout: ScoreLayout) -> Array:
    """Return ``H R C`` as ``R C`` where the scores have no axis of heads."""
    return tile[0, ...] if len(layout.shape) == 2 and tile.ndim == 3 else tile


def _floating(parameter: Array, name: str) -> Array:
    array = as_array(parameter, name)
    if not is_floating(array):
        raise RegardError(f"{name} must be floating, got {array.dtype}")
    return array


def _computed(x: Array) -> Array:
    xp = namespace(x)
    return xp.astype(x, compute_dtype(xp, x.dtype), copy=False)
