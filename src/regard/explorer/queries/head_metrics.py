"""The metrics of every head, by which the page orders and filters heads."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from regard.explorer import answers
from regard.explorer.query import Exploration, query
from regard.metrics.heads import layer_metrics
from regard.metrics.layer_maps import CancelCheck
from regard.metrics.registry import listed_metrics

EXPLANATIONS: tuple[answers.Explanation, ...] = tuple(
    {
        "key": entry.name,
        "title": entry.title,
        "unit": entry.unit,
        "description": entry.description,
        "caveat": entry.caveat,
        "source": entry.paper,
    }
    for entry in listed_metrics()
)


class HeadMetrics(TypedDict):
    """Metrics of every head, by key."""

    metrics: dict[str, answers.HeadValues]


@query(slow=True)
def heads(exploration: Exploration, run: int, *, check: CancelCheck = lambda: None) -> HeadMetrics:
    """Return the metrics of every head, ``L H`` each; for a long text from some of its rows."""
    recorded, done = exploration.run(run), 0

    def compute() -> np.ndarray:
        """Return the metrics of every head, ``M L H``; NaN where no row of the text counts, and for lacking heads."""
        nonlocal done
        max_heads = max(len(layer.heads) for layer in recorded.layers)
        values = np.full((len(EXPLANATIONS), len(recorded.layers), max_heads), np.nan)
        with exploration.watch("heads") as watch:
            watch(lambda: done / len(recorded.layers))
            for number, layer in enumerate(recorded.layers):
                measured, rows, encoding = recorded.measured(number)
                of_layer = layer_metrics(measured.row_blocks(rows, check), encoding)
                values[:, number, : len(layer.heads)] = [of_layer[str(metric["key"])] for metric in EXPLANATIONS]
                done += 1
        return values

    values = exploration.cache.get(("heads", run), compute)
    return {
        "metrics": {
            metric["key"]: [[None if np.isnan(x) else round(float(x), 6) for x in row] for row in of_metric]
            for metric, of_metric in zip(EXPLANATIONS, values, strict=True)
        }
    }
