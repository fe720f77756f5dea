"""Dropout of attention weights, from an explicit generator and the same for every cell however it is computed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.functional.score_layout import Index, ScoreLayout


@dataclass(frozen=True)
class Dropout:
    """Which weights are set to zero, so that the others can be made larger by as much.

    Whether a cell is dropped depends on the seed and the number of the cell alone, so that the direct path, any
    blocks of the blockwise path and the gradients drop the same ones, and n² draws are never held.

    Parameters
    ----------
    rate : float
        The share of weights that are dropped, 0 ≤ rate < 1.
    seed : int
        64 bits.

    References
    ----------
    Srivastava et al. (2014), "Dropout"; Steele, Lea and Flood (2014), "Fast splittable pseudorandom number
    generators" (the mixing of the bits).
    """

    rate: float
    seed: int

    def factors(self, layout: ScoreLayout, rows: Index, cols: Index, dtype: Any) -> Array:
        """Return what to multiply the weights of a block with: 0, or 1 / (1 − rate); ``... H R C``."""
        lead = np.arange(math.prod(layout.shape[:-2]), dtype=np.uint64).reshape(*layout.shape[:-2], 1, 1)
        row, col = _numbers(rows, layout.queries), _numbers(cols, layout.keys)
        cell = (lead * np.uint64(layout.queries) + row[:, None]) * np.uint64(layout.keys) + col
        uniform = splitmix64(cell * np.uint64(0x9E3779B97F4A7C15) + np.uint64(self.seed)) >> np.uint64(11)
        kept = uniform >= np.uint64(self.rate * 2**53)
        return layout.xp.asarray(kept / (1 - self.rate), dtype=dtype, device=layout.device)


def make_dropout(rate: float, rng: np.random.Generator | None) -> Dropout | None:
    """Return the dropout for one call, with a seed drawn from `rng`; None for a rate of 0."""
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.floating) or not 0 <= rate < 1:
        raise RegardError(f"dropout must be a share from 0 up to but not 1, got {rate!r}")
    if rate == 0:
        return None
    if not isinstance(rng, np.random.Generator):
        raise RegardError("dropout draws from an explicit generator; give rng=numpy.random.default_rng(seed)")
    return Dropout(float(rate), int(rng.integers(2**64, dtype=np.uint64)))


def _numbers(index: Index, length: int) -> np.ndarray:
    """Return the numbers of some queries or keys, wherever `index` lives, in NumPy, which mixes 64 bits."""
    if isinstance(index, slice):
        return np.arange(*index.indices(length), dtype=np.uint64)
    return np.asarray([int(index[i]) for i in range(index.shape[0])], dtype=np.uint64)


def splitmix64(bits: np.ndarray) -> np.ndarray:
    """Return 64 bits each of which depends on every bit given: the finaliser of SplitMix64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = bits ^ (bits >> np.uint64(31))
    return mixed
