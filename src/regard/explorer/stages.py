"""Recorded vectors of each token, from the embeddings to the last layer."""

from __future__ import annotations

import re

import numpy as np

from regard.trace import Trace

MAX_MOVEMENT_TOKENS = 4096
"""Longer texts have no movement: the vectors of all stages are held together."""


def stages_of(trace: Trace) -> list[str]:
    """Return the names of the vectors of each token, ``B T E``, from its embedding up."""
    first = embeddings_of(trace)
    block = re.compile(rf"{re.escape(_encoder_prefix(trace))}blocks\.\d+\.output")
    return [*([] if first is None else [first]), *(name for name in trace.names() if block.fullmatch(name))]


def embeddings_of(trace: Trace) -> str | None:
    """Return the name of the input of the first layer; None where it was not recorded."""
    names = (_encoder_prefix(trace) + step for step in ("projected_embeddings", "embeddings", "token_embeddings"))
    return next((name for name in names if name in trace), None)


def vectors_of(trace: Trace, name: str, batch: int) -> np.ndarray:
    """Return recorded vectors of one text in float64, ``T E``."""
    value = trace[name]
    return np.asarray(value[batch] if trace.axes(name).startswith("B ") else value, dtype=np.float64)


def _encoder_prefix(trace: Trace) -> str:
    """Return the prefix of the step names of the part that reads the text."""
    return "encoder." if any(name.startswith("encoder.") for name in trace.names()) else ""
