"""A view of attention in a terminal: a table of the largest weights, and a heat map of characters.

Both are readable without colour, in a pipe, and at any width.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from regard._utils.cells import cell_len
from regard.terminal.styled import Style, Text
from regard.views.labels import escape
from regard.views.selection import AttentionView, top_k

_SHADES = " ░▒▓█"
# Slate blue to vermilion. All are about as light, so that each differs from a light and from a dark background by a
# contrast of at least 3, and from `_INK` by 4.5.
_RAMP = np.array([(112, 137, 182), (160, 118, 176), (206, 96, 128), (222, 92, 20)])
_ROUNDING = 0.01  # of the sum of a row
_INK = "#101010"
_FAINT = 0.2  # of the largest weight; smaller ones keep the background of the terminal
_LABEL_WIDTH = 24  # longer labels are cut where others would not fit beside them
_MIN_LABEL = 8


def terminal_table(view: AttentionView, *, top: int = 3, width: int | None = None) -> Text:
    """Return for each query the keys of largest weight.

    Parameters
    ----------
    view : AttentionView
    top : int
        The number of keys for each query. Masked keys are left out.
    width : int, optional
        Columns of the terminal. Where a line does not fit, keys continue on the next one; labels are cut last.
        Default: as wide as the content.

    Returns
    -------
    rich.text.Text
    """
    largest = top_k(view, top)
    per_line, longest = _table_size(view, largest, math.inf if width is None else width)
    heading = ["word", "attends most to", *["then to"] * (per_line - 1), *["special"] * bool(view.special_tokens)]
    lines = [heading]
    for row, query in enumerate(view.queries):
        keys = [f"{weight:.2f} {escape(view.keys[key], longest)}" for key, weight in largest[row]] or ["–"]
        for start in range(0, len(keys), per_line):
            line = keys[start : start + per_line]
            line += [""] * (per_line - len(line))
            if view.special_tokens:
                line.append("" if start else f"   {view.special_mass[row]:.2f}")
            lines.append(["" if start else escape(query, longest), *line])
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    table = Text()
    for number, line in enumerate(lines):
        first, *rest = (ljust(cell, width) for cell, width in zip(line, widths, strict=True))
        cells = f"  {'  '.join(rest)}".rstrip()
        table.append("\n" if number else "").append(first if cells else first.rstrip(), style="bold")
        table.append(cells, style="" if number else "bold")
    return table


def terminal_heatmap(view: AttentionView, *, width: int = 80, color: bool = False) -> Text:
    """Return the map as lines of characters: a row for each query, a column for each key.

    Each cell is its weight in hundredths if the row fits into `width`; columns have names, or numbers where those do
    not fit. Otherwise a cell is a mark, as dark as its weight, and in a longer text a square of cells is one mark, as
    dark as the largest weight in it. A weight that rounds to 0 is ``·``; a masked cell is blank.

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
    return _Heatmap(view, width, color).draw()


