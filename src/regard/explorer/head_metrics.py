"""The head metrics that a page orders and filters heads by."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.metrics.heads import layer_metrics
from regard.metrics.layer_maps import CancelCheck
from regard.metrics.registry import listed_metrics

MEASURES = tuple(
    {
        "key": entry.name,
        "title": entry.title,
        "unit": entry.unit,
        "says": entry.description,
        "not": entry.caveat,
        "source": entry.paper,
    }
    for entry in listed_metrics()
)


def measures_of(run: Any, rows: np.ndarray, check: CancelCheck) -> np.ndarray:
    """Return the metrics of every head, ``M L H``, from some rows; NaN where no row of a text counts.

    Heads of a layer that has fewer than others are NaN too.
    """
    most = max(len(layer.heads) for layer in run.layers)
    found = np.full((len(MEASURES), len(run.layers), most), np.nan)
    for number, layer in enumerate(run.layers):
        of_layer = layer_metrics(layer.row_blocks(rows, check), run.encoding)
        found[:, number, : len(layer.heads)] = [of_layer[str(measure["key"])] for measure in MEASURES]
    return found
