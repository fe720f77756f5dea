"""Parts of a map: any stage of any rows and columns, each row normalised over all of its keys."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, as_array, integers, namespace, to_device
from regard.functional.blockwise import softmax_stats
from regard.functional.inputs import AttentionInputs
from regard.functional.native.map import exposes_masked_nonfinite, map_tile, native_map_inputs
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.functional.scores.layout import Index, ScoreLayout, bounds_of
from regard.functional.scores.stages import QUADRATIC_STEPS, STAGES, Stage, block_scores, map_steps


def attention_tile(
    p: AttentionInputs,
    rows: int | Index | None,
    cols: int | Index | None,
    stage: Stage = "weights",
    stats: SoftmaxStats | None = None,
) -> Array:
    """Return a stage of some rows and columns; an integer removes its axis.

    `stats` are those of all rows, in the precision in which the tile is computed: that of `native_map_inputs`, else the
    widest. Without it those of `rows` are computed.
    """
    check_stage(stage)
    row, keep_row_axis = as_index("rows", p.layout, rows, p.layout.queries)
    col, keep_col_axis = as_index("cols", p.layout, cols, p.layout.keys)
    kernel_inputs = native_map_inputs(p)
    if kernel_inputs is not None and not exposes_masked_nonfinite(p, stage):
        part = map_tile(kernel_inputs, row, col, stage, stats)
    else:
        part = _tile(p.upcast(), row, col, stage, stats)
    if stage == "weights" and p.dropout is not None:
        part = part * p.dropout.factors(p.layout, row, col, part.dtype)
    if not keep_row_axis:
        part = part[..., 0, :]
    if not keep_col_axis:
        part = part[..., 0]
    return p.layout.xp.astype(part, p.dtype, copy=False)


def _tile(p: AttentionInputs, rows: Index, cols: Index, stage: Stage, stats: SoftmaxStats | None) -> Array:
    block = block_scores(p, rows, cols)
    if stage != "weights":
        return getattr(block, stage)
    row_stats = softmax_stats(p, rows) if stats is None else stats.rows(rows)
    return row_stats.weights(block.biased, p.layout.xp)


def record_maps(p: AttentionInputs, trace: Recorder, weights: Array | None = None) -> None:
    """Record the steps of shape ``... H T S``, computed beside the kernel's result; `weights`, if it wrote them.

    They count as steps of the run whether they are recorded or not.
    """
    if trace is NULL_RECORDER:
        return
    steps = map_steps(p)
    trace.note(*steps)
    asked = trace.plan(*QUADRATIC_STEPS).asked.intersection(steps)
    if not asked:
        return
    exact = p.to_compute_dtype().replace(dtype=p.compute_dtype, v=None, dropout=None)
    for stage in [stage for stage in STAGES if stage in asked]:
        computed = weights if stage == "weights" else None
        array = attention_tile(exact, None, None, stage) if computed is None else computed
        trace(stage, array, "... H T S", owned=True)
    if "dropped" in asked:
        trace("dropped", attention_tile(exact.replace(dropout=p.dropout), None, None), "... H T S", owned=True)


def check_stage(stage: str) -> None:
    """Raise RegardError unless `stage` is one of `STAGES`."""
    if stage not in STAGES:
        raise RegardError(f"stage must be scores, capped, biased or weights, got {stage!r}")


def as_index(name: str, layout: ScoreLayout, index: Any, length: int) -> tuple[Index, bool]:
    """Return `index` as a slice or as an array of indices from 0, and whether its axis stays."""
    if index is None:
        return slice(0, length), True
    if isinstance(index, slice):
        if index.step == 0:
            raise RegardError(f"{name} has step 0; give another step")
        start, stop, step = index.indices(length)
        if step == 1:
            return slice(start, max(start, stop)), True
        return layout.xp.arange(start, stop, step, device=layout.device), True
    try:
        number = operator.index(None if isinstance(index, bool) else index)  # type: ignore[arg-type]
    except TypeError:
        array = np.zeros(0, int) if isinstance(index, list | tuple) and not index else as_array(index, name)
        if array.ndim != 1 or not namespace(array).isdtype(array.dtype, "integral"):
            raise RegardError(f"{name} must be an integer, a slice or a 1-D array of integers, got {index!r}") from None
        _check_range(name, (bounds_of(array) if array.shape[0] else None) or (), length)
        array = integers(to_device(layout.xp, array, layout.device))
        return layout.xp.where(array < 0, array + length, array), True
    _check_range(name, [number], length)
    return slice(number % length, number % length + 1), False


def _check_range(name: str, numbers: Iterable[int], length: int) -> None:
    for number in numbers:
        if not -length <= number < length:
            raise RegardError(f"{name} {number} is out of range for {length}")