class _Heatmap:
    """The layout of a heat map: the widths of its columns, and what names them.

    Attributes
    ----------
    cells : list of int
        The width of each column; the number of columns is that of the keys, or of squares of `side` keys.
    side : int
        The keys that one mark covers; queries too, if there are as many.
    has_weights : bool
        Cells are weights; else they are marks.
    has_names : bool
        Columns are named; else they are numbered, and so are the rows.
    margin : int
        The width of the names of rows.
    """

    def __init__(self, view: AttentionView, width: int, color: bool) -> None:
        self.view, self.width, self.color = view, width, color
        count = len(view.keys)
        self.keys = [escape(key) for key in view.keys]
        self.queries = [escape(query) for query in view.queries]
        self.digits = len(str(count - 1))
        longest = max(map(cell_len, self.queries))
        names = [cell_len(key) + 1 for key in self.keys]
        smallest = 4 if color else 5
        own = [max(smallest, name) for name in names]
        numbered = max(smallest, self.digits + 1)
        self.side, self.has_weights = 1, True
        layouts = [([max(own)] * count, True), (own, True), ([numbered] * count, False)]
        layouts += [([3] * count, False)] * (color and self.digits < 3)  # without space between
        for cells, has_names in layouts:
            self.cells, self.has_names = cells, has_names
            self.margin = width - sum(cells) - 1 - self._prefix
            if self.margin >= min(longest, _LABEL_WIDTH):
                self.margin = min(self.margin, longest)
                return
        self.has_weights = False
        self.margin = min(longest, _LABEL_WIDTH, max(_MIN_LABEL, width // 3))
        columns = max(1, width - self.margin - 1 - self._prefix)
        self.side = math.ceil(count / columns)
        self.cells = [min(3, max(1, columns // count))] * math.ceil(count / self.side)

    @property
    def _prefix(self) -> int:
        """The width of the number before the name of a row."""
        return 0 if self.has_names else self.digits + 1

    def draw(self) -> Text:
        """Return the lines: heading, rows, caption."""
        lines = Text(" " * (self._prefix + self.margin + 1))
        lines.append(self._heading(), style="bold" if self.has_names else "dim")
        weights, masked, firsts = self._pooled()
        largest = float(weights.max()) or 1.0
        for row, values, hidden in zip(firsts, weights, masked, strict=True):
            lines.rstrip()
            lines.append("\n")
            if not self.has_names:
                lines.append(f"{self.view.positions[row]:>{self.digits}} ", style="dim")
            lines.append(_right(escape(self.queries[row], self.margin), self.margin), style="bold").append(" ")
            for weight, is_masked, cell in zip(values, hidden, self.cells, strict=True):
                self._append_cell(lines, float(weight), None if is_masked else weight / largest, cell)
        lines.rstrip()
        for line in self._caption(largest, has_dots="·" in lines.plain):
            lines.append(f"\n{line}", style="dim")
        return lines

    def _heading(self) -> str:
        """Return the names of the columns, or the numbers of as many as fit."""
        if self.has_names:
            return "".join(_right(key, cell) for key, cell in zip(self.keys, self.cells, strict=True))
        if self.has_weights:
            return "".join(f"{number:>{cell}}" for number, cell in enumerate(self.cells))
        (cell, *_), count = self.cells, len(self.cells)
        steps = (factor * 10**power for power in range(12) for factor in (1, 2, 5))
        step = next(step for step in steps if step * cell > self.digits)
        heading = ""
        for column in range(0, count, step):
            number = str(column * self.side)
            if column * cell + len(number) <= count * cell:
                heading = heading.ljust(column * cell) + number
        return heading

    def _pooled(self) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Return the maximum of the weights of each mark, whether all are masked, and the first query of each row."""
        height, width = self.view.weights.shape
        side = self.side if height == width else 1
        rows, columns = np.arange(0, height, side), np.arange(0, width, self.side)

        def pool(values: np.ndarray, by: np.ufunc) -> np.ndarray:
            return np.asarray(by.reduceat(by.reduceat(values, rows, axis=0), columns, axis=1))

        return pool(self.view.weights, np.maximum), pool(self.view.masked, np.logical_and), rows.tolist()

    def _append_cell(self, lines: Text, weight: float, share: float | None, cell: int) -> None:
        """Append one cell; `share` is of the largest weight, None if the cell is masked."""
        if share is None:
            lines.append(" " * cell)
        elif not self.has_weights:
            mark = _shade(share).strip()
            style = Style(color=_color(share)) if self.color and share >= _FAINT else Style(dim=self.color or not mark)
            lines.append(mark * cell if mark else "·".center(cell), style=style)
        elif self.color:
            gap = min(1, cell - 3)
            style = Style(dim=True) if share < _FAINT else Style(color=_INK, bgcolor=_color(share))
            lines.append(" " * gap).append(_right(_hundredths(weight), cell - gap), style=style)
        else:
            lines.append(_right(f"{_shade(share)}{_hundredths(weight):>3}", cell))

    def _caption(self, largest: float, *, has_dots: bool) -> list[str]:
        """Return what a cell is, and the names of numbered columns that no row has, in lines that fit."""
        special = " with its special tokens" if self.view.special_tokens else ""
        square = f"{self.side}×{self.side}" if len(self.queries) == len(self.keys) else self.side
        cell = "weight" if self.side == 1 else f"maximum of {square} weights"
        if self.has_weights:
            sums = self.view.weights.sum(axis=1) + self.view.special_mass
            is_whole = bool(np.abs(sums - 1).max() < _ROUNDING)  # not with sinks, nor of a part of a map
            parts = ["weights in hundredths", *[f"each row sums to 100{special}"] * is_whole]
            parts += ["·: rounds to 0"] * has_dots
        else:
            parts = [f"one mark for each {cell}", f"the largest is {largest:.2f}", *["·: close to 0"] * has_dots]
        parts += ["blank: masked"] * bool(self.view.masked.any())
        indent = " " * min(self._prefix + self.margin + 1, self.width // 4)
        fits = max(map(len, parts)) + len(indent) <= self.width
        lines = wrap_parts(parts if fits else "; ".join(parts).split(), self.width, indent, "; " if fits else " ")
        if not self.has_names and self.side == 1 and self.view.queries != self.view.keys:
            names = [f"{number} {escape(key, _LABEL_WIDTH)}" for number, key in enumerate(self.view.keys)]
            lines += wrap_parts(names, self.width, "columns: ", "  ")
        return lines


def _table_size(view: AttentionView, largest: Sequence[Sequence[tuple[int, float]]], width: float) -> tuple[int, int]:
    """Return how many keys a line names, and the columns of the longest label, so that lines fit into `width`."""
    queries = [cell_len(escape(query)) for query in view.queries]
    lengths = {key: cell_len(escape(view.keys[key])) for row in largest for key, _ in row}
    special = len("  special") * bool(view.special_tokens)

    @functools.cache
    def longest_key(per_line: int, column: int) -> int:
        return max((lengths[key] for row in largest for key, _ in row[column::per_line]), default=0)

    def line(per_line: int, longest: int) -> int:
        total = max(len("word"), min(longest, max(queries, default=0))) + special
        for column in range(per_line):
            key = len("0.00 ") + min(longest, longest_key(per_line, column))
            total += 2 + max(len("then to" if column else "attends most to"), key)
        return total

    named = max(map(len, largest), default=1) or 1
    most = max([_LABEL_WIDTH, *queries, *lengths.values()])
    for per_line in range(named, 0, -1):
        for longest in range(most, _LABEL_WIDTH - 1, -1):
            if line(per_line, longest) <= width:
                return per_line, longest
    return 1, next((n for n in range(_LABEL_WIDTH, _MIN_LABEL, -1) if line(1, n) <= width), _MIN_LABEL)


def wrap_parts(parts: Sequence[str], width: int, start: str, separator: str) -> list[str]:
    """Return lines of whole parts that fit into `width`; the first begins with `start`."""
    lines = [start + parts[0]]
    for part in parts[1:]:
        if cell_len(f"{lines[-1]}{separator}{part}{separator.rstrip()}") <= width:
            lines[-1] += separator + part
        else:
            lines[-1] += separator.rstrip()
            lines.append(" " * len(start) + part)
    return lines


def _hundredths(weight: float) -> str:
    number = round(100 * weight)
    return str(number) if number else "·"


def _shade(share: float) -> str:
    return _SHADES[min(len(_SHADES) - 1, round(share * (len(_SHADES) - 1)))]


def _color(share: float) -> str:
    """Return the colour of a share of the largest weight, from `_FAINT` to 1."""
    place = (share - _FAINT) / (1 - _FAINT) * (len(_RAMP) - 1)
    low = min(int(place), len(_RAMP) - 2)
    red, green, blue = np.round(_RAMP[low] + (place - low) * (_RAMP[low + 1] - _RAMP[low])).astype(int)
    return f"rgb({red},{green},{blue})"


def ljust(text: str, width: int) -> str:
    """Return `text` with spaces up to `width` columns of a terminal."""
    return text + " " * (width - cell_len(text))


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text
