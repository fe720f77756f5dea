"""Dropout of a training step: a recorder that sets numbers at some taps to zero."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from regard.functional.recorder import Recorder

_RESIDUAL = ("attn.output", "mlp.output")


class DropoutRecorder(Recorder):
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
        self._prefix = ""

    def __call__(self, name: str, value: Any, axes: str) -> Any:  # noqa: ARG002
        """Return the value, or at some taps what dropout leaves of it."""
        if not self.edits(name):
            return value
        kept = self._rng(name).random(value.shape, np.float32) >= self._rate
        return value * (kept / (1 - self._rate)).astype(value.dtype)

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Return a context in which every name begins with ``name.``."""
        before, self._prefix = self._prefix, f"{self._prefix}{name}."
        try:
            yield
        finally:
            self._prefix = before

    def edits(self, name: str) -> bool:
        """Whether a tap called `name` in this scope is dropped."""
        full = self._prefix + name
        return name == self._embeddings or full.endswith(_RESIDUAL)

    wants = edits

    def can_skip(self, *names: str) -> bool:
        """Whether none of these taps is dropped."""
        return not any(map(self.edits, names))

    def attention_options(self) -> dict[str, Any]:
        """Return the dropout of the attention weights in this scope."""
        return {"dropout": self._rate, "rng": self._rng("weights")}

    def checkpoint(self) -> tuple[DropoutRecorder, DropoutRecorder]:
        """Return the recorders of a block, and of the same block computed again: they drop the same."""
        return copy.copy(self), copy.copy(self)

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng([*self._seed, zlib.crc32((self._prefix + name).encode())])
