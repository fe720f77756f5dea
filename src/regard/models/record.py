"""A run that is recorded, and is told when its numbers were too large."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.trace import Trace


def record(model: Any, text: Any, trace: Trace) -> Trace:
    """Run a model on a text, and return the trace that has recorded it.

    Raises
    ------
    RegardError
        The text is none that the model reads, or its vectors leave the range of numbers.
    """
    with np.errstate(all="ignore"):
        hidden = model(text, trace=trace).hidden
    if not np.isfinite(hidden).all():
        raise RegardError(f"the vectors of {model.name} leave the range of {hidden.dtype}: its numbers are too large")
    return trace
