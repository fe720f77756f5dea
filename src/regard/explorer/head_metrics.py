"""The metrics of every head, by which the page orders and filters heads."""

from __future__ import annotations

import numpy as np

from regard.explorer import answers
from regard.explorer.progress import Watch
from regard.explorer.run import Run
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

DIFFERENCE: answers.Explanation = {
    "key": "difference",
    "title": "largest change of a weight",
    "unit": "",
    "description": "A − B of every head: blue where A is larger, brown where B is, on one scale for all heads.",
    "caveat": "The number is the largest change of a weight.",
    "source": "",
}
"""What the grid of A − B shows."""


def head_metrics_of(run: Run, check: CancelCheck, watch: Watch = lambda _: None) -> np.ndarray:
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
