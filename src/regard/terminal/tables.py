"""A view of attention in a terminal: a table of the largest weights, and a heat map of characters.

Both are readable without colour, in a pipe, and at any width.
"""

from __future__ import annotations

import math

import numpy as np
from rich.cells import cell_len, chop_cells
from rich.style import Style
from rich.text import Text

from regard.views.labels import escape
from regard.views.selection import AttentionView, top_k

_SHADES = " ░▒▓█"
_RAMP = np.array([(70, 96, 140), (63, 127, 191), (255, 176, 0)])  # blue to amber, for every kind of colour vision
_FAINT = 0.2  # of the largest weight; smaller ones keep the background of the terminal
_LABEL_WIDTH = 24


def terminal_table(view: AttentionView, *, top: int = 3) -> Text:
    """Return for each query the keys of largest weight.

    Parameters
    ----------
    view : AttentionView
    top : int
        The number of keys for each query.

    Returns
    -------
    rich.text.Text
        One line for each query; as wide as its content, so that nothing is cut in a pipe.
    """
    named = min(top, len(view.keys))
    heading = ["word", *["attends most to", *["then to"] * (named - 1)][:named]]
    lines = [
        [
            escape(query, _LABEL_WIDTH),
            *(f"{weight:.2f} {escape(view.keys[key], _LABEL_WIDTH)}" for key, weight in found),
        ]
        for query, found in zip(view.queries, top_k(view, top), strict=True)
    ]
    if view.special_tokens:
        heading.append("special")
        for line, mass in zip(lines, view.special_mass, strict=True):
            line.append(f"   {mass:.2f}")
    widths = [max(map(cell_len, column)) for column in zip(heading, *lines, strict=True)]
    table = Text()
    for number, line in enumerate([heading, *lines]):
        cells = [ljust(cell, width) for cell, width in zip(line, widths, strict=True)]
        cells[-1] = line[-1]  # no trailing spaces
        table.append("\n" if number else "").append(cells[0], style="bold")
        table.append("".join(f"  {cell}" for cell in cells[1:]), style="" if number else "bold")
    return table


def terminal_heatmap(view: AttentionView, *, width: int = 80, color: bool = False) -> Text:
    """Return the map as lines of characters: a row for each query, a column for each key.

    Each cell is its weight in hundredths if the row fits into `width`. Otherwise a cell is one character, and in a
    longer text a square of cells is one character, as dark as the largest weight in it.

    Parameters
    ----------
    view : AttentionView
    width : int
        Columns of the terminal.
    color : bool
        Whether the terminal shows colours; without them, shades of characters show the weight.

    Returns
    -------
    rich.text.Text
    """
    if not view.queries or not view.keys:
        return Text("nothing to draw", style="dim")
    names = [escape(label, min(_LABEL_WIDTH, max(6, width // 4))) for label in view.queries]
    margin = max(map(cell_len, names))
    columns = width - margin - 2
    cell = min(9, columns // len(view.keys))
    if cell >= (4 if color else 5):
        return _numbers(view, names, margin, cell, color)
    return _shading(view, names, margin, max(1, columns), color)


def _numbers(view: AttentionView, names: list[str], margin: int, cell: int, color: bool) -> Text:
    labels = [_clip(escape(label), cell - 1) for label in view.keys]
    cell = max(4 if color else 5, *(cell_len(label) + 1 for label in labels))
    top = float(view.weights.max()) or 1.0
    lines = Text(" " * (margin + 1))
    for label in labels:
        lines.append(_right(label, cell), style="bold")
    for name, row in zip(names, view.weights, strict=True):
        lines.append("\n").append(_right(name, margin), style="bold").append(" ")
        for weight in row:
            number = _hundredths(weight)
            if color:
                lines.append(" ").append(_right(number, cell - 1), style=_style(weight / top))
            else:
                lines.append(_right(f"{_shade(weight / top)}{number:>3}", cell))
    special = " with its special tokens" if view.special_tokens else ""
    lines.append(f"\n{' ' * margin} weights in hundredths; each row sums to 100{special}", style="dim")
    return lines


def _shading(view: AttentionView, names: list[str], margin: int, columns: int, color: bool) -> Text:
    side = math.ceil(len(view.keys) / columns)
    pooled = _max_pool(view.weights, side)
    wide = 2 if 2 * pooled.shape[1] <= columns else 1
    top = float(pooled.max()) or 1.0
    lines = Text()
    for index, row in enumerate(pooled):
        lines.append(_right(names[index * side], margin), style="bold").append(" ")
        for weight in row:
            share = weight / top
            lines.append(" " * wide if color else _shade(share) * wide, style=_style(share) if color else "")
        lines.append("\n")
    cell = "weight" if side == 1 else f"maximum of {side}×{side} weights"
    lines.append(f"{' ' * margin} one mark for each {cell}; the largest is {top:.2f}", style="dim")
    return lines


def _max_pool(weights: np.ndarray, side: int) -> np.ndarray:
    """Return the maximum of each square of `side` by `side` cells; squares at the edge may be smaller."""
    rows = np.maximum.reduceat(weights, np.arange(0, weights.shape[0], side), axis=0)
    return np.asarray(np.maximum.reduceat(rows, np.arange(0, weights.shape[1], side), axis=1))


def _hundredths(weight: float) -> str:
    number = round(100 * weight)
    return str(number) if number else "·"


def _shade(share: float) -> str:
    return _SHADES[min(len(_SHADES) - 1, round(share * (len(_SHADES) - 1)))]


def _style(share: float) -> Style:
    if share < _FAINT:
        return Style(dim=True)
    place = (share - _FAINT) / (1 - _FAINT) * (len(_RAMP) - 1)
    low = min(int(place), len(_RAMP) - 2)
    red, green, blue = np.round(_RAMP[low] + (place - low) * (_RAMP[low + 1] - _RAMP[low])).astype(int)
    ink = "#101010" if place > 1.2 else "#ffffff"
    return Style(color=ink, bgcolor=f"rgb({red},{green},{blue})")


def _clip(text: str, width: int) -> str:
    """Return the beginning of a heading: in few columns it says more than both ends would."""
    return text if cell_len(text) <= width else f"{chop_cells(text, width - 1)[0]}…"


def ljust(text: str, width: int) -> str:
    """Return `text` with spaces up to `width` columns of a terminal."""
    return text + " " * (width - cell_len(text))


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text
