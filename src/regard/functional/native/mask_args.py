"""Masks and biases as the compiled kernel takes them.

The kernel takes key ranges, arrays, or a bias for each distance. Other masks and biases are evaluated for a strip of
queries at a time, so that n² numbers are never stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from regard.functional import native
from regard.functional.arrays import Array, compute_dtype
from regard.functional.biases.base import Bias, DenseBias
from regard.functional.blocks import spans
from regard.functional.inputs import AttentionInputs
from regard.functional.masks.base import DenseMask, KeyRanges, LogicalAnd, Mask
from regard.functional.masks.block_mask import BLOCK_KEYS, BLOCK_QUERIES, BlockMask
from regard.functional.native.convert import aligned, compute_type, to_kernel
from regard.functional.nonfinite import saturate_cast
from regard.functional.scores.layout import ALL, Index, take_broadcast

_STRIP_SCORES = 2**22  # that a mask or a bias is evaluated for at a time
_BLOCK = (BLOCK_QUERIES, BLOCK_KEYS)


@dataclass(frozen=True)
class KernelMaskArgs:
    """Masks and biases in the kernel's form."""

    p: AttentionInputs
    key_ranges: KeyRanges | None  # that each query attends to, if the other masks allow it
    masks: list[np.ndarray]  # boolean, broadcasting to ... H T S
    block_mask: BlockMask | None
    strip_masks: list[Mask]  # to evaluate for a strip of queries at a time
    bias: np.ndarray | None  # broadcasts to ... H T S
    distance_bias: np.ndarray | None  # ... H N, for each query − key position, from −(S − 1) on: −distance
    strip_bias: Bias | None  # to evaluate for a strip of queries at a time

    def strips(self) -> list[slice]:
        """Split the queries, so that a strip has a bounded number of scores."""
        queries = self.p.layout.queries
        return spans(queries, self.max_rows(slice(0, queries)))

    def max_rows(self, rows: Index) -> int:
        """Return how many of these queries one call takes."""
        count = rows.stop - rows.start if isinstance(rows, slice) else int(rows.shape[0])
        by_distance = self.distance_bias is not None and not isinstance(rows, slice)
        if self._in_strips or by_distance:
            scores_per_row = math.prod(self.p.layout.shape) // max(1, self.p.layout.queries)
            return max(1, _STRIP_SCORES // max(1, scores_per_row) // 64 * 64 or 64)
        return max(1, count)

    @property
    def _in_strips(self) -> bool:
        """Whether masks or biases are evaluated for a strip of queries at a time."""
        return bool(self.strip_masks) or self.strip_bias is not None or len(self.masks) > 1

    def count_blocks(self, rows: int, cols: int) -> dict[str, int]:
        """Return the number of full, partial and empty blocks of `rows` queries and `cols` keys."""
        queries, keys = self.p.layout.shape[-2:]
        every = -(-queries // rows) * -(-keys // cols)
        dense = bool(self.masks or self.strip_masks or (self.p.bias is not None and self.p.bias.can_mask))
        if self.block_mask is not None and self.key_ranges is None and not dense and (rows, cols) == _BLOCK:
            return self.block_mask.count_blocks()
        if self.key_ranges is None:
            dense = dense or self.block_mask is not None
            return {"full": 0 if dense else every, "partial": every if dense else 0, "empty": 0}
        first, last = (np.broadcast_to(x, np.broadcast_shapes(x.shape, (queries,))) for x in self.key_ranges)
        first, last = np.broadcast_arrays(first, last)
        starts = np.arange(0, queries, rows)
        begin, from_all = (how.reduceat(first, starts, axis=-1) for how in (np.minimum, np.maximum))
        end, to_all = (how.reduceat(last, starts, axis=-1) for how in (np.maximum, np.minimum))
        read = -(-np.maximum(end - begin, 0) // cols)
        whole = np.maximum(to_all - begin, 0) // cols - -(-np.maximum(from_all - begin, 0) // cols)
        heads = math.prod(first.shape[:-1])
        mean_read, mean_whole = round(read.sum() / heads), round(np.clip(whole, 0, read).sum() / heads)
        full = 0 if dense or self.block_mask is not None else mean_whole
        return {"full": full, "partial": mean_read - full, "empty": max(0, every - mean_read)}

    @property
    def memory(self) -> int:
        """Bytes of the arrays made for the kernel."""
        strip = _STRIP_SCORES if self._in_strips else 0
        itemsize = 1 if self.strip_bias is None else 1 + np.dtype(compute_type(self.p.dtype)).itemsize
        made = [*(self.key_ranges or ()), *([] if self.distance_bias is None else [self.distance_bias])]
        return sum(int(x.nbytes) for x in made) + strip * itemsize

    def arguments(self, rows: Index) -> dict[str, np.ndarray | None]:
        """Return the kernel's keyword arguments for some queries."""
        kwargs: dict[str, np.ndarray | None] = {}
        if self.key_ranges is not None:
            kwargs["key_begin"], kwargs["key_end"] = (_of_rows(x, rows, self.p.layout.queries) for x in self.key_ranges)
        mask = _all_of([take_broadcast(mask, rows, ALL) for mask in self.masks])
        layout = self.p.layout
        at = rows if isinstance(rows, slice) else layout.xp.asarray(rows, device=layout.device)
        strip_masks = list(self.strip_masks)
        if self.block_mask is not None and isinstance(rows, slice) and rows.start % BLOCK_QUERIES == 0:
            kwargs["mask_blocks"] = np.atleast_2d(self.block_mask.kernel_blocks(layout, rows))
            kwargs["mask_tiles"] = self.block_mask.tiles
        elif self.block_mask is not None:
            strip_masks.append(self.block_mask)
        for strip_mask in strip_masks:
            mask = _all_of([*([] if mask is None else [mask]), np.asarray(strip_mask.allows(layout, at, ALL))])
        if mask is not None:
            kwargs["mask"] = aligned(np.atleast_2d(mask)).view(np.uint8)
        bias = None if self.bias is None else take_broadcast(self.bias, rows, ALL)
        strip_bias = self.strip_bias if self.distance_bias is None or isinstance(rows, slice) else self.p.bias
        if strip_bias is not None:
            bias = _compute_bias(self.p, strip_bias.values(layout, at, ALL))
        if bias is not None:
            kwargs["bias"] = bias
        if self.distance_bias is not None and isinstance(rows, slice):
            kwargs["distance_bias"] = self.distance_bias[
                ..., rows.start : rows.stop + layout.keys - 1 + _block_queries()
            ]
        return kwargs


def kernel_mask_args(p: AttentionInputs) -> KernelMaskArgs:
    """Return the mask and the bias of a call in the kernel's form."""
    key_ranges, masks, block_mask, strip_masks = None, [], None, []
    for mask in _conjuncts(p.mask):
        ranges = mask.key_ranges(p.layout)
        if ranges is not None:
            key_ranges = ranges if key_ranges is None else key_ranges.intersect(ranges)
        elif isinstance(mask, DenseMask):
            masks.append(np.atleast_2d(np.asarray(mask.array)))
        elif isinstance(mask, BlockMask) and block_mask is None and p.v is not None:  # maps begin at any query
            block_mask = mask
        else:
            strip_masks.append(mask)
    if key_ranges is not None:
        key_ranges = KeyRanges(*(np.minimum(np.maximum(x, 0), p.layout.keys).astype(np.int32) for x in key_ranges))
    bias = distance_bias = strip_bias = None
    if isinstance(p.bias, DenseBias):
        bias = _compute_bias(p, p.bias.parameter)
    elif p.bias is not None and p.bias.by_distance:
        distance_bias = _distance_bias(p, p.bias)
    else:
        strip_bias = p.bias
    return KernelMaskArgs(p, key_ranges, masks, block_mask, strip_masks, bias, distance_bias, strip_bias)


def _conjuncts(mask: Mask | None) -> Iterator[Mask]:
    if isinstance(mask, LogicalAnd):
        yield from _conjuncts(mask.one)
        yield from _conjuncts(mask.other)
    elif mask is not None:
        yield mask


def _all_of(masks: list[np.ndarray]) -> np.ndarray | None:
    combined = None
    for mask in masks:
        combined = mask if combined is None else combined & mask
    return combined


def _of_rows(x: np.ndarray, rows: Index, count: int) -> np.ndarray:
    return x[..., rows] if x.shape[-1] == count and count > 1 else x


def _compute_bias(p: AttentionInputs, bias: Array) -> np.ndarray:
    """Return a bias in the compute dtype, saturated."""
    xp = p.layout.xp
    computed = xp.astype(bias, compute_dtype(xp, bias.dtype), copy=False)
    return np.atleast_2d(to_kernel(saturate_cast(computed, p.compute_dtype)))


def _distance_bias(p: AttentionInputs, bias: Bias) -> np.ndarray:
    """Return the bias of each distance, ``... H N``, from the last key and the first query on."""
    layout = p.layout
    if not layout.queries or not layout.keys:
        return np.zeros(max(0, layout.queries + layout.keys - 1 + _block_queries()), compute_type(p.dtype))
    row, column = (_compute_bias(p, bias.values(layout, *at)) for at in ((slice(0, 1), ALL), (ALL, slice(0, 1))))
    row = np.broadcast_to(row, (*row.shape[:-2], 1, layout.keys))[..., 0, ::-1]
    column = np.broadcast_to(column, (*column.shape[:-2], layout.queries, 1))[..., 1:, 0]
    beyond = np.zeros((*row.shape[:-1], _block_queries()), row.dtype)
    return np.concatenate([row, column, beyond], axis=-1)


def _block_queries() -> int:
    return int(native.kernel().BLOCK_QUERIES)
