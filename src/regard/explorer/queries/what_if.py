"""The run again with other scores in one row of a head, and what that changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer.queries.ablation import ChangedOutputs, changed_outputs
from regard.explorer.queries.cell import sink_of
from regard.explorer.query import query
from regard.explorer.run import Run
from regard.explorer.validation import check_index
from regard.metrics.layer_maps import LayerMap
from regard.trace import AttentionMap, Trace


class WhatIf(ChangedOutputs):
    """What other scores of a row change; ``weights`` are those of the row then, ``S``."""

    weights: list[float]


@query(slow=True)
def what_if(run: Run, layer: int, head: int, i: int, scores: Sequence[tuple[int, float | None]]) -> WhatIf:
    """Run the model again with other scores, (key, score), in row i of a head; return what has changed.

    None masks a key. Scores are those before the softmax, with bias; the next token is that after the last.

    An error if there is no such run, layer, head, row or key; a key is masked; or the run has no model, or no
    scores.
    """
    layer_map = run.layer_map(layer, head, i)
    if not run.can_ablate:
        raise RegardError("what follows is another run of the model: explore a text with a model, not a saved trace")
    weights = _changed_weights(layer_map, head, i, scores)
    _, _, rows, cols = run.recorded_at(layer)

    def change(before: np.ndarray) -> np.ndarray:  # B H T S
        changed = before.copy()
        changed[0, head, i - rows.start] = weights[cols.start : cols.stop]
        return changed

    edits = {**run.edits, layer_map.step("weights"): change}
    with np.errstate(all="ignore"):
        after = run.again(trace=Trace(only=(), edit=edits))
    return {"weights": [round(float(x), 6) for x in weights], **changed_outputs(run.output, after, run)}


def _changed_weights(layer_map: LayerMap, head: int, i: int, scores: Sequence[tuple[int, float | None]]) -> np.ndarray:
    """Return the weights of a row, float64 ``S``, with other scores, (key, score), of some keys; None masks a key."""
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
