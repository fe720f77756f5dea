"""How alike the vectors of one word are in two texts."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from regard._errors import RegardError
from regard.trace import Trace
from regard.views._labels import readable

_BLOCK_OUTPUT = re.compile(r"blocks\.(\d+)\.output")


def similarities(one: Trace, other: Trace, word: str, *, batch: int = 0) -> tuple[tuple[str, float], ...]:
    """Return the cosine similarity of a word's vectors in two texts, before the first layer and behind each.

    The vector of a word is the mean over its sub-words, and over its occurrences where it comes again.

    Parameters
    ----------
    one, other : Trace
        Two runs of one model, with ``token_embeddings`` and ``blocks.*.output`` recorded.
    word : str
        A word of both texts, in any case.
    batch : int
        Which text of a batch.

    Returns
    -------
    tuple of (str, float)
        ``("original", …)``, the embedding alone; ``("layer 0", …)`` and so on; the last is the contextual vector.

    Raises
    ------
    RegardError
        A text does not have the word, or the traces are not of one model.
    """
    pairs = zip(_vectors(one, word, batch), _vectors(other, word, batch), strict=False)
    found = []
    for (name, a), (other_name, b) in pairs:
        if name != other_name or a.shape != b.shape:
            raise RegardError(f"the traces are not of one model: {name} {a.shape} beside {other_name} {b.shape}")
        found.append((name, cosine(a, b)))
    return tuple(found)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Return the cosine of the angle between two vectors, ``E`` each; 0 where one of them is 0."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else 0.0


def _vectors(trace: Trace, word: str, batch: int) -> Iterator[tuple[str, np.ndarray]]:
    positions = _positions(trace, word, batch)
    yield "original", trace["token_embeddings"][batch, positions].mean(axis=0)
    layers = sorted(int(found[1]) for name in trace.names() if (found := _BLOCK_OUTPUT.fullmatch(name)))
    for layer in layers:
        yield f"layer {layer}", trace[f"blocks.{layer}.output"][batch, positions].mean(axis=0)


def _positions(trace: Trace, word: str, batch: int) -> list[int]:
    if not 0 <= batch < len(trace.encodings):
        raise RegardError(f"there is no text {batch}: the trace has {len(trace.encodings)}")
    groups = trace.encodings[batch].word_groups()
    positions = [position for spelled, group in groups for position in group if spelled.casefold() == word.casefold()]
    if not positions:
        known = ", ".join(dict.fromkeys(readable(spelled, 40) for spelled, _ in groups))
        raise RegardError(f"{readable(word, 40)!r} is not a word of the text, whose words are {known}")
    return positions
