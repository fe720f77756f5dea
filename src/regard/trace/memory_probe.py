"""Bytes that a trace will hold, from a run of two tokens: each tap names its axes, of which B, T and S grow."""

from __future__ import annotations

import math
from typing import Any

from regard.functional.arrays import Array
from regard.trace.step_names import quadratic_stage
from regard.trace.trace import Trace
from regard.trace.trace_file import fitted_axes


class MemoryProbe(Trace):
    """A recorder that adds up what `trace` would hold of a longer run, and records nothing.

    Parameters
    ----------
    trace : Trace
    batch, length : int
        ``B`` and ``T`` of the longer run.
    target_length : int
        ``T`` of a decoder that attends to an encoder.

    Attributes
    ----------
    recorded : int
        Bytes of the recorded values and maps.
    cache : int
        Bytes of the keys and values of all layers.
    largest, largest_recorded : int
        Bytes of the largest value that is linear in the length, and of the largest that is recorded or edited.
    """

    def __init__(self, trace: Trace, batch: int, length: int, target_length: int = 1) -> None:
        edits = dict.fromkeys(trace._edit, lambda x: x)
        super().__init__(only=trace._only, maps=trace._keep_maps, edit=edits, stop=trace._stop)
        self._sizes = (batch, length, target_length)
        self.recorded = self.cache = self.largest = self.largest_recorded = 0

    def __call__(self, name: str, value: Array, axes: str) -> Array:
        """Count `value` and return it."""
        full = self._prefix + name
        size = self._nbytes(full, axes, value)
        if quadratic_stage(full) is None:
            self.largest = max(self.largest, size)
        if name in ("k", "v"):
            self.cache += size
        if self.wants(name):
            self.largest_recorded = max(self.largest_recorded, size)
            self.recorded += size * self._is_recorded(full)
        self._stop_after(full, value)
        return value

    def take(self, name: str, value: Array, axes: str) -> None:
        """Count `value`."""
        self(name, value, axes)

    def record_attention(self, inputs: Any, stats: Any = None) -> None:  # noqa: ARG002
        """Count the map of a call of attention."""
        if self.wants_attention():
            name = f"{self._prefix}weights"
            q, k = self._nbytes(name, "... H T D", inputs.q), self._nbytes(name, "... G S D", inputs.k)
            rows = q // (inputs.q.shape[-1] * inputs.q.dtype.itemsize)
            self.recorded += q + k + 16 * rows  # as AttentionMap.nbytes
            self._stop_after_map(inputs.q)

    def check_matched(self) -> None:
        """Do nothing: nothing was edited."""

    def _nbytes(self, name: str, axes: str, value: Array) -> int:
        batch, length, target_length = self._sizes
        in_decoder = name.startswith("decoder.")
        lengths = {
            "B": batch,
            "T": target_length if in_decoder else length,
            "S": target_length if in_decoder and ".cross_attn." not in name else length,
        }
        letters = fitted_axes(name, axes, value.ndim).split()
        count = math.prod(lengths.get(letter, size) for letter, size in zip(letters, value.shape, strict=True))
        return int(count * value.dtype.itemsize)
