"""What mattered, compared with what was attended to, for each token or word of a text."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.text.encoding import Encoding
from regard.text.token_labels import token_labels


class AttributionRow(NamedTuple):
    """A token or a word with its contribution and the weight that it receives."""

    label: str
    score: float
    attended: float


def attribution_rows(
    encoding: Encoding, scores: np.ndarray, attended: np.ndarray, *, merge_subwords: bool = False
) -> list[AttributionRow]:
    """Return a row for each token, or for each word the sums over its tokens."""
    groups = [(label, [i]) for i, label in enumerate(token_labels(encoding))]
    if merge_subwords:
        words = encoding.word_groups()
        groups = [(word or groups[at[0]][0], at) for word, at in words]
    return [AttributionRow(label, float(scores[at].sum()), float(attended[at].sum())) for label, at in groups]
