"""The original and the contextual vector of each word of a text, from a trace or from arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.reprs import fields_repr
from regard.functional.arrays import Array
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.views.axis import Axis, make_axis
from regard.views.projection import find_sinks
from regard.views.trace_access import batch_encoding, batch_entry, layers_with

_ORIGINAL = "token_embeddings"


@dataclass(frozen=True, eq=False)
class TextVectors:
    """The words of one text with their vectors."""

    labels: tuple[str, ...]  # T; see `escape` before printing them
    words: tuple[str, ...]  # T, the word that contains each item; the label itself where words are unknown
    special: tuple[bool, ...]  # T, whether each item is a special token
    sinks: tuple[bool, ...]  # T, whether each item is a sink, or has one among its tokens; see `find_sinks`
    original: np.ndarray  # T E
    contextual: np.ndarray  # T E
    original_label: str  # such as "token embedding"
    contextual_label: str  # such as "output of layer 5"
    model: str  # its name, or ""
    text: str  # as it was given, or ""

    __repr__ = fields_repr


def vectors_from_trace(
    trace: Trace, *, batch: int = 0, show_special_tokens: bool = False, merge_subwords: bool = False
) -> TextVectors:
    """Return ``token_embeddings`` and the output of the last block; the keywords are those of `select`.

    Sinks are sought in the outputs of all blocks that were recorded: the last blocks shorten their vectors again.

    An error if the trace lacks one of them, or has no such batch entry.
    """
    layers = layers_with("output", trace.names())
    if _ORIGINAL not in trace or not layers:
        raise RegardError(
            f"movement needs a trace with {_ORIGINAL!r} and the output of a block ('blocks.0.output'): "
            "record a run with Trace(), or give the two arrays"
        )
    last = layers[-1]
    original, entries = batch_entry(trace[_ORIGINAL], trace.axes(_ORIGINAL), batch)
    encoding = batch_encoding(trace, batch, entries)
    tokens = encoding or [str(i) for i in range(len(original))]
    axis = make_axis(tokens, show_special_tokens=show_special_tokens, merge_subwords=merge_subwords)
    names = "token embedding", f"output of layer {last}"
    text = encoding.text if encoding else ""
    outputs = (f"blocks.{layer}.output" for layer in layers)
    clouds = [original, *(batch_entry(trace[name], trace.axes(name), batch)[0] for name in outputs)]
    clouds = [cloud[: axis.length] for cloud in clouds]
    return _text_vectors(axis, clouds, names, model=trace.model, text=text)


def vectors_from_arrays(
    original: Array,
    contextual: Array,
    tokens: Encoding | Sequence[str] | None,
    *,
    show_special_tokens: bool = False,
    merge_subwords: bool = False,
) -> TextVectors:
    """Return the vectors of two arrays, ``T E``, for `tokens`, by default their positions; keywords as in `select`.

    An error if the arrays differ in shape, or if the tokens do not match their rows.
    """
    before, after = np.asarray(original), np.asarray(contextual)
    if before.ndim != 2 or before.shape != after.shape:
        raise RegardError(f"original and contextual vectors need one shape T E, got {before.shape} and {after.shape}")
    text = tokens.text if isinstance(tokens, Encoding) else ""
    tokens = [str(i) for i in range(len(before))] if tokens is None else tokens
    axis = make_axis(tokens, show_special_tokens=show_special_tokens, merge_subwords=merge_subwords)
    if axis.length != len(before):
        raise RegardError(f"{axis.length} tokens do not fit vectors of shape {before.shape}: give one for each row")
    return _text_vectors(axis, [before, after], ("original vector", "contextual vector"), model="", text=text)


def _text_vectors(
    axis: Axis, clouds: Sequence[np.ndarray], names: tuple[str, str], *, model: str, text: str
) -> TextVectors:
    """Return the first and the last of the clouds, ``T E`` each, with the sinks of all."""
    sinks = axis.mean(find_sinks(clouds)[:, None].astype(np.float64))[:, 0] > 0
    shown = list(axis.shown)
    return TextVectors(
        labels=tuple(axis.labels[i] for i in shown),
        words=tuple(axis.words[i] for i in shown),
        special=tuple(axis.special[i] for i in shown),
        sinks=tuple(sinks[shown].tolist()),
        original=axis.mean(clouds[0].astype(np.float64))[shown],
        contextual=axis.mean(clouds[-1].astype(np.float64))[shown],
        original_label=names[0],
        contextual_label=names[1],
        model=model,
        text=text,
    )
