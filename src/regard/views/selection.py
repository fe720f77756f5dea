"""Select one attention map with its labels: layer, head, batch entry, special tokens and sub-words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.reprs import fields_repr
from regard.functional.arrays import Array
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.trace.attention_map import AttentionMap
from regard.views.axis import Axis, make_axis, rows_of_word
from regard.views.trace_access import (
    batch_encoding,
    batch_entry,
    format_range,
    layers_with,
    resolve_head,
    resolve_index,
)

_ROUNDING = 0.01  # of the sum of a row of bfloat16 weights
_CELLS_PER_BLOCK = 1 << 20


@dataclass(frozen=True, eq=False)
class AttentionView:
    """One attention map with its labels.

    Each row of `weights` plus its entry of `special_mass` sums to the original sum of the row: 1 after a softmax.

    Parameters
    ----------
    weights : array of float64, ``T S``
    queries : tuple of str, T
        One for each row, as spelled by the tokenizer; see `escape` before printing them.
    keys : tuple of str, S
        One for each column.
    words : tuple of str, T
        The word that contains each query; the query itself where words are unknown.
    masked : array of bool, ``T S``
        True: the query cannot attend to the key. Exact where the trace has the map or the step ``biased``; from weights
        alone only a causal mask is recognised, by its triangle of zeros.
    is_causal : bool
        Whether tokens attend to themselves and to all earlier tokens, and to no others.
    positions : tuple of int, T
        The index of each query among the queries of the whole view.
    special_mass : array of float64, T
        The attention of each row on special tokens that are not shown; zeros if all are shown.
    special_tokens : tuple of str
        The special tokens that are not shown, each once; see `escape` before printing them.
    layer : int or None
        The layer, from 0; None for an array or a bare layer.
    layers : tuple of int
        The layers to choose from.
    head : int or None
        The head, from 0; None for the mean over heads, and for weights without heads.
    heads : int
        The number of heads to choose from; 0 without an axis of heads.
    model : str
        The name of the model, or "".
    """

    weights: np.ndarray
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    words: tuple[str, ...]
    masked: np.ndarray
    is_causal: bool
    positions: tuple[int, ...]
    special_mass: np.ndarray
    special_tokens: tuple[str, ...]
    layer: int | None
    layers: tuple[int, ...]
    head: int | None
    heads: int
    model: str

    __repr__ = fields_repr

    @property
    def describe(self) -> str:
        """The layer and head in words: ``layer 5 of 0–5, mean of 12 heads``; "" for an array T S."""
        parts = []
        if self.layer is not None:
            parts.append(_numbered("layer", self.layer, self.layers))
        if self.head is not None:
            parts.append(_numbered("head", self.head, tuple(range(self.heads))))
        elif self.heads > 1:
            parts.append(f"mean of {self.heads} heads")
        return ", ".join(parts)

    def rows(self, chosen: Sequence[int]) -> AttentionView:
        """Return the view of these queries, with all keys."""
        index = list(chosen)
        return replace(
            self,
            weights=self.weights[index],
            masked=self.masked[index],
            positions=tuple(self.positions[i] for i in index),
            queries=tuple(self.queries[i] for i in index),
            words=tuple(self.words[i] for i in index),
            special_mass=self.special_mass[index],
        )


def select(
    source: Trace | Array,
    tokens: Encoding | Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    layer: int | None = None,
    head: int | str | None = None,
    batch: int = 0,
    show_special_tokens: bool = False,
    merge_subwords: bool = False,
    span: tuple[int, int] | None = None,
) -> AttentionView:
    """Select one attention map.

    Parameters
    ----------
    source : Trace or array, ``T S``, ``H T S`` or ``B H T S``
        A trace that holds ``weights``, or the weights themselves.
    tokens : Encoding or sequence of str, T, optional
        The queries. Default: the trace's encoding, or positions if it has none.
    keys : sequence of str, S, optional
        The keys, if they differ from `tokens`: in cross-attention.
    layer : int, optional
        From 0; a negative number counts from the last. Default: the last, which produces the model's output. (In
        MiniLM it also puts less weight on special tokens than the middle layers: about 0.4, against 0.5 to 0.7.)
    head : int or str, optional
        From 0; a negative number counts from the last; or ``"L3H7"``, with its layer. Default: the mean over heads.
    batch : int
        The text of the batch.
    show_special_tokens : bool
        Show special tokens (``[CLS]``). By default their rows and columns are left out; weights are *not*
        renormalised, and `AttentionView.special_mass` is the weight of each row on them. If all tokens are special,
        as in an empty text, they are shown.
    merge_subwords : bool
        Merge sub-words into words: sum over keys, mean over queries, so that rows keep their sum.
    span : (int, int), optional
        The first token that is shown, and the first after it that is not; of a merged word, where it begins counts. The
        weight on other tokens is not shown, and rows lack it.

    Raises
    ------
    RegardError
        There are no weights, or no such layer, head, batch entry or token; shapes and labels do not match; or the
        weights are negative, not finite, or have rows that sum to more than 1.
    """
    recorded = _recorded(source)
    layers = tuple(number for number in recorded if number is not None)
    layer, head = resolve_head(layer, head, layers)
    if layer is None and layers:
        layer = layers[-1]
    weights, axes, scope = recorded[layer]
    stack, entries = _batch_entry(weights, axes, batch)
    if head is not None:
        if stack.ndim != 3:
            raise RegardError(f"weights of shape {stack.shape}, T S, have no heads: leave out head")
        head = resolve_index("head", head, range(stack.shape[0]))
    if tokens is None and isinstance(source, Trace):
        tokens = batch_encoding(source, batch, entries)
    rows, columns = _axes(stack, tokens, keys, show_special_tokens, merge_subwords, padded=entries > 1)
    if span is not None:
        rows, columns = rows.within(*span), columns.within(*span)
    masked = _masked(source, scope, stack, batch)
    return _view(source, stack, masked, rows, columns, layer, layers, head)


def every_head(
    trace: Trace, *, batch: int = 0, show_special_tokens: bool = False, merge_subwords: bool = False
) -> tuple[tuple[AttentionView, ...], ...]:
    """Return the map of each head, layer by layer; the keywords are those of `select`.

    A bare layer is one layer, and weights without heads are one head.
    """
    computed = lazy_heads(trace, batch, show_special_tokens, merge_subwords)
    return tuple(tuple(view() for view in of_layer) for of_layer in computed)


def lazy_heads(
    trace: Trace, batch: int, show_special_tokens: bool, merge_subwords: bool
) -> list[list[Callable[[], AttentionView]]]:
    """Return for each head of each layer a function that computes its map; the arguments are those of `select`."""
    recorded = _recorded(trace)
    layers = tuple(number for number in recorded if number is not None)
    layer_heads: list[list[Callable[[], AttentionView]]] = []
    for layer, (weights, axes, scope) in recorded.items():
        stack, entries = _batch_entry(weights, axes, batch)
        tokens = batch_encoding(trace, batch, entries)
        rows, columns = _axes(stack, tokens, None, show_special_tokens, merge_subwords, padded=entries > 1)
        heads = range(stack.shape[0]) if stack.ndim == 3 else (None,)
        masked = _masked(trace, scope, stack, batch)
        layer_heads.append([partial(_view, trace, stack, masked, rows, columns, layer, layers, head) for head in heads])
    return layer_heads


def top_k(view: AttentionView, k: int) -> tuple[tuple[tuple[int, float], ...], ...]:
    """Return for each query the `k` keys of largest weight, as (index in `view.keys`, weight).

    Largest first, ties in text order; masked keys are left out, so there may be fewer than `k`.
    """
    if k < 1:
        raise RegardError(f"k must be at least 1, got {k}")
    largest = []
    for row, masked in zip(view.weights, view.masked, strict=True):
        order = np.argsort(np.where(masked, np.inf, -row), kind="stable")[:k]
        largest.append(tuple((int(key), float(row[key])) for key in order if not masked[key]))
    return tuple(largest)


def find_rows(view: AttentionView, word: str) -> tuple[int, ...]:
    """Return the rows of a word: all of its occurrences and sub-words, in any case; of ``to:2`` those of the second.

    Raises
    ------
    RegardError
        The text does not contain the word; the message lists its words.
    """
    return rows_of_word(view.queries, view.words, word)


_Weights: TypeAlias = "np.ndarray | AttentionMap"


def _recorded(source: Trace | Array) -> dict[int | None, tuple[_Weights, str, str]]:
    """Return the weights, axes and scope of each layer, in order; the layer is None for weights without a layer."""
    if not isinstance(source, Trace):
        try:
            array = np.asarray(source)
        except ValueError as error:
            raise RegardError(f"weights must have rows of one length: {error}") from error
        axes = {2: "T S", 3: "H T S", 4: "B H T S"}.get(array.ndim)
        if axes is None or array.dtype.kind in "cOSUmM":
            raise RegardError(
                f"weights must be numbers with the axes T S, H T S or B H T S, got {array.dtype}, shape {array.shape}"
            )
        return {None: (array, axes, "")}
    named = [name for name in source.names() if name.split(".")[-1] == "weights"]
    layers = layers_with("attn.weights", named)
    if not named:
        raise RegardError("the trace holds no attention weights: record a run with Trace(only='*attn.weights')")
    if not layers and len(named) > 1:
        raise RegardError(f"the trace holds several weights: give one of them, such as trace[{named[0]!r}]")
    names: dict[int | None, str] = {layer: f"blocks.{layer}.attn.weights" for layer in layers}
    names = names or {None: named[0]}
    for name in names.values():
        if source.axes(name) not in ("T S", "H T S", "B H T S"):
            raise RegardError(f"{name} has the axes {source.axes(name)}: give an array with the axes H T S")
    scopes = {name: name.removesuffix("weights") for name in names.values()}
    return {
        layer: (
            source.map(scopes[name].rstrip(".")) if source.has_map(scopes[name].rstrip(".")) else source[name],
            source.axes(name),
            scopes[name],
        )
        for layer, name in names.items()
    }


def _batch_entry(weights: _Weights, axes: str, batch: int) -> tuple[_Weights, int]:
    """Return the weights of one text, without the axis ``B``, and the number of texts."""
    if isinstance(weights, np.ndarray):
        return batch_entry(weights, axes, batch)
    if axes.startswith("B "):
        return weights.select(resolve_index("batch entry", batch, range(weights.shape[0]))), weights.shape[0]
    if batch != 0:
        raise RegardError(f"values of shape {weights.shape}, {axes}, have no batch axis: leave out batch")
    return weights, 1


def _axes(
    stack: _Weights,
    tokens: Encoding | Sequence[str] | None,
    keys: Sequence[str] | None,
    show_special_tokens: bool,
    merge_subwords: bool,
    *,
    padded: bool,
) -> tuple[Axis, Axis]:
    """Return the axes of the rows and the columns."""
    height, width = stack.shape[-2:]
    if tokens is None:
        rows = make_axis([str(i) for i in range(height)], merge_subwords=merge_subwords)
        columns = make_axis([str(i) for i in range(width)] if keys is None else keys)
    else:
        rows = make_axis(tokens, show_special_tokens=show_special_tokens, merge_subwords=merge_subwords)
        columns = rows if keys is None else make_axis(keys)
    fits = (rows.length, columns.length) == (height, width)
    within = rows.length <= height and columns.length <= width
    beyond = slice(rows.length), slice(columns.length, None)
    if not fits and not (padded and within and not np.any(_tile(stack, *beyond))):
        raise RegardError(
            f"{rows.length} tokens and {columns.length} keys do not fit weights of shape {stack.shape}: give tokens "
            f"for the {height} rows, and keys for the {width} columns if they differ"
        )
    return rows, columns


def _view(
    source: Trace | Array,
    stack: _Weights,
    masked: np.ndarray,
    rows: Axis,
    columns: Axis,
    layer: int | None,
    layers: tuple[int, ...],
    head: int | None,
) -> AttentionView:
    selected = stack if head is None else stack.select(head) if isinstance(stack, AttentionMap) else stack[head]
    masked = masked[head] if masked.ndim == 3 and head is not None else masked
    starts = np.array([*rows.starts, rows.length])
    items, keys, omitted = (np.array(indices, np.intp) for indices in (rows.shown, columns.shown, columns.omitted))
    weights = np.empty((len(items), len(keys)))
    hidden, special_mass = np.empty(weights.shape, bool), np.empty(len(items))
    is_causal = rows.length > 1
    height = max(1, _CELLS_PER_BLOCK // columns.length)
    for first in range(0, len(rows.starts), height):  # so that no other array of the size of the map is made
        block = range(first, min(first + height, len(rows.starts)))
        span, bounds = slice(starts[block.start], starts[block.stop]), starts[block.start : block.stop + 1]
        tile = _tile(selected, span, slice(columns.length))
        tile = validate_weights(tile if tile.ndim == 2 else tile.mean(axis=0, dtype=np.float64))
        merged = columns.sum(tile, axis=1)
        averaged = np.add.reduceat(merged, bounds[:-1] - span.start) / np.diff(bounds)[:, None]
        mask = masked[..., span, : columns.length]
        mask = mask if mask.ndim == 2 else mask.all(axis=0)
        is_causal = is_causal and np.array_equal(mask, np.arange(columns.length) > np.arange(rows.length)[span, None])
        visible = np.logical_or.reduceat(~mask, columns.starts, axis=1)
        visible = np.logical_or.reduceat(visible, bounds[:-1] - span.start, axis=0)
        low, high = np.searchsorted(items, [block.start, block.stop])
        shown = items[low:high] - block.start
        weights[low:high] = averaged[np.ix_(shown, keys)]
        hidden[low:high] = ~visible[np.ix_(shown, keys)]
        special_mass[low:high] = averaged[np.ix_(shown, omitted)].sum(axis=1)
    return AttentionView(
        weights=weights,
        queries=tuple(rows.labels[i] for i in rows.shown),
        keys=tuple(columns.labels[i] for i in columns.shown),
        words=tuple(rows.words[i] for i in rows.shown),
        masked=hidden,
        is_causal=is_causal,
        positions=tuple(range(len(items))),
        special_mass=special_mass,
        special_tokens=tuple(dict.fromkeys(columns.labels[i] for i in columns.omitted)),
        layer=layer,
        layers=layers,
        head=head,
        heads=stack.shape[0] if stack.ndim == 3 else 0,
        model=source.model if isinstance(source, Trace) else "",
    )


def _tile(weights: _Weights, rows: slice, cols: slice) -> np.ndarray:
    return np.asarray(weights.tile(rows, cols) if isinstance(weights, AttentionMap) else weights[..., rows, cols])


def _masked(source: Trace | Array, scope: str, stack: _Weights, batch: int) -> np.ndarray:
    """Return where queries cannot attend to keys, ``T S`` or ``H T S``; `stack` are the weights of that `scope`."""
    if isinstance(source, Trace) and source.has_map(scope.rstrip(".")):
        mask = source.map(scope.rstrip(".")).mask()
        masked = np.zeros((1, 1), bool) if mask is None else np.asarray(mask) == 0
    elif isinstance(source, Trace) and f"{scope}biased" in source:
        masked = np.isneginf(source[f"{scope}biased"])
    else:
        assert isinstance(stack, np.ndarray)
        never = np.asarray((stack == 0).reshape(-1, *stack.shape[-2:]).all(axis=0))
        masked = never if np.array_equal(never, _later(len(never))) else np.zeros((1, 1), bool)
    if masked.ndim == 4:
        masked = masked[batch if len(masked) > 1 else 0]
    return np.broadcast_to(masked, stack.shape[-masked.ndim :])


def _later(length: int) -> np.ndarray:
    """Return which keys come after each query, ``T T``."""
    return np.triu(np.ones((length, length), bool), 1)


def validate_weights(weights: np.ndarray) -> np.ndarray:
    """Return weights in float64, checked: finite, not negative, rows that sum to at most 1."""
    weights = weights.astype(np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise RegardError("weights must be finite and not negative: apply softmax to scores first")
    if (largest := weights.sum(axis=1).max()) > 1 + _ROUNDING:
        raise RegardError(f"a row of weights must sum to at most 1, got {largest:.3g}: apply softmax over S")
    return weights


def _numbered(kind: str, number: int, available: Sequence[int]) -> str:
    return f"{kind} {number}" if len(available) == 1 else f"{kind} {number} of {format_range(available)}"
