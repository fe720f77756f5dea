"""The weights of a trace's self-attention layers for one sequence, stored as maps or as arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import truncate
from regard.functional.scores.stages import Stage
from regard.nn.decoder import layers_without_map, require_maps
from regard.text.encoding import Encoding
from regard.trace import AttentionMap, Trace

WEIGHTS_PER_BLOCK = 1 << 22
"""The number of weights of a block of rows."""

CancelCheck: TypeAlias = Callable[[], None]
"""Called between blocks of a long computation; raises if it was cancelled."""


@dataclass(frozen=True, eq=False)
class LayerMap:
    """The self-attention of one layer for one sequence of a batch, without its padding."""

    name: str  # blocks.3.attn; "" for a bare layer
    source: AttentionMap | np.ndarray  # H T S or T S, with its padding
    kv_heads: int | None  # G; None where neither keys nor values were recorded
    length: int  # tokens of the sequence: T and S

    @cached_property
    def heads(self) -> tuple[AttentionMap | np.ndarray, ...]:
        """The heads, ``T S`` each, with padding."""
        source = self.source
        if source.ndim == 2:
            return (source,)
        if isinstance(source, AttentionMap):
            return tuple(source.select(head) for head in range(source.shape[0]))
        return tuple(source)

    @property
    def is_map(self) -> bool:
        """Whether weights and earlier stages are computed when they are read."""
        return isinstance(self.source, AttentionMap)

    @property
    def is_padded(self) -> bool:
        """Whether the source has more rows and columns than the sequence has tokens."""
        return self.source.shape[-1] > self.length

    def step(self, name: str) -> str:
        """Return the full name of a step of this attention."""
        return f"{self.name}.{name}" if self.name else name

    def kv_head(self, head: int) -> int | None:
        """Return the key/value head of a query head; None if the number of key/value heads is unknown."""
        return None if self.kv_heads is None else head * self.kv_heads // len(self.heads)

    def tile(self, head: int, rows: Any, cols: Any, stage: Stage = "weights") -> np.ndarray:
        """Return some rows and columns of a head: slices, integer arrays, or None for all.

        Stages other than weights need a map.
        """
        return self._part(self.heads[head], rows, cols, stage)

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        """Return the weights of some queries in float64, ``H R S``."""
        part = self._part(self.source, index, None).astype(np.float64)
        return part if part.ndim == 3 else part[None]

    def row_blocks(
        self, rows: np.ndarray | None = None, check: CancelCheck = lambda: None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield blocks of query positions, of all rows or of some, with their weights, ``H R S`` in float64."""
        heads = self.source.shape[0] if self.source.ndim == 3 else 1
        height = max(1, WEIGHTS_PER_BLOCK // (heads * self.length))
        for start in range(0, self.length if rows is None else len(rows), height):
            check()
            if rows is None:
                span = slice(start, min(start + height, self.length))
                yield np.arange(span.start, span.stop), self.rows(span)
            else:
                yield rows[start : start + height], self.rows(rows[start : start + height])

    def values(self, trace: Trace, batch: int) -> np.ndarray:
        """Return the values of each key/value head in float64, ``G S Dv``."""
        v = trace[self.step("v")]
        return np.asarray((v[batch] if v.ndim == 4 else v)[:, : self.length], dtype=np.float64)

    def _part(self, source: AttentionMap | np.ndarray, rows: Any, cols: Any, stage: Stage = "weights") -> np.ndarray:
        if self.is_padded:
            rows, cols = (slice(0, self.length) if index is None else index for index in (rows, cols))
        if isinstance(source, AttentionMap):
            return np.asarray(source.tile(rows, cols, stage=stage))
        assert stage == "weights"
        rows, cols = (slice(None) if index is None else index for index in (rows, cols))
        return np.asarray(source[..., rows, :][..., cols])


def layers_of(trace: Trace, batch: int) -> list[LayerMap]:
    """Return the self-attention of every layer, from the first to the last; an error if there is none.

    Cross-attention, and the decoder of an encoder–decoder, are left out.
    """
    layers_or_reasons = [_layer(trace, name, batch) for name in _names(trace)]
    layers = [layer for layer in layers_or_reasons if isinstance(layer, LayerMap)]
    if len({layer.length for layer in layers}) == 1:
        return layers
    for reason in layers_or_reasons:
        if isinstance(reason, str):
            raise RegardError(reason)
    raise RegardError(
        "the trace has no self-attention: record a run with Trace(maps=True), or "
        "Trace(maps=True, only=['*attn.weights', '*attn.v'])"
    )


def every_layer_of(trace: Trace, batch: int, what: str) -> list[LayerMap]:
    """Return `layers_of`; an error, for `what` needs all, if a layer has no map."""
    layers = layers_of(trace, batch)
    require_maps(getattr(trace, "source", None), what)
    if (missing := missing_layer(layers)) is not None:
        raise RegardError(f"{what} needs a map of every layer, and the trace has none of blocks.{missing}")
    return layers


def missing_layer(layers: Sequence[LayerMap], model: Any = None) -> int | None:
    """Return the first layer of a model, or before the last of some, that has no map among them; None for none."""
    numbers = layer_numbers([layer.name for layer in layers])
    without = layers_without_map(model) or sorted(set(range(max(numbers, default=0))) - set(numbers))
    return without[0] if without else None


def layer_numbers(names: Sequence[str]) -> tuple[int, ...]:
    """Return the number of each layer in its model, by its name, ``blocks.3.attn``; its place here if it has none."""
    matches = [re.search(r"blocks\.(\d+)\.", name) for name in names]
    return tuple(place if match is None else int(match[1]) for place, match in enumerate(matches))


def entries_of(trace: Trace) -> int:
    """Return the batch size of a trace."""
    return next((_entries(trace, name) for name in _names(trace)), 0)


def _names(trace: Trace) -> list[str]:
    """Return the names of the weights of self-attention."""
    if not isinstance(trace, Trace):
        raise RegardError(f"a trace of a run is needed, regard.Trace(), got {truncate(trace)}")
    names = [name for name in trace.names() if name.rpartition(".")[2] == "weights" and "cross_attn" not in name]
    return [name for name in names if name.startswith("encoder.")] or names


def _entries(trace: Trace, weights: str) -> int:
    return _source(trace, weights).shape[0] if trace.axes(weights).startswith("B ") else 1


def _source(trace: Trace, weights: str) -> AttentionMap | np.ndarray:
    """Return all weights of an attention, as a map if the trace has one."""
    name = weights.rpartition(".")[0]
    return trace.map(name) if trace.has_map(name) else trace[weights]


def _layer(trace: Trace, weights: str, batch: int) -> LayerMap | str:
    """Return one self-attention, or the reason why it is none."""
    name, axes, source = weights.rpartition(".")[0], trace.axes(weights), _source(trace, weights)
    if axes not in ("T S", "H T S", "B H T S"):
        return f"{weights} has the axes {axes}, which are not T S, H T S or B H T S"
    entries = _entries(trace, weights)
    if not 0 <= batch < entries:
        raise RegardError(f"there is no sequence {batch} in a batch of {entries}")
    *_, queries, keys = source.shape
    length = len(trace.encodings[batch]) if trace.encodings else queries
    if length == 0:
        return f"{weights} {source.shape} has no tokens"
    if queries != keys or length > queries:
        return f"{weights} {source.shape} has {queries} queries and {keys} keys: run the whole sequence at once"
    kv_heads = _kv_heads(trace, name, source)
    if axes == "B H T S":
        source = source.select(batch) if isinstance(source, AttentionMap) else source[batch]
    return LayerMap(name, source, kv_heads, length)


def _kv_heads(trace: Trace, name: str, source: AttentionMap | np.ndarray) -> int | None:
    """Return the number of key/value heads, from recorded keys or values; None if there are none."""
    if isinstance(source, AttentionMap):
        shared = [source.k]
    else:
        steps = (f"{name}.{step}" if name else step for step in ("k", "v"))
        shared = [trace[step] for step in steps if step in trace]
    return (shared[0].shape[-3] if shared[0].ndim > 2 else 1) if shared else None


def encoding_of(trace: Trace, batch: int) -> Encoding | None:
    """Return the tokens of a sequence; None if the trace has none."""
    return trace.encodings[batch] if trace.encodings else None


def chosen_rows(rows: int | Sequence[int] | None, length: int) -> np.ndarray:
    """Return the positions of the selected tokens, all by default; an error if one is out of range."""
    if rows is None:
        return np.arange(length)
    index = np.atleast_1d(np.asarray(rows))
    if index.ndim != 1 or index.dtype.kind not in "iu" or not all(-length <= i < length for i in index):
        raise RegardError(f"rows must be positions of the {length} tokens, got {rows!r}")
    return index % length
