"""Batches of a training run: ids with what is to be predicted at each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.reprs import fields_repr
from regard.models.batch import Tokenizer, make_batch

IGNORED = -100


@dataclass(frozen=True, eq=False)
class Batch:
    """Texts as ids, and what is to be predicted at each position.

    Parameters
    ----------
    ids : integer array, ``B T``
        For an encoder-decoder the source, ``B S``.
    targets : integer array, ``B T``
        −100 where nothing is predicted, as at padding.
    mask : boolean array in the shape of `ids`, optional
        True where there is text, for a model that looks ahead; padding after a text changes nothing for a decoder.
    """

    ids: np.ndarray
    targets: np.ndarray
    mask: np.ndarray | None = None

    __repr__ = fields_repr

    @property
    def num_targets(self) -> int:
        """How many positions count."""
        return int((self.targets != IGNORED).sum())


Batches: TypeAlias = Iterable[Any] | Callable[[int], Any]
"""What `train` takes: an iterable of batches, or a function from the number of a batch, from 0, to the batch."""


def as_batch(item: Any, tokenizer: Tokenizer, max_length: int) -> Batch:
    """Return an item of `Batches` as a batch.

    Of ids ``B T`` and of texts, each token predicts the next. A pair is ids and targets.

    Raises
    ------
    RegardError
        It is none of these, or its sequences are longer than the model permits.
    """
    batch = _checked(_as_batch(item, tokenizer, max_length))
    if batch.ids.ndim != 2 or batch.targets.shape != batch.ids.shape:
        raise RegardError(
            f"ids and targets of a batch are B T each, got the shapes {batch.ids.shape} and {batch.targets.shape}"
        )
    _check_length(batch.ids, max_length)
    return batch


def as_pairs(item: Any, tokenizer: Tokenizer, max_length: int) -> Batch:
    """Return a pair of sources and targets, each ids ``B T`` or texts, as a batch.

    Raises
    ------
    RegardError
        It is not a pair; the two differ in number; or one is longer than the model permits.
    """
    if isinstance(item, Batch):
        batch = item
    elif isinstance(item, tuple) and len(item) == 2:
        (ids, mask), (target_ids, target_mask) = (_ids_and_mask(part, tokenizer, max_length) for part in item)
        targets = target_ids if target_mask is None else np.where(target_mask, target_ids, IGNORED)
        batch = Batch(ids, targets, mask)
    else:
        raise RegardError(f"a batch of an encoder-decoder is a Batch or (sources, targets), got {type(item).__name__}")
    if batch.ids.ndim != 2 or batch.targets.ndim != 2 or len(batch.ids) != len(batch.targets):
        raise RegardError(
            f"sources are B S and targets B T, got the shapes {batch.ids.shape} and {batch.targets.shape}"
        )
    batch = _checked(batch)
    for x in (batch.ids, batch.targets):
        _check_length(x, max_length)
    return batch


def _checked(batch: Batch) -> Batch:
    """Return a batch as arrays; an error for a mask that does not fit the ids."""
    ids, targets = np.asarray(batch.ids), np.asarray(batch.targets)
    mask = None if batch.mask is None else np.asarray(batch.mask)
    if mask is not None and (mask.shape != ids.shape or mask.dtype != bool):
        raise RegardError(
            f"the mask of a batch is booleans in the shape of ids, {ids.shape}, got {mask.dtype} {mask.shape}"
        )
    return Batch(ids, targets, mask)


def _ids_and_mask(part: Any, tokenizer: Tokenizer, max_length: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return ids, ``B T``, and where there is text, None where all is."""
    if isinstance(part, np.ndarray):
        return part, None
    made = make_batch(part, tokenizer, max_length=max_length, name="training")
    return made.ids, None if made.mask is None else made.mask[:, 0, 0]


def _check_length(ids: np.ndarray, max_length: int) -> None:
    length = ids.shape[1]
    if length > max_length:
        raise RegardError(f"a batch has sequences of {length} tokens, and the model permits {max_length}: shorten them")


def _as_batch(item: Any, tokenizer: Tokenizer, max_length: int) -> Batch:
    if isinstance(item, Batch):
        return item
    if isinstance(item, tuple) and len(item) == 2 and all(isinstance(x, np.ndarray) for x in item):
        return Batch(*item)
    if isinstance(item, np.ndarray) and item.ndim == 2 and item.dtype.kind in "iu" and item.shape[1] > 1:
        return Batch(item[:, :-1], item[:, 1:])
    if isinstance(item, str | list | tuple):
        made = make_batch(item, tokenizer, max_length=max_length + 1, name="training")
        mask = np.ones(made.ids.shape, bool) if made.mask is None else made.mask[:, 0, 0]
        return Batch(made.ids[:, :-1], np.where(mask, made.ids, IGNORED)[:, 1:])
    raise RegardError(
        f"a batch is a Batch, ids B T of at least two tokens, (ids, targets), or a list of texts, got "
        f"{type(item).__name__}"
    )


def from_batch(batches: Batches, start: int) -> Iterator[Any]:
    """Return an iterator over the batches from a number on; those of an iterable before it are passed over."""
    if callable(batches):
        return map(batches, _count(start))
    return islice(iter(batches), start, None)


def _count(start: int) -> Iterator[int]:
    while True:
        yield start
        start += 1


def check_batches(batches: Any) -> None:
    """Raise RegardError unless batches can be drawn."""
    if not callable(batches) and (isinstance(batches, str) or not isinstance(batches, Iterable)):
        raise RegardError(f"batches must be an iterable of batches or a function of their number, got {batches!r:.80}")
