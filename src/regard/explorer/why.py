"""Why a token attends to another: the pairs of writers that add most to a score, as the page names and links them."""

from __future__ import annotations

import re

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.opening import is_special
from regard.explorer.residual_stream import check_whole_model
from regard.explorer.run import Run
from regard.metrics import Writer, why
from regard.metrics.replay import layer_of


def why_attends(run: Run, layer: int, head: int, i: int, j: int, contrast: bool) -> answers.Why:
    """Return the largest terms of the score of a cell; see `Exploration.why`."""
    check_whole_model(run.reader is not None, run.length, "the sum behind a score")
    trace, batch, rows, cols = run.recorded_at(layer)
    if i not in rows or j not in cols:
        raise RegardError("the map of this layer has no such cell")
    versus = _strongest_other(run, layer, head, i, j) if contrast else None
    at = (i - rows.start, j - cols.start, None if versus is None else versus - cols.start)
    score = why(trace, run.layers[layer].name, head, *at, batch=batch, model=run.reader)
    pairs = score.top()
    return {
        "score": short(score.score),
        "versus": versus,
        "pairs": [
            {"query": written_by(run, pair.query), "key": written_by(run, pair.key), "value": short(pair.value)}
            for pair in pairs
        ],
        "others": short(score.total - sum(pair.value for pair in pairs)),
        "num_others": len(score.query_writers) * len(score.key_writers) - len(pairs),
        "terms": {name: short(value) for name, value in score.terms.items()},
    }


def _strongest_other(run: Run, layer: int, head: int, i: int, j: int) -> int:
    """Return the key besides j with the largest weight of a query: a word, if there is one."""
    weights = run.layers[layer].tile(head, np.array([i]), None)[0]
    weights[j] = 0
    if not weights.any():
        raise RegardError("this query attends to no other key, with which this one could be compared")
    of_words = np.where(is_special(run), 0, weights)
    return int((of_words if of_words.any() else weights).argmax())


def written_by(run: Run, writer: Writer) -> answers.ScoreWriter:
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


def short(value: float) -> float:
    """Return a number with the four digits that a page may show."""
    return float(f"{value:.4g}")
