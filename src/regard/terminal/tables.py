"""Attention in a terminal: a table of what each word looks at, and a heat map made of characters.

Readable without colour, in a pipe, and at any width. Knows views of attention; decides nothing about them.
"""

from __future__ import annotations

import math

import numpy as np
from rich.cells import cell_len, chop_cells
from rich.style import Style
from rich.text import Text

from regard.views.labels import readable
from regard.views.selection import AttentionView, strongest

_SHADES = " ░▒▓█"
_RAMP = np.array([(70, 96, 140), (63, 127, 191), (255, 176, 0)])  # blue to amber: told apart by all eyes
_FAINT = 0.2  # of the strongest; what is below keeps the terminal's own background, dark or light
_LONGEST_LABEL = 24


def terminal_table(view: AttentionView, *, top: int = 3) -> Text:
    """Return for each word the words that it looks at most, with their weights.

    Parameters
    ----------
    view : AttentionView
    top : int
        How many words to name for each.

    Returns
    -------
    rich.text.Text
        One line for each query; as wide as it needs to be, so that nothing is lost in a pipe.
    """
    named = min(top, len(view.keys))
    heading = ["word", *["attends most to", *["then to"] * (named - 1)][:named]]
    lines = [
        [
            readable(query, _LONGEST_LABEL),
            *(f"{weight:.2f} {readable(view.keys[key], _LONGEST_LABEL)}" for key, weight in found),
        ]
        for query, found in zip(view.queries, strongest(view, top), strict=True)
    ]
    if view.hidden_keys:
        heading.append("special")
        for line, hidden in zip(lines, view.hidden, strict=True):
            line.append(f"  {hidden:.2f}")
    widths = [max(map(cell_len, column)) for column in zip(heading, *lines, strict=True)]
    table = Text()
    for number, line in enumerate([heading, *lines]):
        cells = [_left(cell, width) for cell, width in zip(line, widths, strict=True)]
        cells[-1] = line[-1]  # nothing but spaces would follow
        table.append("\n" if number else "").append(cells[0], style="bold")
        table.append("".join(f"  {cell}" for cell in cells[1:]), style="" if number else "bold")
    return table


def terminal_heatmap(view: AttentionView, *, width: int = 80, colour: bool = False) -> Text:
    """Return the map as lines of characters: rows look, columns are looked at.

    Where the numbers fit into `width` each cell has its weight in hundredths. A longer text is drawn
    with one character for each cell, and one too long for that with one character for each square of
    cells, as dark as the largest weight in it.

    Parameters
    ----------
    view : AttentionView
    width : int
        Columns of the terminal.
    colour : bool
        Whether the terminal shows colours; shades of characters carry the weight otherwise.

    Returns
    -------
    rich.text.Text
    """
    if not view.queries or not view.keys:
        return Text("nothing to draw", style="dim")
    names = [readable(label, min(_LONGEST_LABEL, max(6, width // 4))) for label in view.queries]
    margin = max(map(cell_len, names))
    room = width - margin - 2
    cell = min(9, room // len(view.keys))
    if cell >= (4 if colour else 5):
        return _numbers(view, names, margin, cell, colour)
    return _shading(view, names, margin, max(1, room), colour)


def _numbers(view: AttentionView, names: list[str], margin: int, cell: int, colour: bool) -> Text:
    labels = [_clipped(readable(label), cell - 1) for label in view.keys]
    cell = max(4 if colour else 5, *(cell_len(label) + 1 for label in labels))
    top = float(view.weights.max()) or 1.0
    lines = Text(" " * (margin + 1))
    for label in labels:
        lines.append(_right(label, cell), style="bold")
    for name, row in zip(names, view.weights, strict=True):
        lines.append("\n").append(_right(name, margin), style="bold").append(" ")
        for weight in row:
            number = _hundredths(weight)
            if colour:
                lines.append(" ").append(_right(number, cell - 1), style=_style(weight / top))
            else:
                lines.append(_right(f"{_shade(weight / top)}{number:>3}", cell))
    lines.append(f"\n{' ' * margin} weights in hundredths; a row and its special tokens sum to 100", style="dim")
    return lines


def _shading(view: AttentionView, names: list[str], margin: int, room: int, colour: bool) -> Text:
    side = math.ceil(len(view.keys) / room)
    pooled = _largest(view.weights, side)
    wide = 2 if 2 * pooled.shape[1] <= room else 1
    top = float(pooled.max()) or 1.0
    lines = Text()
    for index, row in enumerate(pooled):
        lines.append(_right(names[index * side], margin), style="bold").append(" ")
        for weight in row:
            share = weight / top
            lines.append(" " * wide if colour else _shade(share) * wide, style=_style(share) if colour else "")
        lines.append("\n")
    square = "weight" if side == 1 else f"square, the largest of {side}×{side} weights"
    lines.append(f"{' ' * margin} a mark for each {square}; the strongest is {top:.2f}", style="dim")
    return lines


def _largest(weights: np.ndarray, side: int) -> np.ndarray:
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


def _clipped(text: str, width: int) -> str:
    """Return the beginning of a heading, which tells more of a word in so little room than its two ends do."""
    return text if cell_len(text) <= width else f"{chop_cells(text, width - 1)[0]}…"


def _left(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text
