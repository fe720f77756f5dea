"""How much memory a run takes: estimated before it, and refused where it cannot fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.memory import available_memory, gigabytes
from regard.nn.fast_paths import instance_cache
from regard.trace import Trace
from regard.trace.memory_probe import MemoryProbe, Tap, TapList, has_fused_calls, list_taps, with_hidden

_SMALL, _SMALL_UNRECORDED = 64, 4096  # tokens of a run that is not worth an estimate, with and without a trace
_NEGLIGIBLE = 1 << 27  # bytes that are not worth asking the system how many there are
_MOST_ESTIMATES = 256  # that a model stores


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a run takes in addition to the model: the values that its trace holds, and those while it runs."""

    recorded: int
    working: int

    @property
    def total(self) -> int:
        """The sum of both."""
        return self.recorded + self.working


def estimate_memory(
    model: Any, batch: int, length: int, trace: Trace, *, target_length: int = 1, cached: bool = False
) -> MemoryEstimate:
    """Return an estimate for a batch of `batch` texts of `length` tokens, from the taps of runs of two tokens.

    There are up to three: of a run that asks for nothing, one for maps, and one for all values, as fused calls do not
    apply to each. They are stored in the model, and so is the estimate.

    Parameters
    ----------
    model : Model
    batch, length : int
    trace : Trace
        What is to be recorded.
    target_length : int
        The tokens of a decoder that attends to an encoder.
    cached : bool
        Whether keys and values of all layers stay, as in generation.
    """
    estimates = instance_cache(model, "_memory_estimates", dict[Any, MemoryEstimate])
    key = (trace._plan, trace.folder is None, batch, length, target_length, cached)
    if key not in estimates:
        probe = MemoryProbe(trace, batch, length, target_length)
        probe.add(_taps(model, length, probe))
        # A growing cache is copied into one of twice the size.
        working = probe.working + probe.copies + 3 * probe.cache * cached
        if len(estimates) >= _MOST_ESTIMATES:
            estimates.clear()
        estimates[key] = MemoryEstimate(probe.recorded, working)
    return estimates[key]


def _taps(model: Any, length: int, probe: MemoryProbe) -> tuple[Tap, ...]:
    """Return the taps of the run that a trace makes: that with the most fused calls which it lets apply."""

    def taps_of_run(asks: str | None) -> tuple[Tap, ...]:
        return list_taps(lambda recorder: _run(model, length, recorder), asks)

    def every() -> tuple[Tap, ...]:
        return instance_cache(model, "_taps", lambda: taps_of_run("values"))

    unrecorded = instance_cache(model, "_unrecorded_taps", lambda: with_hidden(taps_of_run(None), every()))
    if probe.fits(unrecorded):
        return unrecorded
    if has_fused_calls(unrecorded):
        mapped = instance_cache(model, "_map_taps", lambda: with_hidden(taps_of_run("maps"), every()))
        if probe.fits(mapped):
            return mapped
    return every()


def _run(model: Any, length: int, trace: TapList) -> None:
    """Run at most two tokens."""
    ids = np.zeros((1, min(2, length)), np.int64)
    with np.errstate(all="ignore"):
        if hasattr(model, "embed_patches"):
            model.encode_patches(model.patches.position_embedding(ids), trace=trace)
        else:
            getattr(model, "forward", model)(ids, trace=trace)


def check_memory(model: Any, shape: tuple[int, ...], trace: Any, *, target_length: int = 1) -> None:
    """Check that what a trace records of a run on ids of this shape, ``B T``, fits into memory, unless it is short.

    Raises
    ------
    RegardError
        It does not.
    """
    batch, length = shape
    records = isinstance(trace, Trace)
    if batch * (length + target_length) > (_SMALL if records else _SMALL_UNRECORDED):
        recorder = trace if records else Trace(only=())
        estimate = estimate_memory(model, batch, length, recorder, target_length=target_length)
        if estimate.total > _NEGLIGIBLE:
            require_memory(estimate, batch, length)


def require_memory(estimate: MemoryEstimate, batch: int, length: int) -> None:
    """Raise `RegardError` if a run that takes `estimate` does not fit into memory."""
    available = available_memory()
    if available is not None and estimate.total > available:
        texts, fewer = ("", "a shorter text") if batch == 1 else (f"{batch} × ", "fewer or shorter texts")
        recorded = f", {gigabytes(estimate.recorded)} of it for what is recorded" if estimate.recorded else ""
        less = ", or record less: Trace(maps=True) or only=" if estimate.recorded else ""
        raise RegardError(
            f"a run of {texts}{length:,} tokens takes about {gigabytes(estimate.total)} of memory{recorded}, but "
            f"{gigabytes(available)} are available: give {fewer}{less}"
        )
