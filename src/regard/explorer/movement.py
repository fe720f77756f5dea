"""Where tokens stand among each other, from their embeddings to the last layer: every stage on one plane."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from regard.trace import Trace

MOST_TOKENS = 4096
"""Of longer texts no movement is shown: the vectors of all stages are taken together."""


def stages_of(trace: Trace) -> list[str]:
    """Return the names of the vectors of each token, ``B T E``, from its embedding up."""
    first = embeddings_of(trace)
    block = re.compile(rf"{re.escape(_encoder(trace))}blocks\.\d+\.output")
    return [*([] if first is None else [first]), *(name for name in trace.names() if block.fullmatch(name))]


def embeddings_of(trace: Trace) -> str | None:
    """Return the name of what the first layer starts from; None where it was not recorded."""
    return next(
        (name for step in ("embeddings", "token_embeddings") if (name := _encoder(trace) + step) in trace), None
    )


def movement(traces: Sequence[tuple[Trace, int, int]]) -> dict[str, Any]:
    """Return the points of some runs on one plane, that of most variance of all stages of all runs.

    From layer to layer vectors move together and grow longer, which would hide everything else; so each stage is
    centred on its own mean and scaled to a root mean square distance of 1 from it, over all runs together.

    Parameters
    ----------
    traces : sequence of (Trace, batch entry, number of tokens)
        With the same stages, and vectors of the same sizes.

    Returns
    -------
    dict
        ``points`` are the places of each run, stage and token, ``R L T 2``; ``stages`` their names; ``explained`` the
        share of the variance on either axis.

    References
    ----------
    Principal components: Pearson (1901), "On lines and planes of closest fit to systems of points in space".
    """
    stages, clouds = stages_of(traces[0][0]), []
    for name in stages:
        cloud = np.concatenate([_vectors(trace, name, batch)[:length] for trace, batch, length in traces])
        cloud = cloud - cloud.mean(axis=0)
        spread = np.sqrt((cloud**2).sum(axis=1).mean())
        clouds.append(cloud / (spread or 1.0))
    width = clouds[0].shape[1]
    spread_of_all = sum((cloud.T @ cloud for cloud in clouds), np.zeros((width, width)))
    variance, components = np.linalg.eigh(spread_of_all)
    axes = components[:, ::-1][:, :2]
    axes = axes * np.where(np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0) < 0, -1.0, 1.0)
    total = variance.sum()
    explained = (variance[::-1][:2] / total if total > 0 else np.zeros(2)).clip(0)
    places = [np.round(cloud @ axes, 4) for cloud in clouds]  # T 2 each, of all runs
    bounds = np.cumsum([0, *(length for *_, length in traces)])
    return {
        "explained": [float(x) for x in explained],
        "stages": stages,
        "points": [[place[a:b].tolist() for place in places] for a, b in pairwise(bounds)],
    }


def _vectors(trace: Trace, name: str, batch: int) -> np.ndarray:
    value = trace[name]
    return np.asarray(value[batch] if trace.axes(name).startswith("B ") else value, dtype=np.float64)


def _encoder(trace: Trace) -> str:
    """Return what the names of the part that reads the text begin with."""
    return "encoder." if any(name.startswith("encoder.") for name in trace.names()) else ""
