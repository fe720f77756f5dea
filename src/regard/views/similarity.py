"""Cosine similarity of the vectors of one word in two texts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from regard._utils.errors import RegardError
from regard.trace import Trace
from regard.views.axis import make_axis, rows_of_word
from regard.views.trace_access import batch_encoding, batch_entry, layers_with


def word_similarities(one: Trace, other: Trace, word: str, *, batch: int = 0) -> tuple[tuple[str, float], ...]:
    """Return the cosine similarity of a word's vectors in two texts: embedding, then each layer.

    The vector of a word is the mean over its sub-words and its occurrences.

    Parameters
    ----------
    one, other : Trace
        Two runs of one model, with ``token_embeddings`` and ``blocks.*.output`` recorded.
    word : str
        A word of both texts, in any case.
    batch : int
        The text of a batch.

    Returns
    -------
    tuple of (str, float)
        ``("original", …)``, the embedding alone; ``("layer 0", …)`` and so on; the last is the contextual vector.

    Raises
    ------
    RegardError
        A text does not contain the word, or the traces are of different models.
    """
    return similarities(word_vectors(one, word, batch=batch), word_vectors(other, word, batch=batch))


def similarities(*vectors: Mapping[str, np.ndarray]) -> tuple[tuple[str, float], ...]:
    """Return the cosine similarity of the vectors of two texts, each as of `word_vectors`."""
    layers, widths = ([list(by_layer) for by_layer in vectors], [by_layer["original"].shape for by_layer in vectors])
    if layers[0] != layers[1] or widths[0] != widths[1]:
        raise RegardError(
            f"the traces are of different models: {len(layers[0]) - 1} layers of {widths[0]} and "
            f"{len(layers[1]) - 1} of {widths[1]}"
        )
    return tuple((name, cosine(vectors[0][name], vectors[1][name])) for name in layers[0])


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Return the cosine similarity of two vectors, ``E`` each; 0 if one of them is 0."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else 0.0


def word_vectors(trace: Trace, word: str, *, batch: int = 0) -> dict[str, np.ndarray]:
    """Return the vector of a word, ``E``: in the embedding table, and after each layer."""
    layers = layers_with("output", trace.names())
    names = {"original": "token_embeddings", **{f"layer {n}": f"blocks.{n}.output" for n in layers}}
    vectors: dict[str, np.ndarray] = {}
    for label, name in names.items():
        values, entries = batch_entry(trace[name], trace.axes(name), batch)
        encoding = batch_encoding(trace, batch, entries)
        if encoding is None:
            raise RegardError("the trace has no text: record the run of a model on a text")
        axis = make_axis(encoding, merge_subwords=True)
        rows = rows_of_word(axis.labels, axis.words, word)
        vectors[label] = axis.mean(values[: axis.length].astype(np.float64))[list(rows)].mean(axis=0)
    return vectors
