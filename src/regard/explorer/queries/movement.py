"""Token vectors of every stage, from the embeddings to the last layer, projected onto one plane."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypedDict

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.query import Exploration, query
from regard.explorer.stages import MAX_MOVEMENT_TOKENS, stages_of, vectors_of
from regard.trace import Trace
from regard.views.projection import (
    describe_sinks,
    enumerate_names,
    find_sinks,
    principal_plane,
    standardize,
    tokens_to_fit,
)


class Movements(TypedDict):
    """The place of each token of some runs on one plane, at every stage: ``R L T 2``."""

    explained_variance_ratio: list[float]
    stages: list[str]
    points: list[list[list[list[float]]]]
    left_out: list[list[int]]  # of the fit
    note: str


@query(slow=True)
def movement(exploration: Exploration, runs: Sequence[int]) -> Movements:
    """Return the position of each token at every stage, on one plane for all `runs`; see `moved`.

    The ``note`` says what the plane shows, and what is left out of its fit.

    An error if there is no such run, or none is given; vectors were not recorded, or are of too many tokens; or the
    runs have different stages or vector sizes (see ``projection_key`` of the manifest).
    """
    if len(set(runs)) != len(runs):
        raise RegardError("runs holds a number twice")
    recorded = [exploration.run(run) for run in runs]
    keys = {run.projection_key for run in recorded}
    if not recorded or None in keys:
        raise RegardError(
            f"movement needs the outputs of blocks, of at most {MAX_MOVEMENT_TOKENS} tokens: record them too"
        )
    if len(keys) > 1:
        raise RegardError("these runs have different stages or vector sizes, so they share no plane")
    points = moved([(run.trace, run.batch, run.special) for run in recorded])
    return {**points, "note": describe_plane(points, [run.token_descriptions for run in recorded])}


def moved(texts: Sequence[tuple[Trace, int, np.ndarray]]) -> Movements:
    """Return the points of some runs on the plane of their first two principal components.

    From layer to layer all vectors shift together and grow, which would dominate the plane; so each stage is
    standardized, over all runs together. A sink would dominate it too: means, scales and plane are fitted without
    sinks and special tokens, see `tokens_to_fit`, and all tokens are projected.

    Parameters
    ----------
    texts : sequence of (Trace, batch entry, array of bool)
        With the same stages, and vectors of the same size; which tokens are special, ``T``.

    Returns
    -------
    dict
        ``points`` of each run, stage and token, ``R L T 2``; ``stages``, their names; ``explained_variance_ratio`` of
        both axes, of the tokens of the fit; and ``left_out``, the indices of the other tokens of each run.
    """
    stages = stages_of(texts[0][0])
    clouds = [
        np.concatenate([vectors_of(trace, name, batch)[: len(special)] for trace, batch, special in texts])
        for name in stages
    ]
    fitted = tokens_to_fit(np.concatenate([special for *_, special in texts]), find_sinks(clouds))
    points, ratio = principal_plane([standardize(cloud, fitted) for cloud in clouds], fitted)
    bounds = list(pairwise(np.cumsum([0, *(len(special) for *_, special in texts)])))
    return {
        "note": "",
        "explained_variance_ratio": ratio.tolist(),
        "stages": stages,
        "points": [[stage[a:b].round(4).tolist() for stage in points] for a, b in bounds],
        "left_out": [np.flatnonzero(~fitted[a:b]).tolist() for a, b in bounds],
    }


def describe_plane(points: Movements, tokens: Sequence[Sequence[answers.Token]]) -> str:
    """Return what the plane of `moved` shows and hides, and the tokens that it is not fitted to, with the reason.

    `tokens` are those of each run, as the page has them.
    """
    across, up = points["explained_variance_ratio"]
    outside = [of_run[t] for of_run, left_out in zip(tokens, points["left_out"], strict=True) for t in left_out]
    sinks, special = (
        list(dict.fromkeys(token["text"].strip() for token in outside if token["special"] is kind))
        for kind in (False, True)
    )
    sentences = [
        f"The two axes show {_percent(across + up)} of the variance ({_percent(across)} across, {_percent(up)} up) "
        f"and hide {_percent(max(0.0, 1 - across - up))}.",
        sinks and describe_sinks(sinks, "left out of the fit"),
        special and f"Special tokens ({enumerate_names([f'“{name}”' for name in special])}) are left out of the fit.",
        outside and "Rings mark what is left out.",
        "All stages share one plane; each is centred on its own mean, since all vectors also shift together and grow. "
        "Tokens close on the plane may be far apart in space.",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _percent(share: float) -> str:
    return f"{100 * share:.{1 if share < 0.0995 else 0}f} %"
