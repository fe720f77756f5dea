"""How alike the vectors of one word are in two texts."""

from __future__ import annotations

import numpy as np

from regard._utils.errors import RegardError
from regard.trace import Trace
from regard.views.axis import axis_of, rows_of_word
from regard.views.trace_access import encoding_of, entry_of, layers_with


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
    vectors = _vectors(one, word, batch), _vectors(other, word, batch)
    layers, widths = ([list(found) for found in vectors], [found["original"].shape for found in vectors])
    if layers[0] != layers[1] or widths[0] != widths[1]:
        raise RegardError(
            f"the traces are not of one model: {len(layers[0]) - 1} layers of {widths[0]} beside "
            f"{len(layers[1]) - 1} of {widths[1]}"
        )
    return tuple((name, cosine(vectors[0][name], vectors[1][name])) for name in layers[0])


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Return the cosine of the angle between two vectors, ``E`` each; 0 where one of them is 0."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else 0.0


def _vectors(trace: Trace, word: str, batch: int) -> dict[str, np.ndarray]:
    """Return the vector of a word, ``E``, in the embedding table and behind each layer."""
    layers = layers_with("output", trace.names())
    names = {"original": "token_embeddings", **{f"layer {n}": f"blocks.{n}.output" for n in layers}}
    found: dict[str, np.ndarray] = {}
    for label, name in names.items():
        values, entries = entry_of(trace[name], trace.axes(name), batch)
        encoding = encoding_of(trace, batch, entries)
        if encoding is None:
            raise RegardError("the trace has no text to look for words in: record a model's run on a text")
        axis = axis_of(encoding, words=True)
        rows = rows_of_word(axis.labels, axis.words, word)
        found[label] = axis.mean(values[: axis.length].astype(np.float64))[list(rows)].mean(axis=0)
    return found
