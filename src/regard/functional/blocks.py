"""Blocks of a map: their size, and which of them the mask leaves."""

from __future__ import annotations

import math
from collections.abc import Iterator

from regard.functional.inputs import AttentionInputs
from regard.functional.masks.base import BlockKind
from regard.functional.scores.layout import Index

_BLOCK_SCORES = 2**20  # over all heads: a few arrays of this size stay in or near the caches
_SHORTEST, _LONGEST = 32, 1024


def block_sizes(p: AttentionInputs) -> tuple[int, int]:
    """Return how many queries and keys a block has: all of them for the reference."""
    if p.implementation == "reference":
        return max(p.layout.queries, 1), max(p.layout.keys, 1)
    size = _BLOCK_SCORES // max(1, math.prod(p.layout.shape[:-2]))
    rows = min(max(p.layout.queries, 1), _power_of_two(math.isqrt(size)))
    cols = min(max(p.layout.keys, 1), max(_LONGEST if rows < _SHORTEST else 0, _power_of_two(math.isqrt(size))))
    return rows, cols


def spans(length: int, size: int) -> list[slice]:
    """Return `length` positions as slices of at most `size`; one empty slice if there are none."""
    return [slice(start, min(start + size, length)) for start in range(0, max(length, 1), size)]


def block_kind(p: AttentionInputs, rows: Index, cols: slice) -> BlockKind:
    """Return whether the mask leaves all, some or none of a block."""
    if p.mask is None:
        return BlockKind.FULL
    return p.mask.block_kind(p.layout, rows, cols) if isinstance(rows, slice) else BlockKind.PARTIAL


def nonempty_blocks(p: AttentionInputs, rows: Index, cols: list[slice]) -> Iterator[tuple[int, slice, bool]]:
    """Yield index and extent of the blocks of keys that `rows` attend to, and whether the mask leaves all of it."""
    for index, span in enumerate(cols):
        kind = block_kind(p, rows, span)
        if kind is not BlockKind.EMPTY and span.stop > span.start:
            yield index, span, kind is BlockKind.FULL


def _power_of_two(size: int) -> int:
    """Return the power of two at or below `size`, between the shortest and the longest block."""
    return min(_LONGEST, max(_SHORTEST, 1 << (max(size, 1).bit_length() - 1)))
