"""Which implementation computes a call of attention, in which blocks, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from regard._utils.errors import RegardError
from regard.functional import native
from regard.functional.arrays import Array
from regard.functional.blocks import block_kind, block_sizes, spans
from regard.functional.frameworks import framework_of
from regard.functional.inputs import AttentionInputs, Options, validate_inputs
from regard.functional.masks.base import BlockKind
from regard.functional.native.attention import kernel_call, unsupported_reason
from regard.functional.native.mask_args import kernel_mask_args
from regard.functional.recorder import NO_PLAN, NULL_RECORDER, Recorder
from regard.functional.scores.stages import QUADRATIC_STEPS

_REFERENCE_SCORES = 2**22  # a map of at most this many scores is held whole
_ARRAYS = 6  # of the size of a block, that live at the same time: scores, exponentials and temporaries


@dataclass(frozen=True)
class Plan:
    """How a call of attention is computed; printing it gives a summary.

    Parameters
    ----------
    implementation : str
        The implementation: ``"native"``, the compiled kernel; ``"reference"``, the equation on the whole map;
        ``"blockwise"``, blocks with an online softmax.
    reason : str
        Why it was chosen.
    rows, cols : int
        Size of a block, in queries and keys.
    blocks : dict of str to int
        How many blocks the masks leave ``"full"``, ``"partial"`` and ``"empty"``. The empty ones are never read. (The
        kernel begins to count at the first key that is allowed; the mean over heads and batch entries.)
    memory : int
        Approximate bytes in addition to the inputs and the output.
    instruction_set : str or None
        Of the kernel, "AMX" or "AVX512-BF16" if its products are of bfloat16; None for the other implementations.
    """

    implementation: str
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
            f"implementation  {self.implementation}{by}: {self.reason}\n"
            f"blocks          {self.rows:,} queries × {self.cols:,} keys: {counts}\n"
            f"memory          about {self.memory / 1e6:,.1f} MB in addition to the inputs and the output"
        )


def explain_plan(q: Array, k: Array, v: Array, *, trace: Recorder = NULL_RECORDER, **options: Unpack[Options]) -> Plan:
    """Return how `attention` would compute this call, without computing it.

    Takes the arguments of `attention`, which says what they mean.

    Examples
    --------
    >>> import numpy as np
    >>> q = k = v = np.ones((4096, 64), np.float32)
    >>> plan = explain_plan(q, k, v, causal=True, implementation="blockwise")
    >>> plan.implementation, plan.blocks
    ('blockwise', {'full': 6, 'partial': 4, 'empty': 6})
    """
    if type(q) is not np.ndarray and trace is NULL_RECORDER:
        q, k, v, options = framework_of(q).in_numpy(q, k, v, options)
    p = validate_inputs(q, k, v, **options)
    implementation, reason = choose_implementation(p, trace, with_gradient=True)
    if implementation == "native":
        return _native_plan(p, reason)
    p = p.to_compute_dtype()
    if implementation == "reference":
        rows, cols, counts = p.layout.queries, p.layout.keys, {"partial" if p.mask else "full": 1}
    else:
        rows, cols = block_sizes(p)
        kinds = [block_kind(p, r, c) for r in spans(p.layout.queries, rows) for c in spans(p.layout.keys, cols)]
        counts = {kind.value: kinds.count(kind) for kind in (BlockKind.FULL, BlockKind.PARTIAL, BlockKind.EMPTY)}
    cells = math.prod(p.layout.shape[:-2]) * rows * cols
    return Plan(implementation, reason, rows, cols, counts, _ARRAYS * cells * p.itemsize)


def choose_implementation(
    p: AttentionInputs, trace: Recorder = NULL_RECORDER, *, with_gradient: bool = False
) -> tuple[str, str]:
    """Return ``"native"``, ``"reference"`` or ``"blockwise"``, and why.

    `with_gradient`: the caller gives PyTorch the kernel's gradients where PyTorch differentiates the call.
    """
    plan = NO_PLAN if trace is NULL_RECORDER else trace.plan(*QUADRATIC_STEPS)
    whole, edited = bool(plan.asked), bool(plan.edited)
    if p.implementation == "blockwise" and whole:
        raise RegardError(
            "implementation='blockwise' holds no whole map to record or edit; leave it at 'auto', "
            "or record with Trace(maps=True)"
        )
    if p.implementation == "native" and edited:
        raise RegardError("implementation='native' holds no whole map to edit; leave it at 'auto'")
    reason = None
    if p.implementation in ("auto", "native"):
        reason = unsupported_reason(p, with_gradient=with_gradient)
    if p.implementation == "native" and reason is not None:
        raise RegardError(f"implementation='native' cannot compute this call: {reason}; use 'auto'")
    if p.implementation != "auto":
        return p.implementation, "requested"
    if edited:
        return "reference", "the trace edits the whole map"
    if reason is None:
        return "native", "the compiled kernel supports the call"
    if whole:
        return "reference", "the trace records the whole map"
    size = p.layout.size
    if size <= _REFERENCE_SCORES:
        return "reference", f"the map has {size:,} scores, at most {_REFERENCE_SCORES:,}"
    return "blockwise", f"the map has {size:,} scores, more than {_REFERENCE_SCORES:,}"


def _native_plan(p: AttentionInputs, reason: str) -> Plan:
    """Return the plan of the kernel, whose blocks begin at the first key that a query attends to."""
    kernel, mask_args = native.kernel(), kernel_mask_args(p)
    call = kernel_call(p, mask_args, mask_args.strips()[0], tiles=True)
    few = kernel.uses_splitkv(call)
    rows, cols = (p.layout.queries, kernel.SPLITKV_KEYS) if few else (kernel.BLOCK_QUERIES, kernel.BLOCK_KEYS)
    rows, cols = (max(1, min(size, n)) for size, n in zip((rows, cols), p.layout.shape[-2:], strict=True))
    memory = kernel.forward_memory(call) + mask_args.memory
    instruction_set = call.tiles or kernel.instruction_set()
    return Plan("native", reason, rows, cols, mask_args.count_blocks(rows, cols), memory, instruction_set)
