"""Some heads and batch entries of a map: its grid, its arrays, and the rules by which its scores become weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard._typing import Array
from regard.functional._arrays import namespace
from regard.functional._bias import Bias, DenseBias
from regard.functional._grid import Grid, Index
from regard.functional._mask import Both, Cover, Dense, Intervals, Mask
from regard.functional._problem import Problem, heads


def part_of(p: Problem, index: Sequence[int | slice]) -> tuple[Problem, Part]:
    """Return the problem of some entries, one index for each axis before ``T S``, and how others are taken.

    An integer takes its axis away.
    """
    part = Part(p.grid, tuple(index))
    lead = zip(part.index, p.grid.shape[:-2], strict=True)
    shape = tuple(len(range(size)[i]) for i, size in lead if isinstance(i, slice))
    offset = p.grid.offset()
    grid = replace(
        p.grid, shape=(*shape, *p.grid.shape[-2:]), offsets=None if isinstance(offset, int) else part.of(offset)
    )
    problem = replace(
        p,
        q=part.of(p.q),
        k=part.of_keys(p.k),
        grid=grid,
        mask=None if p.mask is None else part.of_mask(p.mask),
        bias=None if p.bias is None else part.of_bias(p.bias),
        sinks=None if p.sinks is None else part.of(p.sinks),
    )
    return problem, part


def is_part(p: Problem) -> bool:
    """Tell whether a problem is known only as a part of another, whose rules it asks."""
    return p.grid.offsets is not None or _asks(p.mask) or isinstance(p.bias, _PartOfBias)


def _asks(mask: Mask | None) -> bool:
    return _asks(mask.one) or _asks(mask.other) if isinstance(mask, Both) else isinstance(mask, _PartOfMask)


@dataclass(frozen=True, eq=False)
class Part:
    """Some entries of the axes before ``T S`` of a grid, and how to take them from what broadcasts to it."""

    grid: Grid
    index: tuple[Any, ...]

    def of(self, x: Array) -> Array:
        """Return the entries of an array that broadcasts to ``... H`` and two more axes."""
        x = namespace(x).reshape(x, (1,) * (len(self.index) + 2 - x.ndim) + tuple(x.shape))
        axes = zip(self.index, x.shape, self.grid.shape[:-2], strict=False)
        return x[(*(_of_one(i, full) if size == 1 else i for i, size, full in axes), ...)]

    def of_keys(self, k: Array) -> Array:
        """Return the entries of keys ``... G S D``, a row of heads for each query head that is taken."""
        xp, groups, query_heads = namespace(k), heads(k), self.grid.heads
        if groups in (1, query_heads):
            return self.of(k)
        if isinstance(self.index[-1], int):
            shared = self.index[-1] * groups // query_heads
            return Part(self.grid, (*self.index[:-1], shared)).of(k)
        chosen = [h * groups // query_heads for h in range(query_heads)[self.index[-1]]]
        k = xp.take(k, xp.asarray(np.asarray(chosen, dtype=np.int64), device=self.grid.device), axis=-3)
        return Part(self.grid, (*self.index[:-1], slice(None))).of(k)

    def of_mask(self, mask: Mask) -> Mask:
        """Return a mask of the grid for the entries."""
        if isinstance(mask, Both):
            return Both(self.of_mask(mask.one), self.of_mask(mask.other))
        return Dense(self.of(mask.array)) if isinstance(mask, Dense) else _PartOfMask(mask, self)

    def of_bias(self, bias: Bias) -> Bias:
        """Return a bias of the grid for the entries."""
        return DenseBias(self.of(bias.parameter)) if isinstance(bias, DenseBias) else _PartOfBias(bias, self)


@dataclass(frozen=True, eq=False)
class _PartOfMask(Mask):
    """A mask, for some heads and batch entries of the grid that it was made for."""

    mask: Mask
    part: Part

    def allows(self, grid: Grid, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        return self.part.of(self.mask.allows(self.part.grid, rows, cols))

    def cover(self, grid: Grid, rows: slice, cols: slice) -> Cover:  # noqa: ARG002
        return self.mask.cover(self.part.grid, rows, cols)

    def intervals(self, grid: Grid) -> Intervals | None:  # noqa: ARG002
        whole = self.mask.intervals(self.part.grid)
        return None if whole is None else Intervals(*(self.part.of(x[..., None])[..., 0] for x in whole))


@dataclass(frozen=True, eq=False)
class _PartOfBias(Bias):
    """A bias, for some heads and batch entries of the grid that it was made for."""

    bias: Bias
    part: Part

    @property
    def hides(self) -> bool:  # type: ignore[override]
        return self.bias.hides

    @property
    def by_distance(self) -> bool:  # type: ignore[override]
        return self.bias.by_distance

    def tile(self, grid: Grid, rows: Index, cols: Index) -> Array:  # noqa: ARG002
        return self.part.of(self.bias.tile(self.part.grid, rows, cols))


def _of_one(index: int | slice, full: int) -> int | slice:
    """Return the index into an axis of length 1 that is broadcast to `full`."""
    if not isinstance(index, slice):
        return 0
    return slice(None) if range(full)[index] else slice(0, 0)
