"""Token vectors of every stage, from the embeddings to the last layer, projected onto one plane."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from regard.explorer import answers
from regard.trace import Trace
from regard.views.projection import (
    describe_sinks,
    enumerate_names,
    find_sinks,
    principal_plane,
    standardize,
    tokens_to_fit,
)

MAX_MOVEMENT_TOKENS = 4096
"""Longer texts have no movement: the vectors of all stages are held together."""


def stages_of(trace: Trace) -> list[str]:
    """Return the names of the vectors of each token, ``B T E``, from its embedding up."""
    first = embeddings_of(trace)
    block = re.compile(rf"{re.escape(_encoder_prefix(trace))}blocks\.\d+\.output")
    return [*([] if first is None else [first]), *(name for name in trace.names() if block.fullmatch(name))]


def embeddings_of(trace: Trace) -> str | None:
    """Return the name of the input of the first layer; None where it was not recorded."""
    names = (_encoder_prefix(trace) + step for step in ("embeddings", "token_embeddings"))
    return next((name for name in names if name in trace), None)


def movement(texts: Sequence[tuple[Trace, int, np.ndarray]]) -> answers.Movements:
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


def describe_plane(moved: answers.Movements, tokens: Sequence[Sequence[answers.Token]]) -> str:
    """Return what the plane of `movement` shows and hides, and the tokens that it is not fitted to, with the reason.

    `tokens` are those of each run, as the page has them.
    """
    across, up = moved["explained_variance_ratio"]
    outside = [of_run[t] for of_run, left_out in zip(tokens, moved["left_out"], strict=True) for t in left_out]
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


def vectors_of(trace: Trace, name: str, batch: int) -> np.ndarray:
    """Return recorded vectors of one text in float64, ``T E``."""
    value = trace[name]
    return np.asarray(value[batch] if trace.axes(name).startswith("B ") else value, dtype=np.float64)


def _encoder_prefix(trace: Trace) -> str:
    """Return the prefix of the step names of the part that reads the text."""
    return "encoder." if any(name.startswith("encoder.") for name in trace.names()) else ""
