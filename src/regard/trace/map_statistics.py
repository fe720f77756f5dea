"""Statistics of an attention map, in memory that grows with the number of tokens: by the kernel, or block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TypeAlias, get_args

import numpy as np

from regard.functional.arrays import Array
from regard.functional.blocks import block_sizes, nonempty_blocks, spans
from regard.functional.blockwise import softmax_stats
from regard.functional.inputs import AttentionInputs
from regard.functional.native import map as kernel_map
from regard.functional.native.map import Cells, Pooling
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.scores import BlockScores, block_scores

__all__ = [
    "POOLINGS",
    "BlockStatistics",
    "KernelStatistics",
    "MapStatistics",
    "Pooling",
    "equal_cells",
    "statistics_of",
]

POOLINGS: tuple[str, ...] = get_args(Pooling)
"""The ways in which the weights of a cell of an overview become one number."""

MAX_KERNEL_TOP = 256
"""The largest k of `top` in the kernel, which inserts weights one by one."""

_CELLS_PER_CHECK = 128  # rows of an overview between two cancel checks


def statistics_of(p: AttentionInputs, stats: SoftmaxStats | None = None) -> MapStatistics:
    """Return the statistics of a map: by the kernel where it can, with its row `stats` if they are computed already."""
    compiled = kernel_map.native_map_inputs(p)
    return BlockStatistics(p) if compiled is None else KernelStatistics(p, compiled, stats)


class KernelStatistics:
    """Statistics by the compiled kernel: scores in the precision of the inputs, sums in float64."""

    by_kernel = True

    def __init__(self, inputs: AttentionInputs, compiled: AttentionInputs, stats: SoftmaxStats | None) -> None:
        self._inputs, self._compiled = inputs, compiled
        if stats is not None:
            self.stats = stats

    @cached_property
    def stats(self) -> SoftmaxStats:
        """Maximum and sum of each row of the kernel's scores, in its precision."""
        return kernel_map.native_softmax_stats(self._compiled)

    @cached_property
    def exact_stats(self) -> SoftmaxStats:
        """Maximum and sum of each row in float64, independent of the kernel's precision: what a file stores."""
        layout = self._inputs.layout
        found = kernel_map.native_softmax_stats(kernel_map.upcast_for_kernel(self._inputs))
        return SoftmaxStats(*(layout.xp.asarray(x, device=layout.device) for x in found))

    def entropy(self) -> Array:
        """Return −Σ w log w of each row, ``... H T``."""
        return kernel_map.row_statistics(self._compiled, self.stats, entropy=True).entropy

    def distance(self) -> Array:
        """Return Σ w |i − j| / Σ w of each row, ``... H T``."""
        return kernel_map.row_statistics(self._compiled, self.stats, mean_distance=True).mean_distance

    def received(self) -> Array:
        """Return Σ w of each column, ``... H S``."""
        return kernel_map.column_sums(self._compiled, self.stats)

    def top(self, k: int) -> tuple[Array, Array]:
        """Return the k largest weights of each row and their keys, ``... H T k``."""
        if k > MAX_KERNEL_TOP:
            blocks = BlockStatistics(self._inputs)
            blocks.exact_stats = self.exact_stats
            return blocks.top(k)
        found, layout = kernel_map.row_statistics(self._compiled, self.stats, top=k), self._inputs.layout
        return found.top_weights, layout.xp.astype(found.top_keys, layout.key_indices(slice(0, 0)).dtype)

    def pooled(self, row_cells: Cells, col_cells: Cells, how: Pooling, check: Callable[[], None]) -> Array:
        """Return the maximum or the sum of the weights of each cell, ``... H P Q``; stores `stats` on the way."""
        parts, row_stats = [], []
        for start in range(0, len(row_cells), _CELLS_PER_CHECK):
            check()
            cells = row_cells[start : start + _CELLS_PER_CHECK]
            part, part_stats = kernel_map.pooled_map(self._compiled, cells, col_cells, how)
            parts.append(part)
            row_stats.append(part_stats)
        self.stats = SoftmaxStats(*(np.concatenate(x, axis=-2) for x in zip(*row_stats, strict=True)))
        return self._inputs.layout.xp.concat(parts, axis=-2)


