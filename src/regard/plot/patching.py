"""What patching each of many sites recovers, as a figure for print."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from regard._utils.packages import needed
from regard.metrics import PatchGrid
from regard.plot.cells import draw_cells, draw_frame, draw_lines, extent_of
from regard.plot.color_bar import color_bar, room_beside
from regard.plot.figure import figure_width
from regard.plot.fonts import find_fonts
from regard.plot.labels import PRINT_SPACING, all_labels, draw_labels, positions, print_spacing
from regard.plot.page import Page
from regard.plot.style import PRINT, Look, get_style
from regard.plot.text_metrics import LINE
from regard.views.labels import format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Lengths are in inches.
_MAX_CELL, _MIN_ROW, _MAX_ROW = 0.32, 0.1, 0.16
_NEARLY = 1.05  # what goes a little beyond 1 has its colour
_LABEL_COLUMNS = 18


@needed("a figure")
def patching(grid: PatchGrid, *, width: str | float = "column", caption: bool = False, theme: str = "light") -> Figure:
    """Draw what each patch recovers: a row for each layer, a column for each position or head.

    Parameters
    ----------
    grid : PatchGrid
        Of `regard.metrics.patch_grid`.
    width : {"column", "page"} or float
        85 mm, 170 mm, or millimetres.
    caption : bool
        Write the number, and that of both runs, below.
    theme : {"light", "dark"}

    Returns
    -------
    Figure
        On a scale that is centred at 0, the corrupted run; 1 is the clean one. Where labels of tokens would be smaller
        than 5 points, columns are numbered.

    Raises
    ------
    RegardError
        There is no such width or theme.
    """
    from matplotlib.colors import Normalize

    across = figure_width(width)
    numbers = [format_number(number, ".4g") for number in (grid.corrupted, grid.clean)]
    runs = f"0: the corrupted run, {numbers[0]}; 1: the clean run, {numbers[1]}"
    fonts = find_fonts([*grid.labels, grid.metric])
    look = Look(fonts, get_style(theme), PRINT)
    values = np.nan_to_num(grid.recovered)
    largest = float(np.abs(values).max())
    end = largest if largest > _NEARLY else 1.0
    rows, columns = list(map(str, grid.layers)), [fonts.label(each, _LABEL_COLUMNS) for each in grid.labels]
    name, bar = PRINT.small * LINE, PRINT.pad + room_beside(look, signed=True)
    left = name + look.metrics.max_width(rows, PRINT.label) + 2 * PRINT.pad
    cell = min(_MAX_CELL, (across - 2 * PRINT.margin - left - bar) / len(columns))
    points = min(PRINT.label, cell / print_spacing(columns, look))
    if points >= PRINT.smallest:
        labels = all_labels(rows, columns, points, cell, look)
    else:
        labels = positions(values.shape, cell, look)._replace(rows=rows)
    size = np.array([cell * len(columns), min(max(cell, _MIN_ROW), _MAX_ROW) * len(rows)])
    below = (
        2 * PRINT.pad
        + name
        + (look.metrics.max_width(labels.columns, labels.points) if labels.angle else labels.points * LINE)
    )
    site = "head" if grid.axes == "L H" else "position"
    with look.rc_context():
        said = f"{fonts.label(grid.metric)}. {runs}." if caption else ""
        paper = Page.new((left + size[0] + bar, size[1] + below + name), look, caption=said, width=across)
        ax = paper.axes(left, below, *size)
        image = draw_cells(ax, values, look.style.diverging_colormap(), Normalize(-end, end), extent_of(values.shape))
        draw_frame(ax, look)
        draw_lines(ax, values.shape, look)
        draw_labels(ax, labels._replace(rows=()), look, look.style.foreground, above=False)
        step = max(1, int(np.ceil(PRINT.label * PRINT_SPACING * len(rows) / size[1])))
        ax.set_yticks(range(0, len(rows), step), rows[::step], size=PRINT.label)
        paper.name_axis(left + size[0] / 2, 0, [site])
        paper.name_axis(0, below + size[1] / 2, ["layer"], upright=True)
        cax = paper.axes(left + size[0] + PRINT.pad, below, 0.08, size[1])
        color_bar(cax, image, ["recovered"], look, length=size[1], beside=True)
    return paper.figure
