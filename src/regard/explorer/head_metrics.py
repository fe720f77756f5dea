"""What every head does, in a few numbers: the measures that a page orders and filters heads by."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from regard.metrics.heads import Cases, HeadMetrics, measured
from regard.metrics.layer_maps import Check

MEASURES = (
    {
        "key": "entropy",
        "title": "Entropy",
        "unit": "nats",
        "says": "How widely a token shares out its attention: 0 where it looks at one alone.",
        "not": "A low entropy does not say that what is looked at matters.",
        "source": "Clark et al. 2019, arXiv:1906.04341",
    },
    {
        "key": "distance",
        "title": "Distance",
        "unit": "tokens",
        "says": "How many tokens away it looks, on average.",
        "not": "A sink at the start of the text makes it large, wherever else is looked.",
        "source": "Vig and Belinkov 2019, arXiv:1906.04284",
    },
    {
        "key": "sink",
        "title": "Sink",
        "unit": "share",
        "says": "The share that goes to the first token, to special ones, and to a sink of the model's own if it has "
        "one: where attention goes that is not needed.",
        "not": "It is no sign of importance: these tokens have next to nothing to give.",
        "source": "Xiao et al. 2023, arXiv:2309.17453; Clark et al. 2019",
    },
    {
        "key": "previous",
        "title": "Previous token",
        "unit": "share",
        "says": "The share that goes to the token just before.",
        "not": "Near tokens are often the likely ones too: a high share may have another reason.",
        "source": "Clark et al. 2019, arXiv:1906.04341",
    },
    {
        "key": "duplicate",
        "title": "Same token",
        "unit": "share",
        "says": "The share that goes to earlier occurrences of the same token; empty where no token comes twice.",
        "not": "In a text with few repetitions it rests on few tokens.",
        "source": "Wang et al. 2022, arXiv:2211.00593",
    },
    {
        "key": "induction",
        "title": "Induction",
        "unit": "share",
        "says": "The share that goes to what came right after an earlier occurrence of the same token.",
        "not": "In a text with few repetitions it rests on few tokens; random text that comes twice tests it better.",
        "source": "Olsson et al. 2022, arXiv:2209.11895",
    },
)

_NAMES = [field.name for field in fields(HeadMetrics)][1:]  # the first is the layers
_TOLD = [_NAMES.index(str(measure["key"])) for measure in MEASURES]


def measures_of(run: Any, rows: np.ndarray, check: Check) -> np.ndarray:
    """Return the measures of every head, ``M L H``, from some rows; NaN where a text has no such case.

    Heads of a layer that has fewer than others are NaN too.
    """
    most = max(len(layer.heads) for layer in run.layers)
    found = np.full((len(MEASURES), len(run.layers), most), np.nan)
    cases = Cases(run.encoding)
    for number, layer in enumerate(run.layers):
        of_layer = measured(layer.strips(rows, check), layer.length, cases)
        found[:, number, : len(layer.heads)] = of_layer[_TOLD]
    return found
