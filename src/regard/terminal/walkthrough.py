"""Every step from token to output with its numbers, as the lessons print it, and the arithmetic of one row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from regard._utils.cells import cell_len
from regard.terminal.styled import Text
from regard.terminal.tables import ljust, wrap_parts
from regard.trace import Trace
from regard.views.head_steps import HeadSteps, head_steps, short_number
from regard.views.labels import escape, head_label
from regard.views.trace_access import resolve_index

_FEW = 6  # printed numbers of a long vector
_CELL = 9  # columns of a number
_WIDTH = 100
_MAX_ROWS = 40


def explain(
    trace: Trace, *, layer: int | None = None, head: int | str = 0, batch: int = 0, width: int = _WIDTH
) -> Text:
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
    head : int or str
        A number, or ``"L3H7"``, with its layer.
    batch : int
        The text of a batch.
    width : int
        Columns of the terminal: a wider map continues below, and of a long vector fewer numbers are printed.

    Raises
    ------
    RegardError
        There is no such layer, head or text, or a step was not recorded.
    """
    steps = head_steps(trace, layer=layer, head=head, batch=batch)
    tokens = _labels(steps)
    page = Text()
    page.append("Tokens\n", style="bold")
    numbered = [f"{i} {token}" for i, token in enumerate(tokens)]
    page.append("\n".join(wrap_parts(numbered, width, "  ", "  ")) + "\n\n")
    for step in steps:
        rows = tokens if len(step.values) == len(tokens) else ("",)
        columns = tokens if step.is_map else ()
        _matrix(page, width, f"{step.name}{step.head}", step.formula, step.values, rows, columns)
    page.rstrip()
    return page


def explain_row(
    trace: Trace, row: int, *, layer: int | None = None, head: int | str = 0, batch: int = 0, width: int = _WIDTH
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
    n = head_steps(trace, layer=layer, head=head, batch=batch)
    row, tokens = resolve_index("token", row, range(len(n.tokens))), _labels(n)
    label = max(map(cell_len, tokens))
    q, weights, final = n.q[row], n.weights[row], n.final_scores[row].astype(np.float64)
    allowed = [(tokens[j], j) for j in n.allowed_keys(row)]
    page = Text()
    page.append(f"{tokens[row]}, token {row}, in {head_label(n.layer, n.head)}\n\n", style="bold")
    page.append(f"q({tokens[row]}) = {_vector(q, width - cell_len(tokens[row]) - 6)}\n")
    if n.hides_projected or n.projected_q is not None:
        page.append("Queries and keys as they are after the norm or the rotation of the model.\n", style="dim")
    page.append("\n")
    which = "each key" if len(allowed) == len(tokens) else "each key that the mask allows"
    how = "divided by √D" if n.scaling.startswith("÷") else "times the scale of the model"
    page.append(f"Score of {which}: q · k, {how}\n", style="bold")
    is_changed = [abs(final[j] - n.scores[row, j]) > 1e-6 * abs(final[j]) for _, j in allowed]
    rest = len(f"     = −00.000   {n.scaling} = −00.000") + len(", which becomes −00.000") * any(is_changed)
    products = _products(q, [n.k[j] for _, j in allowed], width - label - rest)
    for (token, j), written, changed in zip(allowed, products, is_changed, strict=True):
        page.append(f"  {ljust(token, label)}  {written} = {short_number(n.product(row, j))}")
        page.append(f"   {n.scaling} = {short_number(n.scores[row, j])}")
        if changed:
            page.append(f", which becomes {short_number(final[j])}")
        page.append("\n")
    best = int(np.argmax(final))
    top, total = final[best], float(np.exp(final - final[best]).sum())
    sink = float(1 / weights[best]) - total if weights[best] > 0 else 0.0
    if sink > 1e-3 * total:
        total += sink
    page.append(f"\nWeight of each key: softmax, e^(score {_minus(top)}) / {short_number(total)}", style="bold")
    page.append(
        f", of which {short_number(sink)} for the sink\n" if sink > 1e-3 * (total - sink) else "\n", style="bold"
    )
    for token, j in allowed:
        page.append(
            f"  {ljust(token, label)}  e^{short_number(final[j] - top)} = {short_number(math.exp(final[j] - top))}"
        )
        page.append(f"   ÷ {short_number(total)} = {short_number(weights[j])}\n")
    page.append(f"  {ljust('sum', label)}  {short_number(weights.sum())}\n", style="dim")
    page.append("\nContext: the sum of the values, each times its weight\n", style="bold")
    for token, j in allowed:
        page.append(f"  {ljust(token, label)}  {short_number(weights[j])} × {_vector(n.v[j], width - label - 13)}\n")
    page.append(f"  {ljust('context', label)} = {_vector(n.context[row], width - max(label, 7) - 5)}")
    return page


def _labels(steps: HeadSteps) -> tuple[str, ...]:
    return tuple(escape(token, 24) for token in steps.tokens)


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
            page.append(f"  {ljust(label, margin)}" + "".join(_cell(short_number(x)) for x in row[block]) + more + "\n")
        if shown < len(values):
            page.append(f"  … {len(values)} rows\n", style="dim")
    page.append("\n")


def _products(q: np.ndarray, keys: Sequence[np.ndarray], width: int) -> list[str]:
    """Return the terms of q · k for each key: all if they are few and fit, else the first ones and the last."""
    terms = [[f"{short_number(a)}×{short_number(b)}" for a, b in zip(q, k, strict=True)] for k in keys]
    count = len(q)
    choices = [[" + ".join(each) for each in terms]] if count <= _FEW else []
    choices += [
        [" + ".join([*each[:first], f"… {count - first - 1} more", each[-1]]) for each in terms]
        for first in range(min(3, count - 2), -1, -1)
    ]
    return next((texts for texts in choices if max(map(len, texts)) <= width), choices[-1])


def _vector(values: np.ndarray, width: int) -> str:
    """Return the numbers of a vector: all if they are few and fit, else the first ones."""
    shown = [short_number(x) for x in values[: 2 * _FEW]]
    choices = [f"[{' '.join(shown)}]"] if len(shown) == len(values) else []
    choices += [f"[{' '.join(shown[:n])} … {len(values)} numbers]" for n in range(_FEW, 0, -1)]
    return next((text for text in choices if len(text) <= width), choices[-1])


def _minus(x: float) -> str:
    return f"− {short_number(x)}" if x >= 0 else f"+ {short_number(-x)}"


def _cell(text: str) -> str:
    return " " * max(1, _CELL - cell_len(text)) + text
