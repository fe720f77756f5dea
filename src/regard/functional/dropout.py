"""Dropout of attention weights: explicit generator, and the same weights dropped by every implementation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array
from regard.functional.scores.layout import Index, ScoreLayout


@dataclass(frozen=True)
class Dropout:
    """Which weights are set to zero.

    Whether a weight is dropped depends on the seed and its index alone: every implementation, any block and the
    gradients drop the same ones, and n² random numbers are never stored.

    References
    ----------
    Srivastava et al. (2014), "Dropout"; Steele, Lea and Flood (2014), "Fast splittable pseudorandom number
    generators" (SplitMix64).
    """

    rate: float  # the probability of dropping a weight, 0 ≤ rate < 1
    seed: int  # 64 bits

    def factors(self, layout: ScoreLayout, rows: Index, cols: Index, dtype: Any) -> Array:
        """Return the factors of the weights of a block, ``... H R C``: 0 or 1 / (1 − rate)."""
        head = np.arange(math.prod(layout.shape[:-2]), dtype=np.uint64).reshape(*layout.shape[:-2], 1, 1)
        row, col = _indices(rows, layout.queries), _indices(cols, layout.keys)
        index = (head * np.uint64(layout.queries) + row[:, None]) * np.uint64(layout.keys) + col
        uniform = splitmix64(index * np.uint64(0x9E3779B97F4A7C15) + np.uint64(self.seed)) >> np.uint64(11)
        keep = uniform >= np.uint64(self.rate * 2**53)
        return layout.xp.asarray(keep / (1 - self.rate), dtype=dtype, device=layout.device)


def make_dropout(rate: float, rng: np.random.Generator | None) -> Dropout | None:
    """Return the dropout of one call, with a seed drawn from `rng`; None for a rate of 0."""
    check_rate(rate)
    if rate == 0:
        return None
    if not isinstance(rng, np.random.Generator):
        raise RegardError("dropout needs an explicit generator; give rng=numpy.random.default_rng(seed)")
    return Dropout(float(rate), int(rng.integers(2**64, dtype=np.uint64)))


def check_rate(rate: float) -> None:
    """Raise RegardError unless weights can be dropped at this rate."""
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.floating) or not 0 <= rate < 1:
        raise RegardError(f"dropout must be a number with 0 ≤ dropout < 1, got {rate!r}")


def _indices(index: Index, length: int) -> np.ndarray:
    """Return the indices of some queries or keys in NumPy, which has unsigned 64-bit integers."""
    if isinstance(index, slice):
        return np.arange(*index.indices(length), dtype=np.uint64)
    return np.asarray([int(index[i]) for i in range(index.shape[0])], dtype=np.uint64)


def splitmix64(bits: np.ndarray) -> np.ndarray:
    """Return the finaliser of SplitMix64: each bit of the result depends on every bit given."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = bits ^ (bits >> np.uint64(31))
    return mixed
