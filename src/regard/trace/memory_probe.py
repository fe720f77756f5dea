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
from regard.functional.inputs import MOST_ALIASED, AttentionInputs
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
    is_hidden: bool = False  # whether the run does not tap it: a fused call computes it, or it is skipped
    in_parts: bool = False  # whether that is a call of all blocks, which computes a few texts at a time
    beside: tuple[tuple[int, str], ...] = ()  # of a map, the values in one product with queries and keys that it keeps

    @classmethod
    def from_value(cls, name: str, value: Array, axes: str, *, is_optional: bool = False) -> Tap:
        """Return the tap of a value with these axes."""
        sizes = list(zip(fitted_axes(name, axes, value.ndim).split(), value.shape, strict=True))
        fixed = math.prod(size for letter, size in sizes if letter not in _GROWING)
        parts = ((fixed * value.dtype.itemsize, "".join(x for x, _ in sizes if x in _GROWING)),)
        return cls(name, parts, is_optional=is_optional)

    @classmethod
    def from_map(cls, name: str, p: AttentionInputs) -> Tap:
        """Return the tap of a map, whose bytes are those of `AttentionMap.nbytes`."""
        ((size, growing),) = cls.from_value(name, p.q, "... H T D").parts
        rows = 16 * size // (p.q.shape[-1] * p.q.dtype.itemsize)
        parts = ((size + rows, growing), *cls.from_value(name, p.k, "... G S D").parts)
        beside = cls.from_value(name, p.v, "... G S Dv").parts if p.may_alias else ()
        return cls(name, parts, is_map=True, beside=beside)

    def nbytes(self, lengths: dict[str, int]) -> int:
        """Return the bytes in a run with these lengths of B, T and S."""
        return _grown(self.parts, lengths)

    def nbytes_at_once(self, lengths: dict[str, int]) -> int:
        """Return the bytes that are computed at a time."""
        if self.in_parts:
            lengths = lengths | {"B": min(lengths["B"], max(1, _ROWS_AT_ONCE // lengths["T"]))}
        return self.nbytes(lengths)

    def nbytes_beside(self, lengths: dict[str, int]) -> int:
        """Return the bytes that a map keeps besides its own."""
        return _grown(self.beside, lengths) if _grown(self.parts[:1], lengths) <= MOST_ALIASED else 0


def _grown(parts: Iterable[tuple[int, str]], lengths: dict[str, int]) -> int:
    return sum([fixed * math.prod([lengths[letter] for letter in growing]) for fixed, growing in parts])


def _rounding(size: int) -> int:
    """Return the bytes that the pool of buffers adds."""
    return -size % _UNIT if size >= _LARGE else 0


def _block_of(name: str) -> str:
    """Return the scope of the block in which a step is; that of a step outside of all blocks is empty."""
    scope = re.match(r"(.*?\.)?\d+\.", name)
    return scope[0] if scope else ""


class TapList(StepList):
    """A recorder that lists the taps of a run in `taps`.

    Parameters
    ----------
    asks : "values", "maps" or None
        For what it asks: all values, so that no step is skipped, all maps alone, or nothing.
    """

    def __init__(self, asks: str | None) -> None:
        super().__init__()
        self._asks = asks
        self.taps: list[Tap] = []

    def __call__(self, name: str, value: Array, axes: str, *, owned: bool = False) -> Array:  # noqa: ARG002
        """List `value` and return it."""
        full = self._prefix + name
        self.taps.append(Tap.from_value(full, value, axes, is_optional=full in self._optional))
        return value

    def plan(self, *names: str, optional: tuple[str, ...] = ()) -> RecordingPlan:
        """Return a plan that asks for all of these steps, and for the map too, for the map alone, or for none."""
        plan = super().plan(*names, optional=optional) if self._asks == "values" else NO_PLAN
        return plan._replace(keeps_map=self._asks is not None)

    def record_attention(self, inputs: Any, stats: Any = None) -> None:  # noqa: ARG002
        """List the map of a call of attention."""
        self.taps.append(Tap.from_map(f"{self._prefix}weights", inputs))


def list_taps(run: Callable[[TapList], object], asks: str | None) -> tuple[Tap, ...]:
    """Return the taps of a run that asks for something, as a `TapList` does."""
    taps = TapList(asks)
    run(taps)
    return tuple(taps.taps)


def with_hidden(taps: Iterable[Tap], every: Iterable[Tap]) -> tuple[Tap, ...]:
    """Return the taps of a run, and of the steps that it hides or skips, in the order of those of all steps."""
    tapped = {(tap.name, tap.is_map): tap for tap in taps}
    names = {name for name, _ in tapped}
    return tuple(
        tapped.get((tap.name, tap.is_map)) or replace(tap, is_hidden=True, in_parts=_is_in_parts(tap.name, names))
        for tap in every
        if not tap.is_map or (tap.name, True) in tapped
    )


def has_fused_calls(taps: Iterable[Tap]) -> bool:
    """Tell whether steps are hidden that no run skips."""
    return any(tap.is_hidden and not tap.is_optional and quadratic_stage(tap.name) is None for tap in taps)


def _is_in_parts(name: str, tapped: Iterable[str]) -> bool:
    """Tell whether a step is of a call of all blocks: not even the output of its block is tapped."""
    block = _block_of(name)
    return bool(block) and f"{block}output" not in tapped and name != f"{block}output"


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
        self._beside = 0  # bytes that recorded values keep besides their own: the pool rounds up, a product has others
        self.recorded = self.cache = self.copies = 0

    @property
    def working(self) -> int:
        """Bytes not held longer: of one value outside of all blocks, and of all of a block, or its result if fused.

        Fewer are live at once, but the pool of buffers keeps what a block has freed for the next one.
        """
        return self._beside + self._outside + max(0, max(self._unheld.values(), default=self._outside))

    def fits(self, taps: Iterable[Tap]) -> bool:
        """Tell whether a run with this trace may be the one that has these taps: it asks for no step that is hidden.

        But for the weights, which the call of all blocks gives for texts without padding.
        """
        has_maps = any(tap.is_map for tap in taps)
        for tap in taps:
            if tap.is_hidden:
                plan = self._plan_of(tap)
                is_given = tap.in_parts and tap.name.endswith(".weights") and not (plan.edited or plan.stops)
                if (plan.asked and not is_given) or (plan.keeps_map and not has_maps):
                    return False
        return True

    def add(self, taps: Iterable[Tap]) -> None:
        """Add the taps of a run, up to the step after which it ends."""
        with suppress(RunStopped):
            for tap in taps:
                plan = self._plan_of(tap)
                if tap.is_map:
                    self._add_map(tap, plan)
                else:
                    self._add(tap, plan)

    def _plan_of(self, tap: Tap) -> RecordingPlan:
        self._prefix, dot, name = tap.name.rpartition(".")
        self._prefix += dot
        if tap.is_map:
            return self.plan(*STAGES)
        return self.plan(optional=(name,)) if tap.is_optional else self.plan(name)

    def _add(self, tap: Tap, plan: RecordingPlan) -> None:
        if tap.is_optional and not plan.asked:
            return
        size = tap.nbytes(self._lengths_of(tap))
        is_linear = quadratic_stage(tap.name) is None
        if not is_linear and plan.keeps_map:
            return  # its map gives it
        if plan.asked and not self._to_folder and self._step_plan(tap.name).is_recorded:
            self.recorded += size
            self._beside += _rounding(size)
        elif plan.asked and tap.in_parts:
            self._beside += size  # the call gives those of all blocks at its end
        elif plan.asked or is_linear:
            if block := _block_of(tap.name):
                at_once = tap.nbytes_at_once(self._lengths_of(tap))
                self._unheld[block] += at_once + _rounding(at_once)
            else:
                self._outside = max(self._outside, size)
        if tap.name.endswith("kv_latent"):
            self._latents.add(self._prefix)
        name = tap.name.removeprefix(self._prefix)
        has_state = self._prefix.endswith("linear_attn.")  # in place of keys and values
        if name == "kv_latent" or (name in ("k", "v") and self._prefix not in self._latents and not has_state):
            self.cache += size
        if plan.edited:
            self.copies = max(self.copies, size * (1 if is_linear else _EDITED_COPIES))
        if plan.stops:
            raise RunStopped(tap.name, None)

    def _add_map(self, tap: Tap, plan: RecordingPlan) -> None:
        if plan.keeps_map:
            lengths = self._lengths_of(tap)
            self.recorded += tap.nbytes(lengths)
            if beside := tap.nbytes_beside(lengths):
                product = tap.nbytes(lengths) + beside  # its queries, keys and values
                self._beside += beside + _rounding(product)
                self._unheld[_block_of(tap.name)] -= product
            if plan.stops:
                raise RunStopped(tap.name, None)

    def _lengths_of(self, tap: Tap) -> dict[str, int]:
        if not tap.name.startswith("decoder."):
            return self._lengths
        return self._cross_lengths if ".cross_attn." in tap.name else self._target_lengths
