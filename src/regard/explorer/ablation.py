"""A run without some heads, and what that changes."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer.run import Run, steps_shown_of
from regard.explorer.validation import check_number
from regard.metrics.layer_maps import layers_of
from regard.trace import Trace
from regard.trace.edits import ablate
from regard.views.ablation import changed_predictions, token_similarities

_ROWS = 256  # of a text, in which weights before and after are held against each other
_CHANGES = 10  # tokens whose probability of coming next changes most


def without_heads(run: Run, heads: Any) -> tuple[Run, dict[str, Any]]:
    """Return the run of the same model and text without some heads, (layer, head), and what has changed.

    ``cosines`` are those of each token's last vector before and after; ``next`` is None where nothing is predicted;
    ``heads`` has for each layer and head by how much a weight changed, at most; of a long text in some rows.

    Raises
    ------
    RegardError
        The run has no model, or there are no such heads.
    """
    if run.model is None or run.encoding is None:
        raise RegardError("a run is edited by its model: explore a text with a model, not a saved trace")
    chosen = _heads_of(run, heads)
    edits = ablate(*((run.layers[layer].name, head) for layer, head in chosen))
    trace = Trace(maps=True, only=steps_shown_of(run.trace), edit=edits)
    with np.errstate(all="ignore"):
        after = run.model(run.encoding, trace=trace)
    named = ", ".join(f"layer {run.number(layer)} head {head}" for layer, head in chosen)
    edited = Run(trace, layers_of(trace, 0), 0, run.encoding, run.model, f"without {named}", tuple(chosen))
    return edited, {"heads": _changed_heads(run, edited, chosen[0][0])} | _changes(run.unedited, after, run)


def _heads_of(run: Run, ablate: Any) -> list[tuple[int, int]]:
    try:
        chosen = sorted({(operator.index(layer), operator.index(head)) for layer, head in ablate})
    except (TypeError, ValueError):
        raise RegardError(f"heads are switched off by (layer, head), got {ablate!r}") from None
    if not chosen:
        raise RegardError("no head is named that is to be switched off")
    for layer, head in chosen:
        check_number("layer", layer, len(run.layers))
        check_number("head", head, len(run.layers[layer].heads))
    return chosen


def _changed_heads(run: Run, edited: Run, first: int) -> list[list[float]]:
    """Return by how much a weight of each head changed, at most, ``L H``: none up to the first edited layer."""
    rows = np.unique(np.linspace(0, run.length - 1, min(run.length, _ROWS)).astype(int))

    def change(layer: int, head: int) -> float:
        before, after = (each.layers[layer].tile(head, rows, None) for each in (run, edited))
        return round(float(np.abs(before - after).max()), 6)

    return [
        [change(layer, head) if layer > first else 0.0 for head in range(len(its.heads))]
        for layer, its in enumerate(run.layers)
    ]


def _changes(before: Any, after: Any, run: Run) -> dict[str, Any]:
    """Return what an edit changes: the cosine of each token's vectors, and what a language model expects next."""
    # Of an encoder-decoder, what its encoder made of the text.
    cosines = token_similarities(*(getattr(output, "memory", output.hidden)[0] for output in (before, after)))
    changed = None
    if before.head is not None:
        one, other = (np.asarray(output.head(output.hidden[:, -1:]))[0, -1] for output in (before, after))
        changes = changed_predictions(one, other, run.model.tokenizer, top=_CHANGES)
        changed = [{"token": each.token, "before": each.before, "after": each.after} for each in changes]
    return {"cosines": [round(float(x), 6) for x in cosines], "next": changed}
