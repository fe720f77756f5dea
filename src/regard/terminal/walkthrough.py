"""Every step from token to output with its numbers, as the lessons print it, and the arithmetic of one row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from regard._utils.errors import RegardError
from regard.terminal.tables import ljust, wrap_parts
from regard.text.token_labels import token_labels
from regard.trace import Trace
from regard.trace.steps import formula
from regard.views.labels import escape, format_number, head_label
from regard.views.trace_access import batch_entry, layers_with, resolve_index

_FEW = 6  # printed numbers of a long vector
_CELL = 9  # columns of a number
_WIDTH = 100
_MAX_ROWS = 40


@dataclass(frozen=True, eq=False)
class _Numbers:
    """The steps of one head of one layer, for one text of a trace."""

    layer: int
    head: int
    kv_head: int
    tokens: tuple[str, ...]
    inputs: tuple[tuple[str, np.ndarray], ...]
    hides_projected: bool  # whether queries and keys before norms and rotation are others, and were not recorded
    projected_q: np.ndarray | None  # None: not recorded, or q itself
    projected_k: np.ndarray | None
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    scores: np.ndarray
    later_scores: tuple[tuple[str, np.ndarray], ...]
    weights: np.ndarray
    context: np.ndarray
    output: np.ndarray

    @property
    def final_scores(self) -> np.ndarray:
        """The input of the softmax: −∞ for masked keys."""
        return self.later_scores[-1][1] if self.later_scores else self.scores

    @property
    def scaling(self) -> str:
        """The scale of q · k: ``÷ √D``, or the factor of the model."""
        products = self.q.astype(np.float64) @ self.k.astype(np.float64).T
        largest = np.unravel_index(np.argmax(np.abs(products)), products.shape)
        scale = float(self.scores[largest] / products[largest]) if products[largest] else 0.0
        width = self.q.shape[-1]
        return f"÷ √{width}" if not scale or abs(scale * math.sqrt(width) - 1) < 1e-3 else f"× {_number(scale)}"


def explain(trace: Trace, *, layer: int | None = None, head: int = 0, batch: int = 0, width: int = _WIDTH) -> Text:
    """Return every step of one head of one layer: name, formula, shape and numbers.

    Terms in brackets apply if the layer has those parameters.

    Parameters
    ----------
    trace : Trace
        Of the run of a model, with every step. The norm before attention, and queries and keys before their norms and
        rotation, are shown if they were recorded:
        ``Trace(only="*", optional=["*.attn_norm", "*.projected_q", "*.projected_k"])``.
    layer : int, optional
        From 0; a negative number counts from the last. Default: the first, whose input is the embeddings.
    head, batch : int
        The head, and the text of a batch.
    width : int
        Columns of the terminal: a wider map continues below, and of a long vector fewer numbers are printed.

    Raises
    ------
    RegardError
        There is no such layer, head or text, or a step was not recorded.
    """
    n = _numbers(trace, layer, head, batch)
    page = Text()
    page.append("Tokens\n", style="bold")
    numbered = [f"{i} {token}" for i, token in enumerate(n.tokens)]
    page.append("\n".join(wrap_parts(numbered, width, "  ", "  ")) + "\n\n")

    def matrix(name: str, how: str, values: np.ndarray, rows: Sequence[str], columns: Sequence[str] = ()) -> None:
        _matrix(page, width, name, how, values, rows, columns)

    for name, values in n.inputs:
        rows = n.tokens if values.shape[0] == len(n.tokens) else ("",)
        is_norm = name.endswith(".attn_norm")
        matrix(name, "norm(x): what attention reads, called x from here on" if is_norm else formula(name), values, rows)
    at = f"blocks.{n.layer}.attn"
    shared = f" of kv head {n.kv_head}" if n.kv_head != n.head else ""
    for letter, place, what in (("q", f", head {n.head}", "query"), ("k", shared, "key")):
        projected, values = getattr(n, f"projected_{letter}"), getattr(n, letter)
        how, meaning = f"x · W_{letter} (+ b_{letter})", f"the {what} of each token"
        if n.hides_projected:
            how += " after norm or rotation"
        if projected is not None:
            matrix(f"{at}.projected_{letter}{place}", f"{how}: before norm or rotation", projected, n.tokens)
            how = f"projected_{letter} after norm or rotation"
        matrix(f"{at}.{letter}{place}", f"{how}: {meaning}", values, n.tokens)
    matrix(f"{at}.v{shared}", "x · W_v (+ b_v): the value of each token", n.v, n.tokens)
    matrix(f"{at}.scores", f"q · kᵀ {n.scaling}: how well query and key match", n.scores, n.tokens, n.tokens)
    for name, values in n.later_scores:
        matrix(f"{at}.{name}", formula(name), values, n.tokens, n.tokens)
    last = n.later_scores[-1][0] if n.later_scores else "scores"
    minus = "" if np.allclose(n.weights.sum(-1), 1, atol=1e-3) else ", minus the weight of the sink"
    matrix(f"{at}.weights", f"softmax({last}): each row sums to 1{minus}", n.weights, n.tokens, n.tokens)
    matrix(f"{at}.context", "weights · v: the weighted sum of the values", n.context, n.tokens)
    matrix(f"{at}.output", formula(f"{at}.output"), n.output, n.tokens)
    page.rstrip()
    return page


def explain_row(
    trace: Trace, row: int, *, layer: int | None = None, head: int = 0, batch: int = 0, width: int = _WIDTH
) -> Text:
    """Return the arithmetic of one row of one head: scores with their terms, softmax, weighted sum of the values.

    Masked keys are left out.

    Parameters
    ----------
    trace : Trace
    row : int
        The position of the query.
    layer, head, batch, width
        As in `explain`.

    Raises
    ------
    RegardError
        As in `explain`, or there is no such row.
    """
    n = _numbers(trace, layer, head, batch)
    row = resolve_index("token", row, range(len(n.tokens)))
    label = max(map(cell_len, n.tokens))
    q, weights, final = n.q[row], n.weights[row], n.final_scores[row].astype(np.float64)
    allowed = [(token, j) for j, token in enumerate(n.tokens) if final[j] > -math.inf]
    page = Text()
    page.append(f"{n.tokens[row]}, token {row}, in {head_label(n.layer, n.head)}\n\n", style="bold")
    page.append(f"q({n.tokens[row]}) = {_vector(q, width - cell_len(n.tokens[row]) - 6)}\n\n")
    which = "each key" if len(allowed) == len(n.tokens) else "each key that the mask allows"
    how = "divided by √D" if n.scaling.startswith("÷") else "times the scale of the model"
    page.append(f"Score of {which}: q · k, {how}\n", style="bold")
    is_changed = [abs(final[j] - n.scores[row, j]) > 1e-6 * abs(final[j]) for _, j in allowed]
    rest = len(f"     = −00.000   {n.scaling} = −00.000") + len(", which becomes −00.000") * any(is_changed)
    products = _products(q, [n.k[j] for _, j in allowed], width - label - rest)
    for (token, j), written, changed in zip(allowed, products, is_changed, strict=True):
        dot = float(q.astype(np.float64) @ n.k[j].astype(np.float64))
        page.append(f"  {ljust(token, label)}  {written} = {_number(dot)}")
        page.append(f"   {n.scaling} = {_number(n.scores[row, j])}")
        if changed:
            page.append(f", which becomes {_number(final[j])}")
        page.append("\n")
    best = int(np.argmax(final))
    top, total = final[best], float(np.exp(final - final[best]).sum())
    sink = float(1 / weights[best]) - total if weights[best] > 0 else 0.0
    if sink > 1e-3 * total:
        total += sink
    page.append(f"\nWeight of each key: softmax, e^(score {_minus(top)}) / {_number(total)}", style="bold")
    page.append(f", of which {_number(sink)} for the sink\n" if sink > 1e-3 * (total - sink) else "\n", style="bold")
    for token, j in allowed:
        page.append(f"  {ljust(token, label)}  e^{_number(final[j] - top)} = {_number(math.exp(final[j] - top))}")
        page.append(f"   ÷ {_number(total)} = {_number(weights[j])}\n")
    page.append(f"  {ljust('sum', label)}  {_number(weights.sum())}\n", style="dim")
    page.append("\nContext: the sum of the values, each times its weight\n", style="bold")
    for token, j in allowed:
        page.append(f"  {ljust(token, label)}  {_number(weights[j])} × {_vector(n.v[j], width - label - 13)}\n")
    page.append(f"  {ljust('context', label)} = {_vector(n.context[row], width - max(label, 7) - 5)}")
    return page


def _numbers(trace: Trace, layer: int | None, head: int, batch: int) -> _Numbers:
    layers = layers_with("attn.weights", trace)
    if not layers:
        raise RegardError("the trace holds no blocks.N.attn.weights: record a run with Trace()")
    if not trace.encodings:
        raise RegardError("the trace has no text: record the run of a model on a text")
    shown_layer = layers[0] if layer is None else resolve_index("layer", layer, layers)
    batch = resolve_index("text", batch, range(len(trace.encodings)))
    encoding = trace.encodings[batch]
    length = len(encoding)

    def attn(name: str) -> np.ndarray:
        values: np.ndarray = trace[f"blocks.{shown_layer}.attn.{name}"][batch]
        return values

    def rows(name: str) -> np.ndarray:
        axes = trace.axes(name)
        return batch_entry(trace[name], axes, batch if axes.startswith("B ") else 0)[0][:length]

    def cells(name: str) -> np.ndarray:
        return attn(name)[head, :length, :length]

    heads = len(attn("weights"))
    head = resolve_index("head", head, range(heads))
    kv_head = head // (heads // len(attn("k")))
    names = ("token_embeddings", "position_embeddings", "type_embeddings", "embeddings", "normed_embeddings")
    inputs = [(name, rows(name)) for name in names if name in trace]
    if shown_layer > 0:
        before = f"blocks.{shown_layer - 1}.output"
        inputs.append((before, rows(before)))
    recorded = trace.names()
    norm, q = f"blocks.{shown_layer}.attn_norm", f"blocks.{shown_layer}.attn.q"
    if norm in recorded and recorded.index(norm) < recorded.index(q):  # else it comes after attention
        inputs.append((norm, rows(norm)))

    def projected(letter: str, head: int) -> np.ndarray | None:
        name = f"blocks.{shown_layer}.attn.projected_{letter}"
        values = attn(f"projected_{letter}")[head, :length] if name in recorded else None
        return None if values is None or np.array_equal(values, attn(letter)[head, :length]) else values

    later_scores, previous = [], cells("scores")
    for name in ("capped", "biased"):
        is_recorded = f"blocks.{shown_layer}.attn.{name}" in trace or trace.has_map(f"blocks.{shown_layer}.attn")
        if is_recorded and not np.array_equal(cells(name), previous):
            previous = cells(name)
            later_scores.append((name, previous))
    return _Numbers(
        layer=shown_layer,
        head=head,
        kv_head=kv_head,
        tokens=tuple(escape(piece, 24) for piece in token_labels(encoding)),
        inputs=tuple(inputs),
        hides_projected=f"blocks.{shown_layer}.attn.projected_q" in {*trace.optional_steps()} - {*recorded},
        projected_q=projected("q", head),
        projected_k=projected("k", kv_head),
        q=attn("q")[head, :length],
        k=attn("k")[kv_head, :length],
        v=attn("v")[kv_head, :length],
        scores=cells("scores"),
        later_scores=tuple(later_scores),
        weights=cells("weights"),
        context=attn("context")[head, :length],
        output=attn("output")[:length],
    )


def _matrix(
    page: Text,
    width: int,
    name: str,
    how: str,
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
) -> None:
    """Append a heading and a matrix with its labels.

    A map with more columns than fit continues below; vectors that are too long, and rows that are too many, are cut,
    with their number.
    """
    page.append(name, style="bold").append(f"  {how}")
    page.append(f"  {' × '.join(map(str, values.shape))}\n", style="dim")
    margin, length = max(map(cell_len, rows)), values.shape[1]
    fit = max(1, (width - 2 - margin) // _CELL)
    more = "" if columns or length <= min(fit, 2 * _FEW) else f"   … {length} numbers"
    per_block = fit if not more else min(_FEW, max(1, (width - 2 - margin - len(more)) // _CELL))
    shown = len(values) if len(values) <= _MAX_ROWS else _MAX_ROWS - 1
    for start in range(0, length if columns else 1, per_block):
        block = slice(start, start + per_block)
        if columns:
            heading = "".join(_cell(escape(label, _CELL - 1)) for label in columns[block])
            page.append(f"  {' ' * margin}{heading}\n", style="dim")
        for label, row in zip(rows[:shown], values[:shown], strict=True):
            page.append(f"  {ljust(label, margin)}" + "".join(_cell(_number(x)) for x in row[block]) + more + "\n")
        if shown < len(values):
            page.append(f"  … {len(values)} rows\n", style="dim")
    page.append("\n")


def _products(q: np.ndarray, keys: Sequence[np.ndarray], width: int) -> list[str]:
    """Return the terms of q · k for each key: all if they are few and fit, else the first ones and the last."""
    terms = [[f"{_number(a)}×{_number(b)}" for a, b in zip(q, k, strict=True)] for k in keys]
    count = len(q)
    choices = [[" + ".join(each) for each in terms]] if count <= _FEW else []
    choices += [
        [" + ".join([*each[:first], f"… {count - first - 1} more", each[-1]]) for each in terms]
        for first in range(min(3, count - 2), -1, -1)
    ]
    return next((texts for texts in choices if max(map(len, texts)) <= width), choices[-1])


def _vector(values: np.ndarray, width: int) -> str:
    """Return the numbers of a vector: all if they are few and fit, else the first ones."""
    shown = [_number(x) for x in values[: 2 * _FEW]]
    choices = [f"[{' '.join(shown)}]"] if len(shown) == len(values) else []
    choices += [f"[{' '.join(shown[:n])} … {len(values)} numbers]" for n in range(_FEW, 0, -1)]
    return next((text for text in choices if len(text) <= width), choices[-1])


def _number(x: float) -> str:
    x = float(x)
    if x == 0 or not math.isfinite(x):
        return {math.inf: "∞", -math.inf: "−∞"}.get(x, "0" if x == 0 else "NaN")
    if 1e-3 <= abs(x) < 1e5:
        return format_number(x, ".3f")
    digits, _, exponent = format_number(x, ".2e").partition("e")
    return f"{digits}e{exponent[0].replace('+', '')}{exponent[1:].lstrip('0')}"  # e−4, in at most 9 columns


def _minus(x: float) -> str:
    return f"− {_number(x)}" if x >= 0 else f"+ {_number(-x)}"


def _cell(text: str) -> str:
    return " " * max(1, _CELL - cell_len(text)) + text
