"""The metrics of heads: the strongest ones, all as a table, all as JSON."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.metrics import HeadMetrics
from regard.metrics.registry import METRICS, listed_metrics
from regard.terminal.styled import Text
from regard.terminal.tables import wrap_parts
from regard.views.labels import head_label


def heads_summary(metrics: HeadMetrics, *, top: int = 3, batch: int = 0, width: int = 80) -> Text:
    """Return for each metric the heads in which it is largest, and what it is; then how many heads have each label.

    Parameters
    ----------
    metrics : HeadMetrics
    top : int
        The number of heads for each metric; – where no row of the text counts.
    batch : int
        Which text.
    width : int
        Columns of the terminal.

    Returns
    -------
    rich.text.Text
    """
    summary = Text()
    names = max(len(entry.name) for entry in listed_metrics())
    rows = heads_rows(metrics, batch=batch)
    width_of_head = max(len(head_label(row["layer"], row["head"])) for row in rows)
    for entry in listed_metrics():
        ordered = heads_rows(metrics, sort=entry.name, batch=batch)
        largest = [row for row in ordered[:top] if row[entry.name] is not None]
        heads = [head_label(row["layer"], row["head"]).ljust(width_of_head) for row in largest]
        numbers = [format(row[entry.name], entry.format) for row in largest]
        strongest = "   ".join(f"{head} {number}" for head, number in zip(heads, numbers, strict=True)) or "–"
        summary.append(entry.name.ljust(names), style="bold").append(f"  {strongest}")
        summary.append("\n" if entry.unit == "share" else f"  {entry.unit}\n", style="dim")
        summary.append(f"  {entry.description}\n", style="dim")
    labels = Counter(row["label"] or "no label" for row in rows)
    counts = [f"{count} {label}" for label, count in labels.most_common()]
    return summary.append("\n" + "\n".join(wrap_parts(counts, width, "Labels of all heads: ", ", ")))


def heads_table(metrics: HeadMetrics, *, sort: str = "layer", batch: int = 0, width: int | None = None) -> Text:
    """Return a line for each head: its layer and number, its metrics, and a label for what it mostly does.

    Parameters
    ----------
    metrics : HeadMetrics
    sort : str
        ``"layer"``, or a metric, the largest first; – (no row of the text counts) comes last.
    batch : int
        Which text.
    width : int, optional
        Columns of the terminal: in fewer than the lines need, names of metrics take two lines. Default: enough.

    Returns
    -------
    rich.text.Text
    """
    columns = listed_metrics()
    lines = []
    for row in heads_rows(metrics, sort=sort, batch=batch):
        numbers = ["–" if row[column.name] is None else format(row[column.name], column.format) for column in columns]
        lines.append([head_label(row["layer"], row["head"]), *numbers, row["label"]])
    heading = [["head", *(column.name for column in columns), ""]]
    if width is not None and sum(_widths(heading + lines)) + 2 * len(columns) + 2 > width:
        names = [column.name.partition("_") for column in columns]
        heading = [["head", *(first for first, *_ in names), ""], ["", *(mark + rest for _, mark, rest in names), ""]]
    head_width, *widths = _widths(heading + lines)
    table = Text()
    for number, (head, *cells, label) in enumerate(heading + lines):
        table.append("\n" if number else "").append(head.ljust(head_width), style="bold")
        filled = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=False))
        table.append(f"{filled}  {label}".rstrip(), style="" if number >= len(heading) else "bold")
    return table


def _widths(lines: list[list[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def heads_rows(metrics: HeadMetrics, *, sort: str = "layer", batch: int = 0) -> list[dict[str, Any]]:
    """Return the metrics of each head as plain data: ``layer``, ``head``, each metric (None: no case), ``label``."""
    names = list(METRICS)
    if sort not in ("layer", *names):
        raise RegardError(f"sort must be layer, {', '.join(names)}, got {sort!r}")
    _, layers, heads = metrics.entropy.shape
    order = list(np.ndindex(layers, heads))
    if sort != "layer":
        values = np.nan_to_num(metrics.values[sort][batch], nan=-math.inf)
        order.sort(key=lambda at: -values[at])
    rows = []
    for layer, head in order:
        numbers = {name: float(metrics.values[name][batch, layer, head]) for name in names}
        shown = {name: None if math.isnan(value) else value for name, value in numbers.items()}
        rows.append(
            {"layer": metrics.numbers[layer], "head": head, **shown, "label": metrics.label(batch, layer, head)}
        )
    return rows
