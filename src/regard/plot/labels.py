"""Labels of rows and columns, in a type size in which none touches the next. Lengths are in inches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.plot.existing_axes import Margins
from regard.plot.style import Look
from regard.plot.text_metrics import LINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPACING = 0.17
"""The least distance of labels on a screen."""

PRINT_SPACING = 1.12 / 72
"""The distance of labels in print, per point of their type, but for those with several marks on a letter."""

_TIGHT = 1.1  # type size per label spacing, above that of running text
_TURNED: dict[int, dict[str, Any]] = {  # columns by their angle in degrees
    0: {},
    45: {"rotation": 45, "rotation_mode": "anchor", "ha": "left", "va": "center"},
    90: {"rotation": 90, "rotation_mode": "anchor", "ha": "right", "va": "center"},
}


class Labels(NamedTuple):
    """The labels of rows and columns."""

    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    step: int = 1  # every step-th row and column has one
    points: float = 0.0
    angle: int = 0  # of the columns
    are_positions: bool = False  # numbers, with marks


def round_step(cell: float, spacing: float) -> int:
    """Return the first of 1, 2, 5, 10, 20, … cells that are at least `spacing` together."""
    steps = (int(f"{digit}{'0' * zeros}") for zeros in count() for digit in "125")
    return next(step for step in steps if step * cell >= spacing - 1e-9)


def thinned(rows: Sequence[str], columns: Sequence[str], cell: float, look: Look, max_columns: int) -> Labels:
    """Return labels in the type of the screen, smaller or fewer where cells are small, the columns above the map."""
    step, points = round_step(cell, SPACING), look.medium.label
    rows, columns = ([look.fonts.label(label, max_columns) for label in side[::step]] for side in (rows, columns))
    slanted = look.metrics.max_width(columns, points) > min(step * cell - look.medium.pad, cell + 2 * look.medium.pad)
    spacing = step * cell * (math.sqrt(0.5) if slanted else 1) * _TIGHT
    tallest = max(look.metrics.size(label, points)[1] for label in (*rows, *columns))
    return Labels(rows, columns, step, points * min(1, spacing / tallest), 45 if slanted else 0)


def margins_of_thinned(labels: Labels, across: float, cell: float, look: Look) -> Margins:
    """Return the space that labels take on the left, above and on the right of a map that is `across` wide."""
    line, widths = labels.points * LINE, [look.metrics.width(column, labels.points) for column in labels.columns]
    if not widths:
        return Margins()
    slope = math.sqrt(0.5) if labels.angle else 1.0
    beyond = [w * slope + line if labels.angle else w / 2 for w in widths]  # the centre of their columns
    return Margins(
        left=look.metrics.max_width(labels.rows, labels.points) + look.medium.pad,
        right=max(0.0, max((i * labels.step + 0.5) * cell + b for i, b in enumerate(beyond)) - across),
        above=((max(widths) + line) * slope if labels.angle else line) + look.medium.pad,
    )


def print_spacing(labels: Sequence[str], look: Look) -> float:
    """Return the least distance of labels in print at which none touches the next, per point of their type."""
    return max([PRINT_SPACING, *map(look.metrics.drawn_height, labels)])


def all_labels(rows: Sequence[str], columns: Sequence[str], points: float, cell: float, look: Look) -> Labels:
    """Return a label for each row and column, the columns below the map, upright where one is wider than a cell."""
    upright = look.metrics.max_width(columns, points) > cell - look.medium.pad
    return Labels(rows, columns, points=points, angle=90 if upright else 0)


def positions(shape: tuple[int, int], cell: float, look: Look) -> Labels:
    """Return the numbers of rows and columns, as far apart as they need."""
    step = round_step(cell, look.metrics.width(str(max(shape)), look.medium.number) + 2 * look.medium.pad)
    rows, columns = ([str(n) for n in range(0, length, step)] for length in shape)
    return Labels(rows, columns, step, look.medium.number, are_positions=True)


def draw_labels(ax: Axes, labels: Labels, look: Look, color: str, *, above: bool) -> None:
    """Draw labels, those of the columns above the map or below it."""
    # Axes of the caller have fonts already.
    text: dict[str, Any] = {
        "family": list(look.fonts.families),
        "size": labels.points,
        "color": color,
        "parse_math": False,
    }
    if above:
        ax.xaxis.tick_top()
    length = 1.5 if labels.are_positions else 0
    ax.tick_params(length=length, width=look.medium.line, color=look.frame, pad=look.medium.pad * 72)
    columns, rows = (range(0, len(side) * labels.step, labels.step) for side in (labels.columns, labels.rows))
    ax.set_xticks(columns, labels.columns, **text, **_TURNED[labels.angle])
    ax.set_yticks(rows, labels.rows, **text)
