"""Which heads matter: what the ablation of each head changes, and which heads have the weights that were chosen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, TypedDict

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.codec import short_number
from regard.explorer.queries.next_tokens import logits_at, logits_of
from regard.explorer.query import query
from regard.explorer.run import Run
from regard.explorer.validation import check_index
from regard.functional import softmax
from regard.metrics.attribution_target import predicts_tokens
from regard.metrics.layer_maps import CancelCheck
from regard.models.decoder import Decoder
from regard.trace import Trace
from regard.views.next_tokens import token_name
from regard.views.similarity import cosine

MAX_CELLS = 64
_TOKENS_PER_BATCH = 4096


class FoundHeads(TypedDict):
    """The mean weight of some cells in every head."""

    values: answers.HeadValues


class Sweep(TypedDict):
    """A number before and after the ablation of each head of a layer: the probability of a token, or a cosine."""

    before: float
    after: list[float]
    token: int | None
    text: str | None


def live_metrics(runs: Sequence[Run]) -> list[answers.Explanation]:
    """Return what describes the metrics that are computed when they are chosen: those that runs have in common."""
    weight: answers.Explanation = {
        "key": "cell_weight",
        "title": "Weight of the chosen cells",
        "unit": "",
        "description": "The mean weight that a head gives the chosen cells of the map.",
        "caveat": "Add cells to rank the heads by several of them.",
        "source": "",
        "live": True,
    }
    predicts = all(run.model is not None and predicts_tokens(run.model) for run in runs)
    effect: answers.Explanation = {
        **weight,
        "key": "ablation_effect",
        "title": "Effect of ablation",
        "description": "How much the probability of the likeliest token after the chosen word falls without this head."
        if predicts
        else "How far the vector of the chosen word turns without this head: 1 − cosine.",
        "caveat": "Each head is ablated by itself; heads that do the same work may each show little."
        + (" Below 0, the probability rises." if predicts else ""),
    }
    return [effect, weight] if all(run.can_ablate for run in runs) else [weight]


@query(slow=True)
def sweep(
    run: Run,
    layer: int,
    *,
    position: int | None = None,
    token: int | None = None,
    check: CancelCheck = lambda: None,
) -> Sweep:
    """Return what the ablation of each head of a layer does to one number, ``before`` and ``after`` it.

    For a language model the number is the probability of `token` after `position`, by default of the likeliest
    after the last; for another model the cosine similarity of the vector at `position` with what it was.

    An error if the run has no model or is an ablation; or there is no such layer, position or token.
    """
    if not run.can_ablate:
        raise RegardError("an ablation runs the model again: explore a text with a model, not a saved trace")
    if run.ablated:
        raise RegardError("each head is ablated in the whole model: choose A")
    heads, position, model = np.arange(len(run.layer_map(layer).heads)), run.position(position), run.model
    before, text = 1.0, None
    if predicts_tokens(model):
        logits = logits_at(run, position)
        token = int(logits.argmax()) if token is None else token
        check_index("token id", token, len(logits))
        before, text = float(softmax(logits)[token]), token_name(model.tokenizer, token)
    elif token is not None:
        raise RegardError(f"{model.name} predicts no next token: leave out token")

    def vectors(output: Any) -> np.ndarray:
        return np.asarray(getattr(output, "memory", output.hidden)[:, position], np.float64)

    def measured(output: Any) -> list[float]:
        if token is None:
            return [cosine(vectors(run.output)[0], vector) for vector in vectors(output)]
        return [float(x) for x in softmax(logits_of(run, output, position))[:, token]]

    count = max(1, _TOKENS_PER_BATCH // run.length)
    after: list[float] = []
    for start in range(0, len(heads), count):
        check()
        after += measured(_without_each(run, layer, heads[start : start + count]))
    return {"before": before, "after": after, "token": token, "text": text}


@query(slow=True)
def find_heads(run: Run, cells: Sequence[tuple[int, int]], *, check: CancelCheck = lambda: None) -> FoundHeads:
    """Return the mean weight of some cells, (query, key), in every head, ``L H``; None where it is not finite.

    An error if there is no such run or cell, or there are more than 64 cells.
    """
    if not 0 < len(cells) <= MAX_CELLS:
        raise RegardError(f"heads are found by 1 to {MAX_CELLS} cells, got {len(cells)}")
    for token in chain(*cells):
        check_index("token", token, run.length)
    rows, cols = (np.array(axis) for axis in zip(*cells, strict=True))
    unique_rows, unique_cols = np.unique(rows), np.unique(cols)
    at = np.searchsorted(unique_rows, rows), np.searchsorted(unique_cols, cols)
    mean_weights: answers.HeadValues = []
    for layer in run.layers:
        check()
        means = [
            float(layer.tile(head, unique_rows, unique_cols)[at].mean(dtype=np.float64))
            for head in range(len(layer.heads))
        ]
        mean_weights.append([short_number(mean) for mean in means])
    return {"values": mean_weights}


def _without_each(run: Run, layer: int, heads: np.ndarray) -> Any:
    """Return the output of a batch in which each text lacks one head of a layer."""

    def edit(context: np.ndarray) -> np.ndarray:
        context[np.arange(len(heads)), heads] = 0
        return context

    starts = isinstance(run.model, Decoder)
    before = f"blocks.{min(run.number(layer), run.model.last_start) - 1}.output" if starts else ""
    starts = before in run.trace
    start = {before: run.trace[before][run.batch : run.batch + 1]} if starts else None
    trace = Trace(only=(), edit={run.layers[layer].step("context"): edit}, start=start)
    with np.errstate(all="ignore"):
        return run.again(len(heads), trace=trace)
