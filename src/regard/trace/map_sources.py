"""What statistics of an attention map are computed from, in memory that grows with the number of tokens.

The kernel, or blocks of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from regard.functional.arrays import Array
from regard.functional.blocks import block_sizes, nonempty_blocks, spans
from regard.functional.blockwise import softmax_stats
from regard.functional.inputs import AttentionInputs
from regard.functional.native import map as kernel_map
from regard.functional.native.map import Pooling
from regard.functional.nonfinite import nonzero
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.scores.stages import block_scores
from regard.trace.map_statistics import MapStatistic, Parts, WeightBlock
from regard.trace.overviews import cells_inside

__all__ = ["BlockSource", "KernelSource", "MapSource", "source_of"]

_CELLS_PER_CHECK = 128  # rows of an overview between two cancel checks


def source_of(
    p: AttentionInputs,
    stats: SoftmaxStats | None = None,
    *,
    whole: SoftmaxStats | None = None,
    first_key: int = 0,
) -> MapSource:
    """Return the source of a map: the kernel where it can.

    Parameters
    ----------
    p : AttentionInputs
        Of the map, or of some of its keys.
    stats : SoftmaxStats, optional
        Those that the kernel has computed already, over the keys of `p`.
    whole : SoftmaxStats, optional
        Those over all keys, where `p` has some of them.
    first_key : int
        The first of these.
    """
    compiled = kernel_map.native_map_inputs(p)
    if compiled is None:
        return BlockSource(p, whole, first_key)
    return KernelSource(p, compiled, stats, whole, first_key)


class _RowStats:
    """The softmax statistics of the rows of a source, each of which is computed when it is asked for."""

    @property
    def computed_stats(self) -> SoftmaxStats | None:
        """`stats`, if they are computed already."""
        stats: SoftmaxStats | None = vars(self).get("stats")
        return stats

    def take_stats(self, other: _RowStats, take: Callable[[Array], Array]) -> None:
        """Take what another source of the same kind has computed, of which this one's rows are a part."""
        for name in vars(other).keys() & {"stats", "exact_stats"}:
            setattr(self, name, SoftmaxStats(*map(take, getattr(other, name))))


class KernelSource(_RowStats):
    """The compiled kernel: scores in the precision of the inputs, sums in float64."""

    by_kernel = True

    def __init__(
        self,
        inputs: AttentionInputs,
        compiled: AttentionInputs,
        stats: SoftmaxStats | None,
        whole: SoftmaxStats | None,
        first_key: int,
    ) -> None:
        self.inputs, self.compiled, self.first_key, self._whole = inputs, compiled, first_key, whole
        if stats is not None:
            self.stats = stats

    @cached_property
    def stats(self) -> SoftmaxStats:
        """Maximum and sum of each row of the kernel's scores, in its precision."""
        return kernel_map.native_softmax_stats(self.compiled)

    @cached_property
    def exact_stats(self) -> SoftmaxStats:
        """Maximum and sum of each row in float64, independent of the kernel's precision: what a file stores."""
        layout = self.inputs.layout
        stats = kernel_map.native_softmax_stats(kernel_map.upcast_for_kernel(self.inputs))
        return SoftmaxStats(*(layout.xp.asarray(x, device=layout.device) for x in stats))

    @property
    def call(self) -> tuple[AttentionInputs, SoftmaxStats]:
        """The inputs of the kernel, and the stats that turn its scores into weights."""
        return self.compiled, self.stats if self._whole is None else self._whole

    def share(self) -> Array:
        """Return the sum of the weights of the source's keys in each row, ``... H T``; of all keys 1, or 0 of none."""
        layout = self.inputs.layout
        share = (self.stats.row_sum > 0).astype(np.float64)
        if self._whole is not None:
            share = self.stats.sum_from(self._whole.row_max, np) / nonzero(self._whole.row_sum, np)
        return layout.xp.asarray(share[..., 0], device=layout.device)

    def parts(self, statistic: MapStatistic) -> Parts:
        """Return what the weights add to a statistic."""
        if statistic.of_kernel is not None:
            return statistic.of_kernel(self)
        return BlockSource(self.inputs, self._whole or self.exact_stats, self.first_key).parts(statistic)

    def pooled(self, row_edges: np.ndarray, col_edges: np.ndarray, how: Pooling, check: Callable[[], None]) -> Array:
        """Return the maximum or the sum of the weights of each cell, ``... H P Q``; stores `stats` on the way."""
        if self._whole is not None:
            return BlockSource(self.inputs, self._whole).pooled(row_edges, col_edges, how, check)
        parts, row_stats = [], []
        for start in range(0, len(row_edges) - 1, _CELLS_PER_CHECK):
            check()
            edges = row_edges[start : start + _CELLS_PER_CHECK + 1]
            part, part_stats = kernel_map.pooled_map(self.compiled, edges, col_edges, how)
            parts.append(part)
            row_stats.append(part_stats)
        self.stats = SoftmaxStats(*(np.concatenate(x, axis=-2) for x in zip(*row_stats, strict=True)))
        return self.inputs.layout.xp.concat(parts, axis=-2)


