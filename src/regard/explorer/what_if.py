"""The run again with other scores in one row of a head, and what that changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.ablation import changed_outputs
from regard.explorer.cell import sink_of
from regard.explorer.run import Run
from regard.explorer.validation import check_index
from regard.trace import AttentionMap
from regard.trace.edits import ablate


def with_scores(run: Run, layer: int, head: int, i: int, scores: Sequence[tuple[int, float | None]]) -> answers.WhatIf:
    """Return what other scores of a row change of its weights and of the outputs; see `Exploration.what_if`."""
    if not run.can_ablate:
        raise RegardError("what follows is another run of the model: explore a text with a model, not a saved trace")
    layer_map = run.layers[layer]
    weights = changed_weights(run, layer, head, i, scores)
    _, _, rows, cols = run.recorded_at(layer)

    def change(recorded: np.ndarray) -> np.ndarray:  # B H T S
        changed = recorded.copy()
        changed[0, head, i - rows.start] = weights[cols.start : cols.stop]
        return changed

    heads = [(run.layers[at].name, number) for at, number in run.ablated]
    edits = {**(ablate(*heads) if heads else {}), layer_map.step("weights"): change}
    with np.errstate(all="ignore"):
        after = run.again(edit=edits)
    return {"weights": [round(float(x), 6) for x in weights], **changed_outputs(run.output, after, run)}


def changed_weights(run: Run, layer: int, head: int, i: int, scores: Sequence[tuple[int, float | None]]) -> np.ndarray:
    """Return the weights of a row, float64 ``S``, with other scores, (key, score), of some keys; None masks a key."""
    layer_map = run.layers[layer]
    recorded = layer_map.heads[head]
    if not isinstance(recorded, AttentionMap):
        raise RegardError("the scores of this layer were not recorded")
    row = layer_map.tile(head, [i], None, "biased")[0].astype(np.float64)
    for key, score in scores:
        check_index("key", key, len(row))
        if row[key] == -np.inf:
            raise RegardError(f"key {key} is masked in this row")
        row[key] = -np.inf if score is None else score
    sink = sink_of(recorded)
    sink = -np.inf if sink is None else sink
    largest = max(float(row.max()), sink)
    if largest == -np.inf:
        return np.zeros_like(row)
    exponentials = np.exp(row - largest)
    weights: np.ndarray = exponentials / (exponentials.sum() + np.exp(sink - largest))
    return weights
