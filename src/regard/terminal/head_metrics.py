"""The measures of every head as a table and as JSON."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from rich.text import Text

from regard._utils.errors import RegardError
from regard.metrics import HeadMetrics

COLUMNS = ("entropy", "distance", "sink", "previous", "duplicate", "induction")
"""The measures that are shown, and that a table can be sorted by."""


def heads_table(measures: HeadMetrics, *, sort: str = "layer", batch: int = 0) -> Text:
    """Return a line for each head: its layer and number, its measures, and a word for what it mostly does.

    Parameters
    ----------
    measures : HeadMetrics
    sort : str
        ``"layer"``, or a measure, the largest first; what a text has no case for, shown as –, stands last.
    batch : int
        Which text.

    Returns
    -------
    rich.text.Text
        As wide as it needs to be, so that nothing is lost in a pipe.
    """
    lines = [["head", *COLUMNS, ""]]
    for row in heads_rows(measures, sort=sort, batch=batch):
        numbers = ["–" if row[name] is None else f"{row[name]:.2f}" for name in COLUMNS]
        lines.append([f"{row['layer']}.{row['head']}", *numbers, row["word"]])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = Text()
    for number, (head, *cells, word) in enumerate(lines):
        table.append("\n" if number else "").append(head.ljust(widths[0]), style="bold")
        filled = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=False))
        table.append(f"{filled}  {word}".rstrip(), style="" if number else "bold")
    return table


def heads_rows(measures: HeadMetrics, *, sort: str = "layer", batch: int = 0) -> list[dict[str, Any]]:
    """Return the measures of each head as plain data: ``layer``, ``head``, each measure (None: no case), ``word``."""
    if sort not in ("layer", *COLUMNS):
        raise RegardError(f"heads are sorted by layer, {', '.join(COLUMNS)}, not by {sort!r}")
    _, layers, heads = measures.entropy.shape
    order = list(np.ndindex(layers, heads))
    if sort != "layer":
        values = np.nan_to_num(getattr(measures, sort)[batch], nan=-math.inf)
        order.sort(key=lambda at: -values[at])
    rows = []
    for layer, head in order:
        found = {name: float(getattr(measures, name)[batch, layer, head]) for name in COLUMNS}
        told = {name: None if math.isnan(value) else value for name, value in found.items()}
        rows.append({"layer": layer, "head": head, **told, "word": measures.word(batch, layer, head)})
    return rows