class BlockSource(_RowStats):
    """Blocks of weights, in the widest floats of the arrays' library."""

    by_kernel = False

    def __init__(self, inputs: AttentionInputs, whole: SoftmaxStats | None = None, first_key: int = 0) -> None:
        self._inputs, self._whole, self._first_key = inputs.upcast(), whole, first_key
        self._layout, self._xp = inputs.layout, inputs.layout.xp

    @cached_property
    def stats(self) -> SoftmaxStats:
        """Maximum and sum of each row."""
        return softmax_stats(self._inputs, slice(0, self._layout.queries))

    @property
    def exact_stats(self) -> SoftmaxStats:
        """The same: everything is computed in the widest floats."""
        return self.stats

    @exact_stats.setter
    def exact_stats(self, stats: SoftmaxStats) -> None:
        self.stats = stats

    def parts(self, statistic: MapStatistic) -> Parts:
        """Return what the weights add to a statistic."""
        layout, xp, lead = self._layout, self._xp, self._layout.shape[:-2]
        merged: dict[int, Parts] = {}  # by the first row or column
        for rows, blocks in self._row_blocks():
            for cols, block in blocks:
                start, part = (rows if statistic.axis == "queries" else cols).start, statistic.of_block(block)
                merged[start] = statistic.merge(xp, merged[start], part) if start in merged else part
        lengths = {"queries": layout.queries, "keys": layout.keys}
        size = block_sizes(self._inputs)[statistic.axis == "keys"]
        ordered = [
            merged[span.start]
            if span.start in merged
            else statistic.of_nothing(xp, lead, span.stop - span.start, self._inputs.q.dtype, layout.device)
            for span in spans(lengths[statistic.axis], size)
        ]
        return tuple(xp.concat(arrays, axis=len(lead)) for arrays in zip(*ordered, strict=True))

    def pooled(self, row_edges: np.ndarray, col_edges: np.ndarray, how: Pooling, check: Callable[[], None]) -> Array:
        """Return the maximum or the sum of the weights of each cell, ``... H P Q``."""
        xp = self._xp
        join, reduce = (xp.maximum, xp.max) if how == "max" else (xp.add, xp.sum)
        overview: dict[int, Array] = {}
        for rows, blocks in self._row_blocks():
            check()
            first_row, edges = cells_inside(row_edges, rows)
            inside = list(pairwise(edges.tolist()))
            columns: dict[int, Array] = {}
            for cols, block in blocks:
                part = xp.stack([reduce(block.weights[..., a:b, :], axis=-2) for a, b in inside], axis=-2)
                first, edges = cells_inside(col_edges, cols)
                for cell, (a, b) in enumerate(pairwise(edges.tolist()), first):
                    column = reduce(part[..., a:b], axis=-1)
                    columns[cell] = join(columns[cell], column) if cell in columns else column
            shape = (*self._layout.shape[:-2], len(inside))
            empty = xp.zeros(shape, dtype=self._inputs.q.dtype, device=self._layout.device)
            pooled_rows = xp.stack([columns.get(cell, empty) for cell in range(len(col_edges) - 1)], axis=-1)
            for i in range(len(inside)):
                cell, row = first_row + i, pooled_rows[..., i, :]
                overview[cell] = join(overview[cell], row) if cell in overview else row
        return xp.stack([overview[cell] for cell in range(len(row_edges) - 1)], axis=-2)

    def _row_blocks(self) -> Iterator[tuple[slice, Iterator[tuple[slice, WeightBlock]]]]:
        """Yield rows and, for each block of keys that they attend to, its columns and weights."""
        layout = self._layout
        sizes = zip((layout.queries, layout.keys), block_sizes(self._inputs), strict=True)
        rows, cols = (spans(count, size) for count, size in sizes)
        for span in rows:
            yield span, self._blocks(span, cols)

    def _blocks(self, rows: slice, cols: list[slice]) -> Iterator[tuple[slice, WeightBlock]]:
        layout, xp = self._layout, self._xp
        stats = (self._whole or self.stats).rows(rows)
        positions = layout.query_indices(rows) + layout.resolve_offset()
        for _, span, unmasked in nonempty_blocks(self._inputs, rows, cols):
            block = block_scores(self._inputs, rows, span, unmasked=unmasked)
            shape = (*layout.shape[:-2], rows.stop - rows.start, span.stop - span.start)
            weights = xp.broadcast_to(stats.weights(block.biased, xp), shape)
            yield span, WeightBlock(xp, weights, block.mask, positions, layout.key_indices(span), self._first_key)


MapSource: TypeAlias = "KernelSource | BlockSource"
