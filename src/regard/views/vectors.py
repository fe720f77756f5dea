"""What the words of a text were and what they became: a pair of vectors for each, from a trace or from arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.views.axis import Axis, axis_of
from regard.views.trace_access import encoding_of, entry_of, layers_with

_ORIGINAL = "token_embeddings"


@dataclass(frozen=True, eq=False)
class TextVectors:
    """The words of one text with their vectors.

    Parameters
    ----------
    labels : tuple of str, T
        Not yet safe to print, see `readable`.
    words : tuple of str, T
        The word that each is a part of; the label itself where that is not known.
    original, contextual : array, ``T E``
    was, became : str
        What the vectors are, such as ``"token embedding"`` and ``"output of layer 5"``.
    model, text : str
        The name of the model and the text, or "".
    """

    labels: tuple[str, ...]
    words: tuple[str, ...]
    original: np.ndarray
    contextual: np.ndarray
    was: str
    became: str
    model: str
    text: str


def of_trace(trace: Trace, *, batch: int = 0, keep_special: bool = False, words: bool = False) -> TextVectors:
    """Take ``token_embeddings`` and the output of the last block; the keywords are those of `select`.

    A word of several sub-words has the mean of their vectors.

    Raises
    ------
    RegardError
        The trace lacks one of them, or has no such batch entry.
    """
    layers = layers_with("output", trace.names())
    if _ORIGINAL not in trace or not layers:
        raise RegardError(
            f"movement needs a trace with {_ORIGINAL!r} and the output of a block ('blocks.0.output'): "
            "record a run with Trace(), or give the two arrays"
        )
    last = layers[-1]
    (original, entries), (contextual, _) = (
        entry_of(trace[name], trace.axes(name), batch) for name in (_ORIGINAL, f"blocks.{last}.output")
    )
    encoding = encoding_of(trace, batch, entries)
    axis = axis_of(encoding or [str(i) for i in range(len(original))], keep_special=keep_special, words=words)
    return _with_vectors(
        axis,
        original[: axis.length],
        contextual[: axis.length],
        was="token embedding",
        became=f"output of layer {last}",
        model=trace.model,
        text=encoding.text if encoding else "",
    )


def of_arrays(
    original: Array,
    contextual: Array,
    tokens: Encoding | Sequence[str] | None,
    *,
    keep_special: bool = False,
    words: bool = False,
) -> TextVectors:
    """Take two arrays, ``T E``, and their tokens, by default their positions; the keywords are those of `select`.

    Raises
    ------
    RegardError
        The arrays differ in shape, or there is not one token for each of their rows.
    """
    before, after = np.asarray(original), np.asarray(contextual)
    if before.ndim != 2 or before.shape != after.shape:
        raise RegardError(f"original and contextual vectors need one shape T E, got {before.shape} and {after.shape}")
    axis = axis_of(
        [str(i) for i in range(len(before))] if tokens is None else tokens,
        keep_special=keep_special,
        words=words,
    )
    if axis.length != len(before):
        raise RegardError(f"{axis.length} tokens do not fit vectors of shape {before.shape}: give one for each row")
    text = tokens.text if isinstance(tokens, Encoding) else ""
    return _with_vectors(axis, before, after, was="original vector", became="contextual vector", model="", text=text)


def _with_vectors(
    axis: Axis, original: np.ndarray, contextual: np.ndarray, *, was: str, became: str, model: str, text: str
) -> TextVectors:
    shown = list(axis.shown)
    return TextVectors(
        labels=tuple(axis.labels[i] for i in shown),
        words=tuple(axis.words[i] for i in shown),
        original=axis.mean(original.astype(np.float64))[shown],
        contextual=axis.mean(contextual.astype(np.float64))[shown],
        was=was,
        became=became,
        model=model,
        text=text,
    )
