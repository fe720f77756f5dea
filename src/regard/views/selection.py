"""Choosing one map of attention and making it ready to be shown, the same for every view.

Which layer and head; which text of a batch; without special tokens, whose mass stays as a number; sub-words
merged into words. Draws nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.views.axis import Axis, axis_of, rows_of_word
from regard.views.trace_access import encoding_of, entry_of, layers_with, number_of, span

_ROUNDING = 0.01  # what a row of bfloat16 weights may be off by


@dataclass(frozen=True, eq=False)
class AttentionView:
    """One map of attention with its labels, as a view shows it.

    Each row of `weights` together with its entry in `hidden` sums to what the row summed to before anything was
    hidden or merged: 1 after a softmax.

    Parameters
    ----------
    weights : array of float64, ``T S``
    queries : tuple of str, T
        What looks, one for each row. As the tokenizer spells it: not yet safe to print, see `readable`.
    keys : tuple of str, S
        What is looked at, one for each column.
    words : tuple of str, T
        The word of the text that each query is a part of; the query itself where that is not known.
    hidden : array of float64, T
        The mass of each row that goes to special tokens which are not shown; zeros when none are hidden.
    hidden_keys : tuple of str
        The special tokens that are not shown, each once; not yet safe to print either.
    layer : int or None
        The layer as it is numbered in names, from 0; None for an array or a bare layer.
    layers : tuple of int
        The layers that there were to choose from.
    head : int or None
        The head, from 0; None for the mean over heads, and where there are no heads.
    heads : int
        How many heads there were to choose from; 0 where there is no axis of heads.
    model : str
        The name of the model, or "".
    """

    weights: np.ndarray
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    words: tuple[str, ...]
    hidden: np.ndarray
    hidden_keys: tuple[str, ...]
    layer: int | None
    layers: tuple[int, ...]
    head: int | None
    heads: int
    model: str

    @property
    def describe(self) -> str:
        """Which layer and head this is, in words: ``layer 5 of 0–5, mean of 12 heads``; "" where there is one."""
        parts = []
        if self.layer is not None:
            parts.append(_numbered("layer", self.layer, self.layers))
        if self.head is not None:
            parts.append(_numbered("head", self.head, tuple(range(self.heads))))
        elif self.heads > 1:
            parts.append(f"mean of {self.heads} heads")
        return ", ".join(parts)

    def rows(self, chosen: Sequence[int]) -> AttentionView:
        """Return the view of these queries alone, with all keys."""
        index = list(chosen)
        return replace(
            self,
            weights=self.weights[index],
            queries=tuple(self.queries[i] for i in index),
            words=tuple(self.words[i] for i in index),
            hidden=self.hidden[index],
        )


def default_choice(layers: Sequence[int]) -> tuple[int, int | None]:
    """Return the layer and head (None: the mean) to show when none was asked for.

    The last layer, for it makes the vectors that leave the model; the mean of its heads, for none of them may
    speak for the others unasked. In MiniLM it also gives less to the special tokens than the layers in the middle
    do (about 0.4, against 0.5 to 0.7), and its "it" looks most at the animal that was too tired.
    """
    return layers[-1], None


def select(
    source: Trace | Array,
    tokens: Encoding | Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
    batch: int = 0,
    keep_special: bool = False,
    words: bool = False,
) -> AttentionView:
    """Choose one map of attention.

    Parameters
    ----------
    source : Trace or array, ``T S``, ``H T S`` or ``B H T S``
        A trace that holds ``weights``, or the weights themselves.
    tokens : Encoding or sequence of str, T, optional
        What looks. By default the trace's own encoding, or the positions where there is none.
    keys : sequence of str, S, optional
        What is looked at, where that is not `tokens`: in cross-attention.
    layer : int, optional
        As numbered in names, from 0; a negative one counts from the last. By default see `default_choice`.
    head : int, optional
        From 0; a negative one counts from the last. The mean over heads by default.
    batch : int
        Which text of the batch.
    keep_special : bool
        Show special tokens (``[CLS]``) too. By default their rows and columns are left out; weights are *not*
        renormalised, and `AttentionView.hidden` has the mass that each row gives to them. When all tokens are
        special, as in an empty text, they are shown.
    words : bool
        Merge sub-words into words: the sum over keys and the mean over queries, so that rows keep their sum.

    Raises
    ------
    RegardError
        There are no weights, or no such layer, head or batch entry; shapes and labels do not fit; or the
        weights cannot be shares: negative, not finite, or rows that sum to more than 1.
    """
    recorded = _recorded(source)
    layers = tuple(number for number in recorded if number is not None)
    if layers:
        layer = default_choice(layers)[0] if layer is None else number_of("layer", layer, layers)
    elif layer is not None:
        raise RegardError(f"there are no layers to choose {layer} from: leave out layer")
    stack, entries = entry_of(*recorded[layer], batch)
    if stack.ndim == 3:
        head = default_choice(layers or (0,))[1] if head is None else number_of("head", head, range(len(stack)))
    elif head is not None:
        raise RegardError(f"weights of shape {stack.shape}, T S, have no heads: leave out head")
    if tokens is None and isinstance(source, Trace):
        tokens = encoding_of(source, batch, entries)
    rows, columns = _axes(stack, tokens, keys, keep_special=keep_special, words=words, padded=entries > 1)
    return _view(source, stack, rows, columns, layer=layer, layers=layers, head=head)


def every_head(
    trace: Trace, *, batch: int = 0, keep_special: bool = False, words: bool = False
) -> tuple[tuple[AttentionView, ...], ...]:
    """Return the map of each head, layer by layer; the keywords are those of `select`.

    A bare layer counts as one layer, and weights without heads as one head.
    """
    recorded = _recorded(trace)
    layers = tuple(number for number in recorded if number is not None)
    views = []
    for layer, weights in recorded.items():
        stack, entries = entry_of(*weights, batch)
        tokens = encoding_of(trace, batch, entries)
        rows, columns = _axes(stack, tokens, None, keep_special=keep_special, words=words, padded=entries > 1)
        heads = range(len(stack)) if stack.ndim == 3 else (None,)
        views.append(tuple(_view(trace, stack, rows, columns, layer=layer, layers=layers, head=head) for head in heads))
    return tuple(views)


def strongest(view: AttentionView, k: int) -> tuple[tuple[tuple[int, float], ...], ...]:
    """Return for each query the `k` keys it looks at most, as (index in `view.keys`, weight).

    Strongest first, equal ones in the order of the text. Fewer than `k` where there are fewer keys.
    """
    if k < 1:
        raise RegardError(f"the strongest {k} keys are none: ask for at least 1")
    order = np.argsort(-view.weights, axis=-1, kind="stable")[:, :k]
    return tuple(
        tuple((int(key), float(row[key])) for key in chosen) for row, chosen in zip(view.weights, order, strict=True)
    )


def matching(view: AttentionView, word: str) -> tuple[int, ...]:
    """Return the rows of a word, all of its occurrences and sub-words, without regard to case.

    Raises
    ------
    RegardError
        The text does not have that word; the message lists those it has.
    """
    return rows_of_word(view.queries, view.words, word)


def _recorded(source: Trace | Array) -> dict[int | None, tuple[Array, str]]:
    """Return the weights of each layer with their axes, in order; the layer is None where it has no number."""
    if not isinstance(source, Trace):
        try:
            array = np.asarray(source)
        except ValueError as error:
            raise RegardError(f"weights need rows of one length: {error}") from error
        axes = {2: "T S", 3: "H T S", 4: "B H T S"}.get(array.ndim)
        if axes is None or array.dtype.kind in "cOSUmM":
            raise RegardError(
                f"weights are numbers with the axes T S, H T S or B H T S, got {array.dtype}, shape {array.shape}"
            )
        return {None: (array, axes)}
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
            raise RegardError(f"{name} has the axes {source.axes(name)}: give its entry with the axes H T S")
    return {layer: (source[name], source.axes(name)) for layer, name in names.items()}


def _axes(
    stack: np.ndarray,
    tokens: Encoding | Sequence[str] | None,
    keys: Sequence[str] | None,
    *,
    keep_special: bool,
    words: bool,
    padded: bool,
) -> tuple[Axis, Axis]:
    """Return what stands along the rows and along the columns of the maps."""
    height, width = stack.shape[-2:]
    if tokens is None:
        rows = axis_of([str(i) for i in range(height)], words=words)
        columns = axis_of([str(i) for i in range(width)] if keys is None else keys)
    else:
        rows = axis_of(tokens, keep_special=keep_special, words=words)
        columns = rows if keys is None else axis_of(keys)
    fits = (rows.length, columns.length) == (height, width)
    within = rows.length <= height and columns.length <= width
    if not fits and not (padded and within and not np.any(stack[..., : rows.length, columns.length :])):
        raise RegardError(
            f"{rows.length} tokens and {columns.length} keys do not fit weights of shape {stack.shape}: give one "
            f"of tokens for each of the {height} rows, and keys for the {width} columns where those are others"
        )
    return rows, columns


def _view(
    source: Trace | Array,
    stack: np.ndarray,
    rows: Axis,
    columns: Axis,
    *,
    layer: int | None,
    layers: tuple[int, ...],
    head: int | None,
) -> AttentionView:
    stack = stack[..., : rows.length, : columns.length]
    chosen = stack if stack.ndim == 2 else stack.mean(axis=0, dtype=np.float64) if head is None else stack[head]
    weights = softmax_with_sink(chosen)
    merged = rows.mean(columns.sum(weights, axis=1))
    shown = merged[list(rows.shown)]
    hidden_keys = dict.fromkeys(columns.labels[i] for i in columns.hidden)
    return AttentionView(
        weights=shown[:, list(columns.shown)],
        queries=tuple(rows.labels[i] for i in rows.shown),
        keys=tuple(columns.labels[i] for i in columns.shown),
        words=tuple(rows.words[i] for i in rows.shown),
        hidden=shown[:, list(columns.hidden)].sum(axis=1),
        hidden_keys=tuple(hidden_keys),
        layer=layer,
        layers=layers,
        head=head,
        heads=len(stack) if stack.ndim == 3 else 0,
        model=source.model if isinstance(source, Trace) else "",
    )


def softmax_with_sink(weights: np.ndarray) -> np.ndarray:
    """Return weights in float64, having made sure that they can be shares of a whole."""
    weights = weights.astype(np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise RegardError("weights are finite and not negative, these are not; scores become weights by softmax")
    if (largest := weights.sum(axis=1).max()) > 1 + _ROUNDING:
        raise RegardError(f"a row of weights sums to at most 1, one of these to {largest:.3g}; softmax goes over S")
    return weights


def _numbered(kind: str, number: int, available: Sequence[int]) -> str:
    return f"{kind} {number}" if len(available) == 1 else f"{kind} {number} of {span(available)}"
