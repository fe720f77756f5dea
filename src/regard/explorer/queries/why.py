"""Why a token attends to another: the pairs of writers that add most to a score, as the page names and links them."""

from __future__ import annotations

import re
from typing import TypedDict

import numpy as np

from regard import metrics
from regard._utils.errors import RegardError
from regard.explorer.codec import short
from regard.explorer.opening import is_special
from regard.explorer.queries.residual_stream import check_whole_model
from regard.explorer.query import query
from regard.explorer.run import Head, Run
from regard.metrics import Writer
from regard.metrics.replay import layer_of


class ScoreWriter(TypedDict):
    """What wrote into a residual stream; ``layer`` and ``head`` name the map of a head."""

    label: str
    kind: str
    layer: int | None
    head: int | None


class ScorePair(TypedDict):
    """What a writer of the query and a writer of the key add to a score together."""

    query: ScoreWriter
    key: ScoreWriter
    value: float


class Why(TypedDict):
    """A score as a sum of pairs, the largest of them and the ``others`` together; what ``terms`` add is not in it.

    With ``versus`` it is less the score of that key.
    """

    score: float
    versus: int | None
    pairs: list[ScorePair]
    others: float
    num_others: int
    terms: dict[str, float]


@query(slow=True)
def why(run: Run, layer: int, head: Head, i: int, j: int, *, contrast: bool = False) -> Why:
    """Return the score of a cell as a sum over pairs of writers: the ten largest, and the others together.

    See `regard.metrics.why`. With `contrast` the score is less that of the word besides with the largest weight.

    An error if there is no such run, layer, head or cell; the query does not attend to the key, or with `contrast`
    to no other; or the run has no model, is too long, or lacks a step.
    """
    layer_map = run.layer_map(layer, head, i, j)
    if head == "mean":
        raise RegardError("a score is of one head, not of the mean of heads: choose a head")
    check_whole_model(run.reader is not None, run.length, "the sum behind a score")
    trace, batch, rows, cols = run.recorded_at(layer)
    if i not in rows or j not in cols:
        raise RegardError("the map of this layer has no such cell")
    versus = _strongest_other(run, layer, head, i, j) if contrast else None
    at = (i - rows.start, j - cols.start, None if versus is None else versus - cols.start)
    score = metrics.why(trace, layer_map.name, head, *at, batch=batch, model=run.reader)
    pairs = score.top()
    return {
        "score": short(score.score, 4),
        "versus": versus,
        "pairs": [
            {
                "query": written_by(run, pair.query),
                "key": written_by(run, pair.key),
                "value": short(pair.value, 4),
            }
            for pair in pairs
        ],
        "others": short(score.total - sum(pair.value for pair in pairs), 4),
        "num_others": len(score.query_writers) * len(score.key_writers) - len(pairs),
        "terms": {name: short(value, 4) for name, value in score.terms.items()},
    }


def _strongest_other(run: Run, layer: int, head: int, i: int, j: int) -> int:
    """Return the key besides j with the largest weight of a query: a word, if there is one."""
    weights = run.layers[layer].tile(head, np.array([i]), None)[0]
    weights[j] = 0
    if not weights.any():
        raise RegardError("this query attends to no other key, with which this one could be compared")
    of_words = np.where(is_special(run), 0, weights)
    return int((of_words if of_words.any() else weights).argmax())


def written_by(run: Run, writer: Writer) -> ScoreWriter:
    """Return a writer as plain data, with the layer of its map if it is a head."""
    where = re.findall(r"\w+", writer.detail)  # in an encoder–decoder
    places = [
        place
        for place, layer in enumerate(run.layers)
        if writer.kind == "head" and layer_of(layer.name) == writer.layer and all(part in layer.name for part in where)
    ]
    return {
        "label": writer.label,
        "kind": writer.kind,
        "layer": places[0] if places else None,
        "head": writer.index if places else None,
    }
