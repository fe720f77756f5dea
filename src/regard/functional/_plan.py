"""Which path computes a call of attention, in which blocks, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Unpack

from regard import kernels
from regard._errors import RegardError
from regard._recorder import SILENT, Recorder
from regard._typing import Array
from regard.functional._grid import Index
from regard.functional._mask import Cover
from regard.functional._native import call_of, reason_against, rules_of
from regard.functional._problem import Options, Problem, as_given

_DIRECT_CELLS = 2**22  # a map of this many cells is small enough to be held whole
_TILE_CELLS = 2**20  # over all heads; a few arrays of this size stay in or near the caches
_SHORTEST, _LONGEST = 32, 1024
_ARRAYS = 6  # of a block's size that live at the same time: scores, exponentials, and those on the way
WHOLE_MAPS = ("scores", "capped", "biased", "weights", "dropped")  # taps that hold a value for each cell


@dataclass(frozen=True)
class Plan:
    """How a call of attention is computed. Printing it says it in words.

    Parameters
    ----------
    path : str
        ``"native"``, the compiled kernel; ``"direct"``, the formula on the whole map; ``"blocked"``, block by block
        with an online softmax.
    reason : str
        Why this path.
    rows, cols : int
        Size of a block: queries and keys.
    blocks : dict of str to int
        How many blocks the masks leave ``"full"``, ``"mixed"`` and ``"empty"``. The empty ones are never read. (The
        kernel begins to count at the first key that is seen; the mean over heads and batch entries.)
    memory : int
        Bytes beside the inputs and the output, about.
    instruction_set : str or None
        What the kernel is compiled for; None on the other paths.
    """

    path: str
    reason: str
    rows: int
    cols: int
    blocks: dict[str, int]
    memory: int
    instruction_set: str | None = None

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in self.blocks.items())
        by = "" if self.instruction_set is None else f" ({self.instruction_set})"
        return (
            f"path    {self.path}{by}: {self.reason}\n"
            f"blocks  {self.rows:,} queries × {self.cols:,} keys: {counts}\n"
            f"memory  about {self.memory / 1e6:,.1f} MB beside the inputs and the output"
        )


def explain_plan(q: Array, k: Array, v: Array, *, trace: Recorder = SILENT, **options: Unpack[Options]) -> Plan:
    """Return how `attention` would compute this call, without computing it.

    Takes the arguments of `attention`, which says what they mean.

    Examples
    --------
    >>> import numpy as np
    >>> q = k = v = np.ones((4096, 64), np.float32)
    >>> plan = explain_plan(q, k, v, causal=True, implementation="blocked")
    >>> plan.path, plan.blocks
    ('blocked', {'full': 6, 'mixed': 4, 'empty': 6})
    """
    p = as_given(q, k, v, **options)
    path, reason = path_of(p, trace)
    if path == "native":
        return _native_plan(p, reason)
    p = p.computed()
    if path == "direct":
        rows, cols, counts = p.grid.queries, p.grid.keys, {"mixed" if p.mask else "full": 1}
    else:
        rows, cols = block_sizes(p)
        kinds = [cover_of(p, r, c) for r in spans(p.grid.queries, rows) for c in spans(p.grid.keys, cols)]
        counts = {kind.value: kinds.count(kind) for kind in (Cover.FULL, Cover.MIXED, Cover.EMPTY)}
    cells = math.prod(p.grid.shape[:-2]) * rows * cols
    return Plan(path, reason, rows, cols, counts, _ARRAYS * cells * bytes_of(p))


def path_of(p: Problem, trace: Recorder = SILENT) -> tuple[str, str]:
    """Return ``"native"``, ``"direct"`` or ``"blocked"``, and why."""
    whole = trace is not SILENT and any([trace.wants(name) for name in WHOLE_MAPS])  # noqa: C419, a list is made sooner
    edited = whole and any(trace.edits(name) for name in WHOLE_MAPS)
    if p.implementation == "blocked" and whole:
        raise RegardError(
            "the blocked path has no whole map to record or edit; leave implementation to auto, "
            "or record with Trace(maps=True)"
        )
    if p.implementation == "native" and edited:
        raise RegardError("the native path has no whole map to edit; leave implementation to auto")
    against = reason_against(p) if p.implementation in ("auto", "native") else None
    if p.implementation == "native" and against is not None:
        raise RegardError(f"implementation='native' cannot compute this call: {against}; 'auto' takes another path")
    if p.implementation != "auto":
        return p.implementation, "as asked for"
    if edited:
        return "direct", "the trace edits the whole map"
    if against is None:
        return "native", "the compiled kernel knows the call"
    if whole:
        return "direct", "the trace records the whole map"
    if p.grid.size <= _DIRECT_CELLS:
        return "direct", f"the map has {p.grid.size:,} cells, at most {_DIRECT_CELLS:,}"
    return "blocked", f"the map has {p.grid.size:,} cells, more than {_DIRECT_CELLS:,}"


def _native_plan(p: Problem, reason: str) -> Plan:
    """Return the plan of the kernel, which goes from the first key that one of its queries sees to the last."""
    native, rules = kernels.native(), rules_of(p)
    call = call_of(p, rules, rules.spans(slice(0, p.grid.queries))[0])
    few = native.is_few(call)
    rows, cols = (p.grid.queries, native.FEW_KEYS) if few else (native.QUERIES, native.KEYS)
    rows, cols = (max(1, min(size, n)) for size, n in zip((rows, cols), p.grid.shape[-2:], strict=True))
    memory = native.forward_memory(call) + rules.memory
    return Plan("native", reason, rows, cols, rules.blocks(rows, cols), memory, native.instruction_set())


def block_sizes(p: Problem) -> tuple[int, int]:
    """Return how many queries and keys make a block: all of them, where the direct path is asked for."""
    if p.implementation == "direct":
        return max(p.grid.queries, 1), max(p.grid.keys, 1)
    cells = _TILE_CELLS // max(1, math.prod(p.grid.shape[:-2]))
    rows = min(max(p.grid.queries, 1), _clamped(math.isqrt(cells)))
    cols = min(max(p.grid.keys, 1), max(_LONGEST if rows < _SHORTEST else 0, _clamped(math.isqrt(cells))))
    return rows, cols


def spans(length: int, size: int) -> list[slice]:
    """Return `length` positions in slices of at most `size`; none at all are one empty slice."""
    return [slice(start, min(start + size, length)) for start in range(0, max(length, 1), size)]


def cover_of(p: Problem, rows: Index, cols: slice) -> Cover:
    """Tell how much of a block the masks let be seen."""
    if p.mask is None:
        return Cover.FULL
    return p.mask.cover(p.grid, rows, cols) if isinstance(rows, slice) else Cover.MIXED


def seen_blocks(p: Problem, rows: Index, cols: list[slice]) -> Iterator[tuple[int, slice, bool]]:
    """Yield number and extent of the blocks of keys that `rows` see something of, and whether they see all."""
    for number, span in enumerate(cols):
        cover = cover_of(p, rows, span)
        if cover is not Cover.EMPTY and span.stop > span.start:
            yield number, span, cover is Cover.FULL


def bytes_of(p: Problem) -> int:
    """Return the bytes of a number in the precision of the problem."""
    return int(p.grid.xp.finfo(p.q.dtype).bits) // 8


def _clamped(size: int) -> int:
    """Return the power of two at or below `size`, between the shortest and the longest block."""
    return min(_LONGEST, max(_SHORTEST, 1 << (max(size, 1).bit_length() - 1)))
