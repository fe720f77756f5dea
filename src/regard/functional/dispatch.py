"""Which path computes a call of attention, in which blocks, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Unpack

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.functional import native
from regard.functional.inputs import AttentionInputs, Options, validate_inputs
from regard.functional.masks import BlockKind
from regard.functional.native.attention import call_of, kernel_mask_args, unsupported_reason
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.functional.score_layout import Index

_DIRECT_CELLS = 2**22  # a map of this many cells is small enough to be held whole
_TILE_CELLS = 2**20  # over all heads; a few arrays of this size stay in or near the caches
_SHORTEST, _LONGEST = 32, 1024
_ARRAYS = 6  # of a block's size that live at the same time: scores, exponentials, and those on the way
QUADRATIC_STEPS = ("scores", "capped", "biased", "weights", "dropped")  # taps that hold a value for each cell


@dataclass(frozen=True)
class Plan:
    """How a call of attention is computed. Printing it says it in words.

    Parameters
    ----------
    path : str
        ``"native"``, the compiled kernel; ``"reference"``, the formula on the whole map; ``"blockwise"``, block by block
        with an online softmax.
    reason : str
        Why this path.
    rows, cols : int
        Size of a block: queries and keys.
    blocks : dict of str to int
        How many blocks the masks leave ``"full"``, ``"partial"`` and ``"empty"``. The empty ones are never read. (The
        kernel begins to count at the first key that is allowed; the mean over heads and batch entries.)
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


def explain_plan(q: Array, k: Array, v: Array, *, trace: Recorder = NULL_RECORDER, **options: Unpack[Options]) -> Plan:
    """Return how `attention` would compute this call, without computing it.

    Takes the arguments of `attention`, which says what they mean.

    Examples
    --------
    >>> import numpy as np
    >>> q = k = v = np.ones((4096, 64), np.float32)
    >>> plan = explain_plan(q, k, v, causal=True, implementation="blockwise")
    >>> plan.path, plan.blocks
    ('blockwise', {'full': 6, 'partial': 4, 'empty': 6})
    """
    p = validate_inputs(q, k, v, **options)
    path, reason = choose_backend(p, trace)
    if path == "native":
        return _native_plan(p, reason)
    p = p.to_compute_dtype()
    if path == "reference":
        rows, cols, counts = p.layout.queries, p.layout.keys, {"partial" if p.mask else "full": 1}
    else:
        rows, cols = block_sizes(p)
        kinds = [block_kind(p, r, c) for r in spans(p.layout.queries, rows) for c in spans(p.layout.keys, cols)]
        counts = {kind.value: kinds.count(kind) for kind in (BlockKind.FULL, BlockKind.PARTIAL, BlockKind.EMPTY)}
    cells = math.prod(p.layout.shape[:-2]) * rows * cols
    return Plan(path, reason, rows, cols, counts, _ARRAYS * cells * bytes_of(p))


def choose_backend(p: AttentionInputs, trace: Recorder = NULL_RECORDER) -> tuple[str, str]:
    """Return ``"native"``, ``"reference"`` or ``"blockwise"``, and why."""
    whole = trace is not NULL_RECORDER and any([trace.wants(name) for name in QUADRATIC_STEPS])  # noqa: C419, a list is made sooner
    edited = whole and any(trace.edits(name) for name in QUADRATIC_STEPS)
    if p.implementation == "blockwise" and whole:
        raise RegardError(
            "the blockwise path has no whole map to record or edit; leave implementation to auto, "
            "or record with Trace(maps=True)"
        )
    if p.implementation == "native" and edited:
        raise RegardError("the native path has no whole map to edit; leave implementation to auto")
    against = unsupported_reason(p) if p.implementation in ("auto", "native") else None
    if p.implementation == "native" and against is not None:
        raise RegardError(f"implementation='native' cannot compute this call: {against}; 'auto' takes another path")
    if p.implementation != "auto":
        return p.implementation, "as asked for"
    if edited:
        return "reference", "the trace edits the whole map"
    if against is None:
        return "native", "the compiled kernel knows the call"
    if whole:
        return "reference", "the trace records the whole map"
    if p.layout.size <= _DIRECT_CELLS:
        return "reference", f"the map has {p.layout.size:,} cells, at most {_DIRECT_CELLS:,}"
    return "blockwise", f"the map has {p.layout.size:,} cells, more than {_DIRECT_CELLS:,}"


def _native_plan(p: AttentionInputs, reason: str) -> Plan:
    """Return the plan of the kernel, which goes from the first key that one of its queries sees to the last."""
    kernel, rules = native.kernel(), kernel_mask_args(p)
    call = call_of(p, rules, rules.spans(slice(0, p.layout.queries))[0])
    few = kernel.uses_splitkv(call)
    rows, cols = (p.layout.queries, kernel.SPLITKV_KEYS) if few else (kernel.BLOCK_QUERIES, kernel.BLOCK_KEYS)
    rows, cols = (max(1, min(size, n)) for size, n in zip((rows, cols), p.layout.shape[-2:], strict=True))
    memory = kernel.forward_memory(call) + rules.memory
    return Plan("native", reason, rows, cols, rules.blocks(rows, cols), memory, kernel.instruction_set())


def block_sizes(p: AttentionInputs) -> tuple[int, int]:
    """Return how many queries and keys make a block: all of them, where the direct path is asked for."""
    if p.implementation == "reference":
        return max(p.layout.queries, 1), max(p.layout.keys, 1)
    cells = _TILE_CELLS // max(1, math.prod(p.layout.shape[:-2]))
    rows = min(max(p.layout.queries, 1), _clamped(math.isqrt(cells)))
    cols = min(max(p.layout.keys, 1), max(_LONGEST if rows < _SHORTEST else 0, _clamped(math.isqrt(cells))))
    return rows, cols


def spans(length: int, size: int) -> list[slice]:
    """Return `length` positions in slices of at most `size`; none at all are one empty slice."""
    return [slice(start, min(start + size, length)) for start in range(0, max(length, 1), size)]


def block_kind(p: AttentionInputs, rows: Index, cols: slice) -> BlockKind:
    """Tell how much of a block the masks let be allowed."""
    if p.mask is None:
        return BlockKind.FULL
    return p.mask.block_kind(p.layout, rows, cols) if isinstance(rows, slice) else BlockKind.PARTIAL


def nonempty_blocks(p: AttentionInputs, rows: Index, cols: list[slice]) -> Iterator[tuple[int, slice, bool]]:
    """Yield number and extent of the blocks of keys that `rows` see something of, and whether they see all."""
    for number, span in enumerate(cols):
        cover = block_kind(p, rows, span)
        if cover is not BlockKind.EMPTY and span.stop > span.start:
            yield number, span, cover is BlockKind.FULL


def bytes_of(p: AttentionInputs) -> int:
    """Return the bytes of a number in the precision of the problem."""
    return int(p.layout.xp.finfo(p.q.dtype).bits) // 8


def _clamped(size: int) -> int:
    """Return the power of two at or below `size`, between the shortest and the longest block."""
    return min(_LONGEST, max(_SHORTEST, 1 << (max(size, 1).bit_length() - 1)))
