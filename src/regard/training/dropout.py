"""Dropout of a training step: a recorder that sets numbers at some taps to zero."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.functional.recorder import Recorder, RecordingPlan, Scoped

_RESIDUAL = ("attn.output", "mlp.output")


class DropoutRecorder(Scoped, Recorder):
    """Drops embeddings, what attention and feed-forward add to the residual stream, and attention weights.

    What is dropped depends on the seed and on the name of the step alone, so that a block that is computed again for
    its gradient drops the same.

    Parameters
    ----------
    rate : float
        The probability with which a number is set to zero; the others are multiplied by 1 / (1 − rate).
    seed : sequence of int
    embeddings : str
        The tap of the embeddings that the first block gets.

    References
    ----------
    Srivastava et al. (2014), "Dropout", https://jmlr.org/papers/v15/srivastava14a.html.
    """

    def __init__(self, rate: float, seed: tuple[int, ...], *, embeddings: str = "embeddings") -> None:
        self._rate, self._seed, self._embeddings = rate, seed, embeddings

    def __call__(self, name: str, value: Any, axes: str, *, owned: bool = False) -> Any:  # noqa: ARG002
        """Return the value, or at some taps what dropout leaves of it."""
        if not self._drops(name):
            return value
        kept = np.random.default_rng(self._seed_of(name)).random(value.shape, np.float32) >= self._rate
        return value * (kept / (1 - self._rate)).astype(value.dtype)

    def plan(self, *names: str, optional: tuple[str, ...] = ()) -> RecordingPlan:  # noqa: ARG002
        """Return which of these steps are dropped, and the dropout of the attention weights."""
        dropped = frozenset(filter(self._drops, names))
        return RecordingPlan(dropped, dropped, dropout=self._rate, seed=self._seed_of("weights"))

    def checkpoint(self) -> tuple[DropoutRecorder, DropoutRecorder, Sequence[Any]]:
        """Return the recorders of a block, and of the same block computed again: they drop the same."""
        return copy.copy(self), copy.copy(self), ()

    def _drops(self, name: str) -> bool:
        full = self._prefix + name
        return name == self._embeddings or full.endswith(_RESIDUAL)

    def _seed_of(self, name: str) -> tuple[int, ...]:
        return (*self._seed, zlib.crc32((self._prefix + name).encode()))
