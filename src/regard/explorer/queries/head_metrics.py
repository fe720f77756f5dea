"""The metrics of every head, by which the page orders and filters heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import numpy as np

from regard.explorer import answers
from regard.explorer.progress import Watch
from regard.explorer.query import query
from regard.explorer.run import Run
from regard.metrics.heads import layer_metrics
from regard.metrics.layer_maps import CancelCheck
from regard.metrics.registry import listed_metrics

if TYPE_CHECKING:
    from regard.explorer.exploration import Exploration

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
    recorded = exploration.run(run)

    def compute() -> np.ndarray:
        with exploration.watch("heads") as watch:
            return _head_metrics(recorded, check, watch)

    values = exploration.cache.get(("heads", run), compute)
    return {
        "metrics": {
            metric["key"]: [[None if np.isnan(x) else round(float(x), 6) for x in row] for row in of_metric]
            for metric, of_metric in zip(EXPLANATIONS, values, strict=True)
        }
    }


def _head_metrics(run: Run, check: CancelCheck, watch: Watch) -> np.ndarray:
    """Return the metrics of every head, ``M L H``, of a long text from some rows; NaN where no row of the text counts.

    Heads that a layer lacks are NaN too.
    """
    max_heads = max(len(layer.heads) for layer in run.layers)
    values = np.full((len(EXPLANATIONS), len(run.layers), max_heads), np.nan)
    done = 0
    watch(lambda: done / len(run.layers))
    for number, layer in enumerate(run.layers):
        measured, rows, encoding = run.measured(number)
        of_layer = layer_metrics(measured.row_blocks(rows, check), encoding)
        values[:, number, : len(layer.heads)] = [of_layer[str(metric["key"])] for metric in EXPLANATIONS]
        done += 1
    return values
