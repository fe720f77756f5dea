"""Masks and biases given as n² numbers, converted to structured ones of O(n) where they have that structure."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from regard.functional import Bias, DenseMask, DistanceBias, KeyRangeMask, Mask, SegmentMask
from regard.functional.biases.base import DenseBias
from regard.functional.masks.base import logical_and
from regard.torch.extra import torch

_BLOCK_CELLS = 1 << 18  # cells that are read together


class MaskAndBias(NamedTuple):
    """What a tensor that transformers calls a mask holds: which keys are masked, and what is added to the scores."""

    mask: Mask | None
    bias: Bias | None


class MaskCache:
    """Converted tensors: all layers of a model get the same one. Threads may share it."""

    def __init__(self) -> None:
        self._converted: dict[tuple[int, int], tuple[Any, int, MaskAndBias]] = {}

    def convert(self, tensor: Any, queries: int) -> MaskAndBias:
        """Return the mask and bias of a tensor that broadcasts to ``B H T S``; T is `queries`.

        Converted once, as long as the tensor lives and is not written to. Inference tensors do not say that they were
        written to, and are converted each time.
        """
        if tensor.is_inference():
            return mask_and_bias(tensor, queries)
        key = id(tensor), queries
        entry = self._converted.get(key)
        if entry is None or entry[0]() is not tensor or entry[1] != tensor._version:  # ids are reused
            for other, (reference, *_) in list(self._converted.items()):
                if reference() is None:
                    self._converted.pop(other, None)
            entry = self._converted[key] = weakref.ref(tensor), tensor._version, mask_and_bias(tensor, queries)
        return entry[2]


def mask_and_bias(tensor: Any, queries: int) -> MaskAndBias:
    """Convert a boolean tensor, True: the query attends to the key, or one that is added to the scores.

    In the latter, half of the dtype's lowest number, or less, masks.
    """
    tensor = tensor.detach()
    if tensor.dtype is torch.bool:
        return MaskAndBias(_mask_of(tensor, queries), None)
    lowest = torch.finfo(tensor.dtype).min / 2
    has_mask = any(bool((part <= lowest).any()) for part in _row_blocks(tensor))
    mask = _mask_of(tensor, queries, lowest) if has_mask else None
    if not any(bool(((part != 0) & (part > lowest)).any()) for part in _row_blocks(tensor)):
        return MaskAndBias(mask, None)
    return MaskAndBias(mask, _bias_of(torch.where(tensor > lowest, tensor, 0.0) if has_mask else tensor, queries))


def _mask_of(tensor: Any, queries: int, lowest: float | None = None) -> Mask | None:
    *lead, rows, keys = tensor.shape
    block = (lambda at: tensor[..., at, :]) if lowest is None else (lambda at: tensor[..., at, :] > lowest)
    return mask_of(block, tuple(lead), rows, keys, repeats=queries if rows == 1 else 1)


def mask_of(
    mask_rows: Callable[[slice], Any], lead: tuple[int, ...], queries: int, keys: int, *, repeats: int = 1
) -> Mask | None:
    """Return a mask whose rows `mask_rows` returns as boolean tensors ``... R S``; None if nothing is masked.

    `repeats` is how many queries share a single row. Most masks are a range of keys for each query, minus padding: keys
    that are masked for every query. Any other is returned as a `DenseMask`.
    """
    # Allocated once: small arrays allocated between large temporary ones fragment the heap, at worst by n² bytes.
    begin, end, total = (np.zeros((*lead, queries), int) for _ in range(3))
    attended = np.zeros((*lead, keys), bool)
    for rows in _spans(queries, keys):
        block = mask_rows(rows).expand(*lead, rows.stop - rows.start, keys)
        numbers = block.to(torch.uint8)
        count = torch.count_nonzero(block, -1)
        begin[..., rows] = torch.where(count > 0, numbers.argmax(-1), 0).cpu().numpy()
        end[..., rows] = torch.where(count > 0, keys - numbers.flip(-1).argmax(-1), 0).cpu().numpy()
        total[..., rows] = count.cpu().numpy()
        attended |= block.any(-2).cpu().numpy()
    before = np.concatenate([np.zeros((*lead, 1), int), np.cumsum(attended, axis=-1)], axis=-1)
    between = np.take_along_axis(before, end, -1) - np.take_along_axis(before, begin, -1)
    padded = not (end - begin == total).all()
    if not (between == total).all() or (padded and lead and (attended != attended[..., :1, :]).any()):
        return DenseMask(torch.cat([mask_rows(rows).cpu() for rows in _spans(queries, keys)], -2).numpy())
    ranges = (
        None
        if (begin == 0).all() and (end == keys).all()
        else KeyRangeMask(*(np.repeat(_common(x), repeats, -1) for x in (begin, end)))
    )
    padding = SegmentMask(
        np.ones(queries * repeats, int), _common(attended[..., 0, :] if lead else attended).astype(int)
    )
    return logical_and(ranges, padding if padded else None)


def _bias_of(tensor: Any, length: int) -> Bias:
    """Return numbers that are added to scores, ``B H T S``, as a bias."""
    *_, queries, keys = tensor.shape
    if queries != length:
        return DenseBias(_to_numpy(tensor))
    for rows in _spans(queries - 1, keys):
        below = slice(rows.start + 1, rows.stop + 1)
        if not torch.equal(tensor[..., below, 1:], tensor[..., rows, :-1]):
            return DenseBias(_to_numpy(tensor))
    # from the distance of the last query to the first key, to that of the first query to the last key
    numbers = torch.cat([tensor[..., 1:, 0].flip(-1), tensor[..., 0, :]], -1)
    return DistanceBias(_common(_to_numpy(numbers), keep=1), 1 - keys)


def _row_blocks(tensor: Any) -> Iterator[Any]:
    for rows in _spans(*tensor.shape[-2:]):
        yield tensor[..., rows, :]


def _spans(queries: int, keys: int) -> Iterator[slice]:
    height = max(1, _BLOCK_CELLS // max(1, keys))
    for start in range(0, queries, height):
        yield slice(start, min(start + height, queries))


def _common(x: np.ndarray, *, keep: int = 0) -> np.ndarray:
    """Return `x` without leading axes along which it is constant; the last axis, and `keep` before it, stay."""
    while x.ndim > 1 + keep and len(x) and (x == x[:1]).all():
        x = x[0]
    return x


def _to_numpy(tensor: Any) -> np.ndarray:
    array: np.ndarray = (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).cpu().numpy()
    return array
