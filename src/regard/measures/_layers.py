"""The maps of a trace's layers, a strip of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from regard._encoding import Encoding
from regard._errors import RegardError
from regard.attention_map import AttentionMap
from regard.trace import Trace

_AT_ONCE = 1 << 22  # weights that are held together


@dataclass(frozen=True, eq=False)
class LayerMap:
    """The self-attention of one layer for one text of a batch, without its padding.

    Parameters
    ----------
    name : str
        ``blocks.3.attn``.
    heads : int
    length : int
        Tokens of the text.
    """

    name: str
    heads: int
    length: int
    _source: AttentionMap | np.ndarray  # H T S

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        """Return the weights of some queries in float64, ``H R S``."""
        source = self._source
        part = source.tile(rows=index) if isinstance(source, AttentionMap) else source[:, index]
        return np.asarray(part[..., : self.length], dtype=np.float64)

    def strips(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield all queries, a few at a time, and their weights."""
        height = max(1, _AT_ONCE // max(1, self.heads * self.length))
        for start in range(0, self.length, height):
            rows = slice(start, min(start + height, self.length))
            yield rows, self.rows(rows)


def layers_of(trace: Trace, batch: int) -> list[LayerMap]:
    """Return the self-attention of every layer, from the first to the last.

    Cross-attention, and the decoder beside an encoder, look at or from another text and are left out.

    Raises
    ------
    RegardError
        There is none, or no such text.
    """
    names = [name.removesuffix(".weights") for name in trace.names() if name.endswith(".attn.weights")]
    if any(name.startswith("encoder.") for name in names):
        names = [name for name in names if name.startswith("encoder.")]
    if not names:
        raise RegardError(
            "the trace holds no attention of layers: record a run with Trace(maps=True), or Trace(only='*attn.weights')"
        )
    return [_layer(trace, name, batch) for name in names]


def _layer(trace: Trace, name: str, batch: int) -> LayerMap:
    weights = f"{name}.weights"
    axes = trace.axes(weights)
    if axes != "B H T S":
        raise RegardError(f"{weights} has the axes {axes}; measures are of maps with the axes B H T S")
    whole = _whole(trace, name)
    entries = whole.shape[0]
    if not 0 <= batch < entries:
        raise RegardError(f"there is no text {batch} in a batch of {entries}")
    *_, heads, queries, keys = whole.shape
    if queries != keys:
        raise RegardError(f"{weights} {whole.shape} is of {queries} tokens that look at {keys}: run the text in one go")
    length = len(trace.encodings[batch]) if trace.encodings else queries
    one = whole.entry(batch) if isinstance(whole, AttentionMap) else whole[batch]
    return LayerMap(name, heads, length, one)


def entries_of(trace: Trace) -> int:
    """Return how many texts a trace is of."""
    named = [name.removesuffix(".weights") for name in trace.names() if name.endswith(".attn.weights")]
    return _whole(trace, named[0]).shape[0] if named else 0


def _whole(trace: Trace, name: str) -> AttentionMap | np.ndarray:
    """Return all weights of an attention, as a map where the trace holds one."""
    try:
        return trace.map(name)
    except RegardError:
        return trace[f"{name}.weights"]


def encoding_of(trace: Trace, batch: int) -> Encoding | None:
    """Return the tokens of a text; None where the trace has none."""
    return trace.encodings[batch] if trace.encodings else None


def chosen_rows(rows: int | Sequence[int] | None, length: int) -> np.ndarray:
    """Return which of a text's tokens are asked for, all of them by default.

    Raises
    ------
    RegardError
        One of them is not there.
    """
    if rows is None:
        return np.arange(length)
    index = np.atleast_1d(np.asarray(rows))
    if index.ndim != 1 or index.dtype.kind not in "iu" or not all(-length <= i < length for i in index):
        raise RegardError(f"rows are numbers of the {length} tokens, got {rows!r}")
    return index % length
