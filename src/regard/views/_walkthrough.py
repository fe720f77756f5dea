"""Every step from token to output with its numbers, as the lessons print it; and one row with its arithmetic.

Reads a trace; computes nothing but the products that it writes out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from regard._errors import RegardError
from regard._steps import formula
from regard.trace import Trace
from regard.views._entry import entry_of, layers_with, number_of
from regard.views._labels import pieces, readable

_FEW = 6  # numbers of a long vector that are printed
_MOST_ROWS = 40


@dataclass(frozen=True, eq=False)
class _Numbers:
    """What a walk through one head of one layer needs, out of a trace; all of one text."""

    layer: int
    head: int
    heads: int
    kv_head: int
    tokens: tuple[str, ...]
    inputs: tuple[tuple[str, np.ndarray], ...]
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    context: np.ndarray
    output: np.ndarray

    @property
    def head_dim(self) -> int:
        return int(self.q.shape[-1])


def explain(trace: Trace, *, layer: int | None = None, head: int = 0, batch: int = 0) -> Text:
    """Return every step of one head of one layer: name, formula, shape and numbers.

    Parameters
    ----------
    trace : Trace
        Of a model's run, with everything recorded.
    layer : int, optional
        From 0; a negative one counts from the last. The first by default, whose input is the embeddings
        themselves.
    head, batch : int
        Which head, and which text of a batch.

    Raises
    ------
    RegardError
        There is no such layer, head or text, or a step was not recorded.
    """
    n = _numbers(trace, layer, head, batch)
    page = Text()
    page.append("Tokens\n", style="bold")
    page.append("  " + "  ".join(f"{i} {token}" for i, token in enumerate(n.tokens)) + "\n\n")
    for name, values in n.inputs:
        rows = n.tokens if values.shape[0] == len(n.tokens) else ("",)
        _matrix(page, name, formula(name), values, rows)
    at = f"blocks.{n.layer}.attn"
    shared = f" of head {n.kv_head}, which it shares" if n.kv_head != n.head else ""
    _matrix(page, f"{at}.q, head {n.head}", "x · W_q: what each token asks for", n.q, n.tokens)
    _matrix(page, f"{at}.k{shared}", "x · W_k: what each token can be found by", n.k, n.tokens)
    _matrix(page, f"{at}.v{shared}", "x · W_v: what each token has to give", n.v, n.tokens)
    _matrix(page, f"{at}.scores", f"q · kᵀ / √{n.head_dim}: how well they match", n.scores, n.tokens, n.tokens)
    _matrix(page, f"{at}.weights", "softmax(scores): each row sums to 1", n.weights, n.tokens, n.tokens)
    _matrix(page, f"{at}.context", "weights · v: what each token gathers", n.context, n.tokens)
    side = (
        f"the contexts of {n.heads} heads side by side, · W_o" if n.heads > 1 else "context, · W_o where there is one"
    )
    _matrix(page, f"{at}.output", side, n.output, n.tokens)
    page.rstrip()
    return page


def follow(trace: Trace, row: int, *, layer: int | None = None, head: int = 0, batch: int = 0) -> Text:
    """Return one row followed through one head, with the arithmetic written out.

    Each product q·k with its terms, divided by √D, its exponential's share, and the weighted sum of the values.

    Parameters
    ----------
    trace : Trace
    row : int
        The position of the token that looks.
    layer, head, batch
        As in `explain`.

    Raises
    ------
    RegardError
        As in `explain`; or there is no such row.
    """
    n = _numbers(trace, layer, head, batch)
    row = number_of("token", row, range(len(n.tokens)))
    width = max(map(cell_len, n.tokens))
    q, scores, weights = n.q[row], n.scores[row], n.weights[row]
    page = Text()
    page.append(f"{n.tokens[row]}, token {row}, in layer {n.layer}, head {n.head}\n\n", style="bold")
    page.append(f"q({n.tokens[row]}) = {_vector(q)}\n\n")
    page.append("How well it matches each key: q · k, divided by √D\n", style="bold")
    for token, key, score in zip(n.tokens, n.k, scores, strict=True):
        dot = float(q.astype(np.float64) @ key.astype(np.float64))
        page.append(f"  {_left(token, width)}  {_products(q, key)} = {_number(dot)}")
        page.append(f"   ÷ √{n.head_dim} = {_number(score)}\n")
    top = float(scores.max())
    total = float(np.exp(scores.astype(np.float64) - top).sum())
    page.append(f"\nWhat share each gets: softmax, e^(score {_minus(top)}) / {_number(total)}\n", style="bold")
    for token, score, weight in zip(n.tokens, scores, weights, strict=True):
        power = math.exp(float(score) - top)
        page.append(f"  {_left(token, width)}  e^{_number(float(score) - top)} = {_number(power)}")
        page.append(f"   ÷ {_number(total)} = {_number(weight)}\n")
    page.append(f"  {_left('sum', width)}  {_number(weights.sum())}\n", style="dim")
    page.append("\nWhat it gathers: the values, each times its weight\n", style="bold")
    for token, value, weight in zip(n.tokens, n.v, weights, strict=True):
        page.append(f"  {_left(token, width)}  {_number(weight)} × {_vector(value)}\n")
    page.append(f"  {_left('context', width)} = {_vector(n.context[row])}\n")
    return page


def _numbers(trace: Trace, layer: int | None, head: int, batch: int) -> _Numbers:
    layers = layers_with("attn.weights", trace)
    if not layers:
        raise RegardError("the trace holds no blocks.N.attn.weights to explain: record a run with Trace()")
    if not trace.encodings:
        raise RegardError("the trace has no text to explain: record a model's run on a text")
    chosen = layers[0] if layer is None else number_of("layer", layer, layers)
    batch = number_of("text", batch, range(len(trace.encodings)))
    encoding = trace.encodings[batch]
    length = len(encoding)

    def attn(name: str) -> np.ndarray:
        values: np.ndarray = trace[f"blocks.{chosen}.attn.{name}"][batch]
        return values

    def rows(name: str) -> np.ndarray:
        axes = trace.axes(name)
        return entry_of(trace[name], axes, batch if axes.startswith("B ") else 0)[0][:length]

    heads = len(attn("weights"))
    head = number_of("head", head, range(heads))
    kv_head = head // (heads // len(attn("k")))
    names = ("token_embeddings", "position_embeddings", "type_embeddings", "embeddings", "normed_embeddings")
    inputs = [(name, rows(name)) for name in names if name in trace]
    if chosen > 0:
        before = f"blocks.{chosen - 1}.output"
        inputs.append((before, rows(before)))
    return _Numbers(
        layer=chosen,
        head=head,
        heads=heads,
        kv_head=kv_head,
        tokens=tuple(readable(piece, 24) for piece in pieces(encoding)),
        inputs=tuple(inputs),
        q=attn("q")[head, :length],
        k=attn("k")[kv_head, :length],
        v=attn("v")[kv_head, :length],
        scores=attn("scores")[head, :length, :length],
        weights=attn("weights")[head, :length, :length],
        context=attn("context")[head, :length],
        output=attn("output")[:length],
    )


def _matrix(
    page: Text, name: str, how: str, values: np.ndarray, rows: Sequence[str], columns: Sequence[str] = ()
) -> None:
    """Write a heading and a matrix with its labels; what is too wide or too high is cut, and says so."""
    page.append(name, style="bold").append(f"  {how}")
    page.append(f"  {' × '.join(map(str, values.shape))}\n", style="dim")
    width = max(map(cell_len, rows))
    if columns:
        page.append("  " + " " * width + "".join(_cell(readable(label, 8)) for label in columns) + "\n", style="dim")
    shown = len(values) if len(values) <= _MOST_ROWS else _MOST_ROWS - 1
    for label, row in zip(rows[:shown], values[:shown], strict=True):
        numbers = row if columns or len(row) <= 2 * _FEW else row[:_FEW]
        more = "" if len(numbers) == len(row) else f"   … {len(row)} numbers"
        page.append(f"  {_left(label, width)}" + "".join(_cell(_number(x)) for x in numbers) + more + "\n")
    if shown < len(values):
        page.append(f"  … {len(values)} rows\n", style="dim")
    page.append("\n")


def _products(q: np.ndarray, k: np.ndarray) -> str:
    terms = [f"{_number(a)}×{_number(b)}" for a, b in zip(q, k, strict=True)]
    if len(terms) > _FEW:
        terms = [*terms[:3], f"… {len(terms) - 4} more", terms[-1]]
    return " + ".join(terms)


def _vector(values: np.ndarray) -> str:
    shown = values if len(values) <= 2 * _FEW else values[:_FEW]
    more = "" if len(shown) == len(values) else f" … {len(values)} numbers"
    return "[" + " ".join(_number(x) for x in shown) + more + "]"


def _number(x: float) -> str:
    x = float(x)
    if x == 0 or not math.isfinite(x):
        return {math.inf: "∞", -math.inf: "−∞"}.get(x, "0" if x == 0 else "NaN")
    if not 1e-3 <= abs(x) < 1e5:
        return f"{x:.2e}".replace("-", "−")
    return f"{x:.3f}".replace("-", "−")


def _minus(x: float) -> str:
    return f"− {_number(x)}" if x >= 0 else f"+ {_number(-x)}"


def _cell(text: str) -> str:
    return " " * max(1, 9 - cell_len(text)) + text


def _left(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))
