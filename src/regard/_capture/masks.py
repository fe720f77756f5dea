"""Masks and biases of n² numbers brought down to rules, where they are ones of O(n) in disguise."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from regard.functional import Bias, DenseMask, DistanceBias, KeyRangeMask, Mask, SegmentMask
from regard.functional.biases import DenseBias
from regard.functional.masks import logical_and

_AT_ONCE = 1 << 18  # cells that are looked at together


class Rules(NamedTuple):
    """What a tensor that is given as a mask says: who sees what, and what is added to the scores."""

    mask: Mask | None
    bias: Bias | None


class Known:
    """The rules of tensors that were allowed before: all layers of a model are given the same one."""

    def __init__(self) -> None:
        self._rules: dict[int, tuple[Any, Rules]] = {}

    def of(self, tensor: Any, queries: int) -> Rules:
        """Return the rules of a mask or a bias, ``B 1 T S`` or what broadcasts to ``B H T S``; T is `queries`."""
        kept = self._rules.get(id(tensor))
        if kept is None or kept[0]() is not tensor:  # an id is given again once its object is gone
            kept = self._rules[id(tensor)] = weakref.ref(tensor), rules_of(tensor, queries)
        return kept[1]


def rules_of(tensor: Any, queries: int) -> Rules:
    """Return the rules of a boolean tensor, True = may look, or of one that is added to the scores.

    In the latter what is half as large as the type's lowest number, or lower, hides.
    """
    import torch

    tensor = tensor.detach()
    if tensor.dtype is torch.bool:
        return Rules(_mask_of(tensor, queries), None)
    lowest = torch.finfo(tensor.dtype).min / 2
    hides = any(bool((part <= lowest).any()) for part in _strips(tensor))
    mask = _mask_of(tensor, queries, lowest) if hides else None
    if not any(bool(((part != 0) & (part > lowest)).any()) for part in _strips(tensor)):
        return Rules(mask, None)
    return Rules(mask, _bias_of(torch.where(tensor > lowest, tensor, 0.0) if hides else tensor, queries))


def _mask_of(tensor: Any, queries: int, lowest: float | None = None) -> Mask | None:
    *lead, rows, keys = tensor.shape
    allowed = (lambda at: tensor[..., at, :]) if lowest is None else (lambda at: tensor[..., at, :] > lowest)
    return mask_of(allowed, tuple(lead), rows, keys, repeats=queries if rows == 1 else 1)


def mask_of(
    allowed: Callable[[slice], Any], lead: tuple[int, ...], queries: int, keys: int, *, repeats: int = 1
) -> Mask | None:
    """Return the rule of a mask whose rows `allowed` gives as boolean tensors ``... R S``; None where all is allowed.

    `repeats` is how many queries share a single row.
    Most masks let each query see keys that stand side by side, but for keys that nobody sees, padding. What does not
    is kept cell by cell.
    """
    import torch

    # Made once: small arrays kept between large ones that go split the heap, at worst into n² bytes of holes.
    begin, end, total = (np.zeros((*lead, queries), int) for _ in range(3))
    keys_seen = np.zeros((*lead, keys), bool)
    for rows in _spans(queries, keys):
        block = allowed(rows).expand(*lead, rows.stop - rows.start, keys)
        numbers = block.to(torch.uint8)
        count = torch.count_nonzero(block, -1)
        begin[..., rows] = torch.where(count > 0, numbers.argmax(-1), 0).cpu().numpy()
        end[..., rows] = torch.where(count > 0, keys - numbers.flip(-1).argmax(-1), 0).cpu().numpy()
        total[..., rows] = count.cpu().numpy()
        keys_seen |= block.any(-2).cpu().numpy()
    before = np.concatenate([np.zeros((*lead, 1), int), np.cumsum(keys_seen, axis=-1)], axis=-1)
    between = np.take_along_axis(before, end, -1) - np.take_along_axis(before, begin, -1)
    padded = not (end - begin == total).all()
    if not (between == total).all() or (padded and lead and (keys_seen != keys_seen[..., :1, :]).any()):
        return DenseMask(torch.cat([allowed(rows).cpu() for rows in _spans(queries, keys)], -2).numpy())
    spans = (
        None
        if (begin == 0).all() and (end == keys).all()
        else KeyRangeMask(*(np.repeat(_common(x), repeats, -1) for x in (begin, end)))
    )
    there = SegmentMask(
        np.ones(queries * repeats, int), _common(keys_seen[..., 0, :] if lead else keys_seen).astype(int)
    )
    return logical_and(spans, there if padded else None)


def _bias_of(tensor: Any, length: int) -> Bias:
    """Return the rule of numbers that are added to scores, ``B H T S``."""
    import torch

    *_, queries, keys = tensor.shape
    if queries != length:
        return DenseBias(_to_numpy(tensor))
    for rows in _spans(queries - 1, keys):
        below = slice(rows.start + 1, rows.stop + 1)
        if not torch.equal(tensor[..., below, 1:], tensor[..., rows, :-1]):
            return DenseBias(_to_numpy(tensor))
    # from the last query's first key, the farthest behind, to the first query's last key
    numbers = torch.cat([tensor[..., 1:, 0].flip(-1), tensor[..., 0, :]], -1)
    return DistanceBias(_common(_to_numpy(numbers), keep=1), 1 - keys)


def _strips(tensor: Any) -> Iterator[Any]:
    for rows in _spans(*tensor.shape[-2:]):
        yield tensor[..., rows, :]


def _spans(queries: int, keys: int) -> Iterator[slice]:
    height = max(1, _AT_ONCE // max(1, keys))
    for start in range(0, queries, height):
        yield slice(start, min(start + height, queries))


def _common(x: np.ndarray, *, keep: int = 0) -> np.ndarray:
    """Return `x` without those of its first axes along which nothing changes, the last and `keep` before it aside."""
    while x.ndim > 1 + keep and len(x) and (x == x[:1]).all():
        x = x[0]
    return x


def _to_numpy(tensor: Any) -> np.ndarray:
    import torch

    array: np.ndarray = (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).cpu().numpy()
    return array
