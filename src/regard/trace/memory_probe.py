"""Bytes that a trace will hold: the taps of a run of two tokens, each of which names its axes; B, T and S grow."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from regard.functional.arrays import Array
from regard.functional.recorder import NO_PLAN, RecordingPlan, RunStopped, StepList
from regard.functional.scores.stages import STAGES
from regard.trace.step_names import quadratic_stage
from regard.trace.trace import Trace
from regard.trace.trace_file import fitted_axes

_GROWING = ("B", "T", "S")
_EDITED_COPIES = 5  # arrays of n², which NumPy computes where one is edited
_ROWS_AT_ONCE = 384  # tokens, of whole texts: those of csrc/bindings/encoder.cpp
_LARGE, _UNIT = 1 << 21, 1 << 19  # bytes; csrc/runtime/buffer_pool.cpp rounds up what is large


@dataclass(frozen=True)
class Tap:
    """A value that a run taps, or an attention whose map a trace may store instead of arrays."""

    name: str
    parts: tuple[tuple[int, str], ...]  # bytes where every axis that grows has length 1, and those axes: B, T, S
    is_map: bool = False
    is_optional: bool = False  # whether a run makes it only where it is asked for
    in_parts: bool = False  # whether it is of a call of all blocks, which computes a few texts at a time

    @classmethod
    def from_value(cls, name: str, value: Array, axes: str, *, is_optional: bool = False) -> Tap:
        """Return the tap of a value with these axes."""
        sizes = list(zip(fitted_axes(name, axes, value.ndim).split(), value.shape, strict=True))
        fixed = math.prod(size for letter, size in sizes if letter not in _GROWING)
        parts = ((fixed * value.dtype.itemsize, "".join(x for x, _ in sizes if x in _GROWING)),)
        return cls(name, parts, is_optional=is_optional)

    @classmethod
    def from_map(cls, name: str, q: Array, k: Array) -> Tap:
        """Return the tap of a map, whose bytes are those of `AttentionMap.nbytes`."""
        ((size, growing),) = cls.from_value(name, q, "... H T D").parts
        rows = 16 * size // (q.shape[-1] * q.dtype.itemsize)
        return cls(name, ((size + rows, growing), *cls.from_value(name, k, "... G S D").parts), is_map=True)

    def nbytes(self, lengths: dict[str, int]) -> int:
        """Return the bytes in a run with these lengths of B, T and S."""
        if self.in_parts:
            lengths = lengths | {"B": min(lengths["B"], max(1, _ROWS_AT_ONCE // lengths["T"]))}
        return sum([fixed * math.prod([lengths[letter] for letter in growing]) for fixed, growing in self.parts])


def _block_of(name: str) -> str:
    """Return the scope of the block in which a step is; that of a step outside of all blocks is empty."""
    scope = re.match(r"(.*?\.)?\d+\.", name)
    return scope[0] if scope else ""


class TapList(StepList):
    """A recorder that lists the taps of a run in `taps`.

    Parameters
    ----------
    asks : bool
        Whether it asks for all values, so that no step is skipped.
    """

    def __init__(self, *, asks: bool) -> None:
        super().__init__()
        self._asks = asks
        self.taps: list[Tap] = []

    def __call__(self, name: str, value: Array, axes: str, *, owned: bool = False) -> Array:  # noqa: ARG002
        """List `value` and return it."""
        full = self._prefix + name
        self.taps.append(Tap.from_value(full, value, axes, is_optional=full in self._optional))
        return value

    def plan(self, *names: str, optional: tuple[str, ...] = ()) -> RecordingPlan:
        """Return a plan that asks for all of these steps, and for the map too, or for none."""
        return super().plan(*names, optional=optional)._replace(keeps_map=True) if self._asks else NO_PLAN

    def record_attention(self, inputs: Any, stats: Any = None) -> None:  # noqa: ARG002
        """List the map of a call of attention."""
        self.taps.append(Tap.from_map(f"{self._prefix}weights", inputs.q, inputs.k))


def list_taps(run: Callable[[TapList], object], *, asks: bool) -> tuple[Tap, ...]:
    """Return the taps of a run, of all steps if it `asks` for them, else of those that no run skips."""
    taps = TapList(asks=asks)
    run(taps)
    return tuple(taps.taps)


def with_hidden(taps: Iterable[Tap], every: Iterable[Tap]) -> tuple[Tap, ...]:
    """Return the taps of a run, and of the steps of its blocks that fused calls hide, out of those of all steps."""
    taps = tuple(taps)
    names = {tap.name for tap in taps}
    hidden = [
        replace(tap, in_parts=(output := f"{block}output") not in names and tap.name != output)
        for tap in every
        if tap.name not in names and not tap.is_optional and not tap.is_map and (block := _block_of(tap.name))
    ]
    return (*taps, *hidden)


class MemoryProbe(Trace):
    """Adds up what `trace` would hold of a run.

    Parameters
    ----------
    trace : Trace
    batch, length : int
        ``B`` and ``T`` of the run.
    target_length : int
        ``T`` of a decoder that attends to an encoder.

    Attributes
    ----------
    recorded : int
        Bytes of the recorded values, unless they go to a folder, and of the maps.
    cache : int
        Bytes of the keys and values of all layers, or of the latents from which they are computed.
    copies : int
        Those of the copies that an edit takes.
    """

    def __init__(self, trace: Trace, batch: int, length: int, target_length: int = 1) -> None:
        super().__init__()
        self._plan = trace._plan
        self._lengths = {"B": batch, "T": length, "S": length}
        self._cross_lengths = {"B": batch, "T": target_length, "S": length}
        self._target_lengths = {"B": batch, "T": target_length, "S": target_length}
        self._latents: set[str] = set()  # the attentions that have some
        self._to_folder = trace.folder is not None
        self._unheld: Counter[str] = Counter()  # bytes by the block of which they are
        self._outside = 0  # bytes of the largest outside of all blocks
        self._rounding = 0  # bytes that the pool of buffers adds to recorded values
        self.recorded = self.cache = self.copies = 0

    @property
    def working(self) -> int:
        """Bytes not held longer: of one value outside of all blocks, and of all of a block, or its result if fused.

        Fewer are live at once, but the pool of buffers keeps what a block has freed for the next one.
        """
        return self._rounding + self._outside + max(0, max(self._unheld.values(), default=self._outside))

    def add(self, taps: Iterable[Tap]) -> None:
        """Add the taps of a run, up to the step after which it ends."""
        with suppress(RunStopped):
            for tap in taps:
                self._prefix, dot, name = tap.name.rpartition(".")
                self._prefix += dot
                if tap.is_map:
                    self._add_map(tap)
                else:
                    self._add(name, tap)

    def _add(self, name: str, tap: Tap) -> None:
        plan = self.plan(optional=(name,)) if tap.is_optional else self.plan(name)
        if tap.is_optional and not plan.asked:
            return
        size = self._nbytes(tap)
        is_linear = quadratic_stage(tap.name) is None
        if not is_linear and plan.keeps_map:
            return  # its map gives it
        if plan.asked and not self._to_folder and self._step_plan(tap.name).is_recorded:
            self.recorded += size
            self._rounding += -size % _UNIT if size >= _LARGE else 0
        elif plan.asked or is_linear:
            if block := _block_of(tap.name):
                self._unheld[block] += size
            else:
                self._outside = max(self._outside, size)
        if name == "kv_latent":
            self._latents.add(self._prefix)
        has_state = self._prefix.endswith("linear_attn.")  # in place of keys and values
        if name == "kv_latent" or (name in ("k", "v") and self._prefix not in self._latents and not has_state):
            self.cache += size
        if plan.edited:
            self.copies = max(self.copies, size * (1 if is_linear else _EDITED_COPIES))
        if plan.stops:
            raise RunStopped(tap.name, None)

    def _add_map(self, tap: Tap) -> None:
        plan = self.plan(*STAGES)
        if plan.keeps_map:
            size = self._nbytes(tap)
            self.recorded += size
            self._unheld[_block_of(tap.name)] -= size  # its queries and keys
            if plan.stops:
                raise RunStopped(tap.name, None)

    def _nbytes(self, tap: Tap) -> int:
        if not tap.name.startswith("decoder."):
            return tap.nbytes(self._lengths)
        return tap.nbytes(self._cross_lengths if ".cross_attn." in tap.name else self._target_lengths)