class BlockStatistics:
    """Statistics from blocks of weights, in the widest floats of the arrays' library."""

    by_kernel = False

    def __init__(self, inputs: AttentionInputs) -> None:
        self._inputs = inputs.upcast()
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

    def entropy(self) -> Array:
        """Return −Σ w log w of each row, ``... H T``."""
        xp, parts = self._xp, []
        for rows, blocks in self._row_blocks():
            total = self._zeros(rows.stop - rows.start)
            for _, _, weights in blocks:
                total = total - xp.sum(weights * xp.log(xp.where(weights > 0, weights, 1.0)), axis=-1)
            parts.append(total)
        return xp.concat(parts, axis=-1)

    def distance(self) -> Array:
        """Return Σ w |i − j| / Σ w of each row, ``... H T``."""
        xp, layout, parts = self._xp, self._layout, []
        for rows, blocks in self._row_blocks():
            total = mass = self._zeros(rows.stop - rows.start)
            for cols, _, weights in blocks:
                away = xp.abs(layout.key_indices(cols) - (layout.query_indices(rows) + layout.resolve_offset()))
                total = total + xp.sum(weights * xp.astype(away, weights.dtype), axis=-1)
                mass = mass + xp.sum(weights, axis=-1)
            parts.append(total / xp.where(mass == 0, 1.0, mass))
        return xp.concat(parts, axis=-1)

    def received(self) -> Array:
        """Return Σ w of each column, ``... H S``."""
        xp = self._xp
        sums: dict[int, Array] = {}
        for _, blocks in self._row_blocks():
            for cols, _, weights in blocks:
                part = xp.sum(weights, axis=-2)
                sums[cols.start] = sums[cols.start] + part if cols.start in sums else part
        keys = spans(self._layout.keys, block_sizes(self._inputs)[1])
        return xp.concat([sums.get(span.start, self._zeros(span.stop - span.start)) for span in keys], axis=-1)

    def top(self, k: int) -> tuple[Array, Array]:
        """Return the k largest weights of each row and their keys, ``... H T k``."""
        xp, layout, parts = self._xp, self._layout, []
        dtype, device = self._inputs.q.dtype, layout.device
        for rows, blocks in self._row_blocks():
            lead = (*layout.shape[:-2], rows.stop - rows.start)
            best = xp.full((*lead, k), -1.0, dtype=dtype, device=device)
            keys = xp.full((*lead, k), -1, dtype=layout.key_indices(slice(0, 0)).dtype, device=device)
            for cols, block, weights in blocks:
                if block.mask is not None:
                    weights = xp.where(block.mask, weights, -1.0)
                best = xp.concat([best, xp.broadcast_to(weights, (*lead, weights.shape[-1]))], axis=-1)
                keys = xp.concat(
                    [keys, xp.broadcast_to(layout.key_indices(cols), (*lead, cols.stop - cols.start))], axis=-1
                )
                order = xp.argsort(-best, axis=-1, stable=True)[..., :k]
                best, keys = (xp.take_along_axis(x, order, axis=-1) for x in (best, keys))
            parts.append((xp.where(best < 0, 0.0, best), xp.where(best < 0, -1, keys)))
        weights, keys = (xp.concat(x, axis=-2) for x in zip(*parts, strict=True))
        return weights, keys

    def pooled(self, row_cells: Cells, col_cells: Cells, how: Pooling, check: Callable[[], None]) -> Array:
        """Return the maximum or the sum of the weights of each cell, ``... H P Q``."""
        xp = self._xp
        join, reduce = (xp.maximum, xp.max) if how == "max" else (xp.add, xp.sum)
        overview: dict[int, Array] = {}
        for rows, blocks in self._row_blocks():
            check()
            inside = _inside(row_cells, rows)
            columns: dict[int, Array] = {}
            for cols, _, weights in blocks:
                part = xp.stack([reduce(weights[..., a:b, :], axis=-2) for _, a, b in inside], axis=-2)
                for cell, a, b in _inside(col_cells, cols):
                    column = reduce(part[..., a:b], axis=-1)
                    columns[cell] = join(columns[cell], column) if cell in columns else column
            empty = self._zeros(len(inside))
            found = xp.stack([columns.get(cell, empty) for cell in range(len(col_cells))], axis=-1)
            for i, (cell, _, _) in enumerate(inside):
                row = found[..., i, :]
                overview[cell] = join(overview[cell], row) if cell in overview else row
        return xp.stack([overview[cell] for cell in range(len(row_cells))], axis=-2)

    def _row_blocks(self) -> Iterator[tuple[slice, Iterator[tuple[slice, BlockScores, Array]]]]:
        """Yield rows and, for each block of keys that they attend to, its columns, scores and weights."""
        layout = self._layout
        sizes = zip((layout.queries, layout.keys), block_sizes(self._inputs), strict=True)
        rows, cols = (spans(count, size) for count, size in sizes)
        for span in rows:
            yield span, self._blocks(span, cols)

    def _blocks(self, rows: slice, cols: list[slice]) -> Iterator[tuple[slice, BlockScores, Array]]:
        stats = self.stats.of(rows)
        for _, span, unmasked in nonempty_blocks(self._inputs, rows, cols):
            block = block_scores(self._inputs, rows, span, unmasked=unmasked)
            yield span, block, stats.weights(block.biased, self._xp)

    def _zeros(self, count: int) -> Array:
        """Return ``... H count`` zeros."""
        return self._xp.zeros((*self._layout.shape[:-2], count), dtype=self._inputs.q.dtype, device=self._layout.device)


MapStatistics: TypeAlias = "KernelStatistics | BlockStatistics"


def equal_cells(length: int, count: int) -> Cells:
    """Return `count` cells that cover `length` positions, equal but for one position."""
    count = min(count, length)
    return [(i * length // count, (i + 1) * length // count) for i in range(count)]


def _inside(cells: Cells, span: slice) -> list[tuple[int, int, int]]:
    """Return the cells that overlap `span`, with begin and end of the overlap, counted from the start of the span."""
    return [
        (number, max(a, span.start) - span.start, min(b, span.stop) - span.start)
        for number, (a, b) in enumerate(cells)
        if a < span.stop and b > span.start
    ]
