"""Masked words: what is hidden in a batch, for an encoder to predict it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from regard._utils.errors import RegardError
from regard.training.batches import IGNORED, Batch


def mask_words(
    ids: np.ndarray,
    rng: np.random.Generator,
    *,
    mask_id: int,
    vocab_size: int,
    special_ids: Iterable[int] = (),
    mask: np.ndarray | None = None,
    rate: float = 0.15,
) -> Batch:
    """Return a batch in which words are masked, and are to be predicted: one at least of each row, if it has any.

    Parameters
    ----------
    ids : integer array, ``B T``
    rng : Generator
    mask_id : int
        Of the mask, which 80% of the chosen tokens become; 10% become another token, 10% stay.
    vocab_size : int
    special_ids : iterable of int
        Tokens that are not words, such as those at the ends of a text.
    mask : boolean array, ``B T``, optional
        True where there is text.
    rate : float
        The share of tokens that are chosen.

    Raises
    ------
    RegardError
        An argument is invalid.

    References
    ----------
    Devlin et al. (2018), "BERT", https://arxiv.org/abs/1810.04805, section 3.1.
    """
    ids = np.asarray(ids)
    if ids.ndim != 2 or not ids.size or ids.dtype.kind not in "iu":
        raise RegardError(f"ids must be integers, B T, got {ids.dtype} with the shape {ids.shape}")
    if not 0 < rate <= 1:
        raise RegardError(f"rate must be above 0 and at most 1, got {rate!r}")
    ids = ids.astype(np.int64)
    is_word = ~np.isin(ids, list(special_ids))
    if mask is not None:
        mask = np.asarray(mask)
        if mask.shape != ids.shape or mask.dtype != bool:
            raise RegardError(f"mask must be booleans in the shape of ids, {ids.shape}, got {mask.dtype} {mask.shape}")
        is_word &= mask
    drawn, how = np.where(is_word, rng.random(ids.shape), np.inf), rng.random(ids.shape)
    is_target = (drawn < rate) | (drawn == drawn.min(-1, keepdims=True)) & is_word  # of a row without one, any
    changed = np.where(how < 0.8, mask_id, np.where(how < 0.9, rng.integers(0, vocab_size, ids.shape), ids))
    return Batch(np.where(is_target, changed, ids), np.where(is_target, ids, IGNORED), mask)
