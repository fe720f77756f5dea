"""Statistics of the weights of an attention map. To add one, write it and its method here.

A statistic is defined once, by what a block of weights adds to it. Maps in memory, by the kernel or block by block, and
maps on many workers merge the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from regard._utils.validation import whole_number
from regard.functional.arrays import Array
from regard.functional.native import map as kernel_map

if TYPE_CHECKING:
    from regard.trace.map_sources import KernelSource

Parts: TypeAlias = tuple[Array, ...]
"""What some weights add to a statistic: arrays whose axis of queries or keys comes after those of the heads."""

MAX_KERNEL_TOP = 256
"""The largest k of `top` in the kernel, which inserts weights one by one."""


class Top(NamedTuple):
    """The largest weights of each row, largest first.

    Parameters
    ----------
    weights : array, ``... H T k``
    keys : integer array, ``... H T k``
        Positions of the keys; −1, with weight 0, where a query attends to fewer than k.
    """

    weights: Array
    keys: Array


@dataclass(frozen=True, eq=False)
class WeightBlock:
    """Weights of some rows and columns of a map.

    Parameters
    ----------
    xp : module
        The library of the arrays.
    weights : array, ``... H R C``
    mask : boolean array that broadcasts to them, or None
        Where the query attends to the key; None: everywhere.
    positions : integer array, ``R 1`` or with axes before these
        Of the queries among the keys.
    keys : integer array, ``1 C``
        Positions of the keys.
    first_key : int
        What is added to `positions` and `keys` for a block of a larger map.
    """

    xp: Any
    weights: Array
    mask: Array | None
    positions: Array
    keys: Array
    first_key: int = 0

    @property
    def distances(self) -> Array:
        """The distance of each query and key, which broadcasts to ``... H R C``."""
        return self.xp.astype(self.xp.abs(self.keys - self.positions), self.weights.dtype)

    def sum_over_keys(self, values: Array) -> Array:
        """Return the sum of values ``... H R C`` of each row, ``... H R``."""
        return self.xp.sum(values, axis=-1)


def _add(_: Any, one: Parts, other: Parts) -> Parts:
    return tuple(a + b for a, b in zip(one, other, strict=True))


@dataclass(frozen=True, kw_only=True)
class MapStatistic:
    """A statistic of each row or column of a map: of a block of its weights, how blocks merge, and what comes of it.

    Parameters
    ----------
    name : str
        Its own: tasks on a cluster and arrays on disk are called so.
    axis : {"queries", "keys"}
    of_block : function
        From a `WeightBlock`, which may have no rows or no columns, to what it adds.
    of_kernel : function, optional
        The same from a `KernelSource`, where the kernel computes it.
    merge : function
        From the library of the arrays and two parts to one; by default their sums.
    finish : function
        From the library and all parts to the arrays of the result.
    """

    name: str
    axis: Literal["queries", "keys"]
    of_block: Callable[[WeightBlock], Parts]
    of_kernel: Callable[[KernelSource], Parts] | None = None
    merge: Callable[[Any, Parts, Parts], Parts] = _add
    finish: Callable[[Any, Parts], Parts] = lambda _, parts: parts

    def of_nothing(self, xp: Any, lead: tuple[int, ...], count: int, dtype: Any, device: Any = None) -> Parts:
        """Return the parts of `count` rows or columns without weights, of heads of shape `lead`."""
        rows, columns = (count, 0) if self.axis == "queries" else (0, count)
        weights = xp.zeros((*lead, rows, columns), dtype=dtype, device=device)
        positions, keys = (xp.arange(n, device=device) for n in (rows, columns))
        return self.of_block(WeightBlock(xp, weights, None, positions[:, None], keys[None, :]))


# The statistics


def row_entropy(xp: Any, weights: Array) -> Array:
    """Return −Σ w log w of each row in nats, ``... R``, for weights ``... R C``."""
    return -xp.sum(weights * xp.log(xp.where(weights > 0, weights, 1.0)), axis=-1)


ENTROPY = MapStatistic(
    name="entropy",
    axis="queries",
    of_block=lambda block: (row_entropy(block.xp, block.weights),),
    of_kernel=lambda source: (kernel_map.row_statistics(*source.call, entropy=True).entropy,),
)


def _distance(block: WeightBlock) -> Parts:
    return block.sum_over_keys(block.weights * block.distances), block.sum_over_keys(block.weights)


def _kernel_distance(source: KernelSource) -> Parts:
    mean, share = kernel_map.row_statistics(*source.call, mean_distance=True).mean_distance, source.share()
    return mean * share, share


DISTANCE = MapStatistic(
    name="distance",
    axis="queries",
    of_block=_distance,
    of_kernel=_kernel_distance,
    finish=lambda xp, sums: (sums[0] / xp.where(sums[1] == 0, 1.0, sums[1]),),
)

RECEIVED = MapStatistic(
    name="received",
    axis="keys",
    of_block=lambda block: (block.xp.sum(block.weights, axis=-2),),
    of_kernel=lambda source: (kernel_map.column_sums(*source.call),),
)


def top_statistic(k: int) -> MapStatistic:
    """Return the statistic of the k largest weights of each row, and their keys."""
    return MapStatistic(
        name=f"top-{k}",
        axis="queries",
        of_block=partial(_top, k),
        of_kernel=partial(_kernel_top, k) if k <= MAX_KERNEL_TOP else None,
        merge=partial(_largest, k),
    )


def _top(k: int, block: WeightBlock) -> Parts:
    xp, weights = block.xp, block.weights
    keys = xp.broadcast_to(block.keys + block.first_key, weights.shape)
    if block.mask is not None:
        weights, keys = xp.where(block.mask, weights, 0.0), xp.where(block.mask, keys, -1)
    missing = (*weights.shape[:-1], max(0, k - weights.shape[-1]))
    device = None if xp.__name__ == "numpy" else weights.device
    none = xp.zeros(missing, dtype=weights.dtype, device=device), xp.full(missing, -1, dtype=keys.dtype, device=device)
    return _largest(k, xp, (weights, keys), none)


def _kernel_top(k: int, source: KernelSource) -> Parts:
    top, layout = kernel_map.row_statistics(*source.call, top=k), source.inputs.layout
    keys = layout.xp.astype(top.top_keys, layout.key_indices(slice(0, 0)).dtype)
    return top.top_weights, keys if not source.first_key else layout.xp.where(keys < 0, keys, keys + source.first_key)


def _largest(k: int, xp: Any, one: Parts, other: Parts) -> Parts:
    """Return the k largest weights of two parts and their keys; of equal ones those of the first part come first."""
    weights, keys = (xp.concat(pair, axis=-1) for pair in zip(one, other, strict=True))
    order = xp.argsort(-xp.where(keys < 0, -1.0, weights), axis=-1, stable=True)[..., :k]
    return tuple(xp.take_along_axis(x, order, axis=-1) for x in (weights, keys))


STORED = (ENTROPY, RECEIVED)
"""Those that a map on disk holds, under their names; a further one is another format, `stored_map.FORMAT`."""


class MapStatistics:
    """The statistics of a map: a subclass computes, or reads, any of them."""

    def statistic(self, statistic: MapStatistic) -> Parts:
        """Return the arrays of a statistic."""
        raise NotImplementedError

    def entropy(self) -> Array:
        """Return −Σ w log w of each row in nats, ``... H T``: 0 where one key has all weight, log S if uniform."""
        return self.statistic(ENTROPY)[0]

    def distance(self) -> Array:
        """Return the mean attention distance of each row in positions, ``... H T``; 0 for an empty row.

        Query i is at position i + `query_offset` of the map; an offset inside a mask or a bias does not count.
        """
        return self.statistic(DISTANCE)[0]

    def received(self) -> Array:
        """Return the sum of the weights of each key over all queries, ``... H S``."""
        return self.statistic(RECEIVED)[0]

    def top(self, k: int) -> Top:
        """Return the k largest weights of each row and their keys; of equal weights the first key comes first."""
        return Top(*self.statistic(top_statistic(whole_number("the number of keys of top", k, 1))))
