"""What a model predicts: the likeliest tokens or classes, with their probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from regard import functional as F
from regard._utils.validation import whole_number
from regard.nn.decoder import sigmoid


class Prediction(NamedTuple):
    """A token, or a class, and how likely it is.

    Parameters
    ----------
    text : str
    id : int
    probability : float
    """

    text: str
    id: int
    probability: float


def likeliest(
    logits: np.ndarray, k: int, name: Callable[[int], str], *, independent: bool = False
) -> tuple[Prediction, ...]:
    """Return the likeliest of logits, ``V``, the likeliest first; `name` returns the text of one.

    Where they are `independent`, each has a probability of its own, sigmoid(logit).
    """
    x = np.asarray(logits, np.float64)
    probabilities = sigmoid(x) if independent else F.softmax(x)
    order = np.argsort(-probabilities, kind="stable")[: whole_number("k", k, 1)].tolist()
    return tuple(Prediction(name(i), i, float(probabilities[i])) for i in order)
