"""A run without some heads, and what the ablation changes."""

from __future__ import annotations

import operator
import time
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.progress import Watch
from regard.explorer.query import Exploration, query
from regard.explorer.run import Run, shown_steps_of
from regard.metrics.layer_maps import layers_of
from regard.trace import Trace, edits
from regard.views.ablation import changed_predictions, token_similarities

_MAX_ROWS = 256  # compared in each head
_TOP_TOKENS = 10


class Ablation(answers.NewRun):
    """A run without some heads."""

    changes: Changes


class ChangedToken(TypedDict):
    """The probability of a next token before and after an edit."""

    token: str
    before: float
    after: float


class ChangedOutputs(TypedDict):
    """What an edit changes of the last vector of each token and of the next token."""

    cosines: list[float]
    next_tokens: list[ChangedToken] | None


class Changes(ChangedOutputs):
    """What an ablation changes; ``heads`` has the largest change of a weight in each layer and head."""

    heads: list[list[float]]


@query(slow=True)
def ablate(exploration: Exploration, heads: Sequence[tuple[int, int]], *, run: int = 0) -> Ablation:
    """Run the model of A or B again without some heads, (layer, head); return the new run and what has changed.

    The last 8 ablated runs stay in memory; an earlier one is run again when it is requested.

    An error if there is no such run or head, or the run has no model.
    """
    with exploration.watch("ablate") as watch:
        number, changes = exploration.store.ablate(run, heads, watch)
    return {"run": number, "metadata": {**exploration.describe(number), "base_run": run}, "changes": changes}


def ablate_heads(run: Run, heads: Any, watch: Watch = lambda _: None) -> tuple[Run, Changes]:
    """Return the run of the same model and text without some heads, (layer, head), and what has changed.

    ``cosines`` compare the last vector of each token before and after; ``next_tokens`` are the probabilities that
    change most, None where nothing is predicted; ``heads`` is the largest change of a weight in each layer and head,
    for a long text in some rows. An error if the run has no model, or there are no such heads.
    """
    if not run.can_ablate:
        raise RegardError("an ablation runs the model again: explore a text with a model, not a saved trace")
    pairs = _validate_heads(run, heads)
    edit = edits.ablate(*((run.layers[layer].name, head) for layer, head in pairs))
    trace = Trace(maps=True, only=shown_steps_of(run.trace), edit=edit)
    num_steps, begin = len(run.trace.names()), time.monotonic()
    watch(lambda: len(trace.names()) / num_steps / 3)
    with np.errstate(all="ignore"):
        after = run.again(trace=trace)
    end = time.monotonic()
    watch(lambda: (1 + min(1.0, (time.monotonic() - end) / (end - begin))) / 3)  # as long as with the edit
    before = run.unedited
    names = ", ".join(f"layer {run.number(layer)} head {head}" for layer, head in pairs)
    edited = Run(
        trace, layers_of(trace, 0), 0, run.encoding, run.model, f"without {names}", tuple(pairs), after, run.picture
    )
    changes = _max_weight_changes(run, edited, pairs[0][0], watch)
    return edited, {"heads": changes, **changed_outputs(before, after, run)}


def _validate_heads(run: Run, heads: Any) -> list[tuple[int, int]]:
    try:
        pairs = sorted({(operator.index(layer), operator.index(head)) for layer, head in heads})
    except (TypeError, ValueError):
        raise RegardError(f"heads to ablate are pairs (layer, head), got {heads!r}") from None
    if not pairs:
        raise RegardError("no head to ablate: give pairs (layer, head)")
    for layer, head in pairs:
        run.layer_map(layer, head)
    return pairs


def _max_weight_changes(run: Run, edited: Run, first: int, watch: Watch) -> list[list[float]]:
    """Return the largest change of a weight in each head, ``L H``: 0 up to the first ablated layer."""
    rows = np.unique(np.linspace(0, run.length - 1, min(run.length, _MAX_ROWS)).astype(int))

    def change(layer: int, head: int) -> float:
        before, after = (each.layers[layer].tile(head, rows, None) for each in (run, edited))
        return round(float(np.abs(before - after).max()), 6)

    changes: list[list[float]] = []
    watch(lambda: (2 + len(changes) / len(run.layers)) / 3)
    for number, layer in enumerate(run.layers):
        changes.append([change(number, head) if number > first else 0.0 for head in range(len(layer.heads))])
    return changes


def changed_outputs(before: Any, after: Any, run: Run) -> ChangedOutputs:
    """Return how the last vectors and the next token differ between two outputs of a model.

    For an encoder-decoder, the vectors are those of its encoder.
    """
    cosines = token_similarities(*(getattr(output, "memory", output.hidden)[0] for output in (before, after)))
    next_tokens: list[ChangedToken] | None = None
    if before.head is not None:
        before_logits, after_logits = (
            np.asarray(output.head(output.hidden[:, -1:]))[0, -1] for output in (before, after)
        )
        changes = changed_predictions(before_logits, after_logits, run.model.tokenizer, top=_TOP_TOKENS)
        next_tokens = [{"token": each.token, "before": each.before, "after": each.after} for each in changes]
    return {"cosines": [round(float(x), 6) for x in cosines], "next_tokens": next_tokens}
