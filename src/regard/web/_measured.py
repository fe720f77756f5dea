"""What every head does, in a few numbers: the measures that a page orders and filters heads by."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.web._maps import Check

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
        "says": "The share that goes to the first token and to special ones: where attention goes that is not needed.",
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


def measured(run: Any, rows: np.ndarray, check: Check) -> np.ndarray:
    """Return the measures of every head, ``M L H``, from some rows; NaN where a text has no such case.

    Heads of a layer that has fewer than others are NaN too.
    """
    most = max(len(layer.heads) for layer in run.layers)
    found = np.full((len(MEASURES), len(run.layers), most), np.nan)
    cases = _cases(run, rows)
    for number, layer in enumerate(run.layers):
        for head in range(len(layer.heads)):
            check()
            found[:, number, head] = _of_head(layer.tile(head, rows, None), rows, *cases)
    return found


def _cases(run: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return which keys are sinks, and for each row which are earlier occurrences, and which follow those."""
    sinks = np.arange(run.length) == 0
    if run.encoding is None:
        return sinks, None, None
    special = np.array(run.encoding.special, dtype=bool)
    ids = np.where(special, -1 - np.arange(run.length), np.array(run.encoding.ids))
    same = (ids[rows, None] == ids) & (np.arange(run.length) < rows[:, None])
    followed = np.zeros_like(same)
    followed[:, 1:] = same[:, :-1]
    followed[np.arange(len(rows)), rows] = False
    return sinks | special, same, followed


def _of_head(
    weights: np.ndarray, rows: np.ndarray, sinks: np.ndarray, same: np.ndarray | None, followed: np.ndarray | None
) -> list[float]:
    # log2 of a 1 where there is no weight, so that nothing is taken off
    entropy = -np.einsum("rs,rs->r", weights, np.log(np.where(weights > 0, weights, 1)), dtype=np.float64)
    away = np.abs(np.arange(weights.shape[1]) - rows[:, None]).astype(weights.dtype)
    distance = np.einsum("rs,rs->r", weights, away, dtype=np.float64)
    behind = rows > 0
    previous = weights[np.flatnonzero(behind), rows[behind] - 1]
    return [
        _mean(entropy),
        _mean(distance),
        _mean(weights[~sinks[rows]][:, sinks].sum(axis=-1, dtype=np.float64)),
        _mean(previous),
        *(np.nan if case is None else _mean((weights * case).sum(-1)[case.any(-1)]) for case in (same, followed)),
    ]


def _mean(values: np.ndarray) -> float:
    return float(values.mean(dtype=np.float64)) if len(values) else float("nan")
