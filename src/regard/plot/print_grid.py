"""The maps of all heads for print, or their differences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.plot.color_bar import drawn_map
from regard.plot.print_maps import pooled_difference
from regard.plot.print_page import (
    AXIS_TYPE,
    BAR_GAP,
    CELLS_PER_INCH,
    MAX_BAR,
    NUMBER_TYPE,
    OVERHANG,
    PAD,
    SPACING,
    Canvas,
    Drawing,
    Page,
    bar_width,
)
from regard.plot.text_metrics import LINE
from regard.views.selection import AttentionView

if TYPE_CHECKING:
    from matplotlib.colors import Normalize

_PANEL_GAP, _MAX_PANEL = 0.12, 0.6  # the gap as a share of a panel and its gap; the panel in inches


def draw_grid(page: Page, views: list[list[list[AttentionView]]]) -> Drawing:
    """Draw the maps of all heads of one source, or of two their differences, on a square-root scale."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import FuncNorm, PowerNorm

    style, of_a = page.style, views[0]
    across, down = page.available
    names = [str(number) for number in of_a[0][0].layers] or [""]
    columns, rows = max(map(len, of_a)), len(of_a)
    left = AXIS_TYPE * LINE + page.text_width(names, NUMBER_TYPE) + 2 * PAD
    below = AXIS_TYPE * LINE + NUMBER_TYPE * LINE + PAD
    right = bar_width(is_difference=len(views) == 2)
    pitch = min((across - left - right) / columns, (down - below - OVERHANG) / rows, _MAX_PANEL)
    size = pitch * (1 - _PANEL_GAP)
    width, height = columns * pitch - (pitch - size), rows * pitch - (pitch - size)
    cell = size / max(of_a[0][0].weights.shape)
    if len(views) == 1:
        panels = [[drawn_map(view, cell, CELLS_PER_INCH)[0] for view in of_layer] for of_layer in of_a]
    else:
        panels = [
            [pooled_difference(a.weights - b.weights, a.masked & b.masked, cell) for a, b in zip(*of_both, strict=True)]
            for of_both in zip(*views, strict=True)
        ]
    end = max(float(np.abs(panel).max()) for of_layer in panels for panel in of_layer) or 1.0
    if len(views) == 1:
        scale: Normalize = PowerNorm(0.5, 0, end)
        colors, meaning = style.colormap(), "attention weight (square-root scale)"
    else:
        scale = FuncNorm((_signed_root, _signed_square), -end, end)
        colors, meaning = style.diverging_colormap(), "A − B (square-root scale)"

    def draw(canvas: Canvas) -> None:
        from matplotlib.patches import Rectangle

        ax = canvas.axes(left, below, width, height, xlim=(0, width), ylim=(height, 0))
        ax.set_axis_off()
        for i, of_layer in enumerate(panels):
            for j, panel in enumerate(of_layer):
                x, y = j * pitch, i * pitch
                extent = (x, x + size, y + size, y)
                ax.imshow(panel, extent=extent, aspect="auto", cmap=colors, norm=scale, interpolation="nearest")
                frame = Rectangle((x, y), size, size, fill=False, edgecolor=style.muted, linewidth=0.3, clip_on=False)
                ax.add_patch(frame)
        ax.set(xlim=(0, width), ylim=(height, 0))
        step = _step(page, columns, pitch)
        for j in range(0, columns if of_a[0][0].heads else 0, step):
            canvas.text(left + j * pitch + size / 2, below - PAD, str(j), NUMBER_TYPE, ha="center", va="top")
        for i in range(0, rows, max(1, math.ceil(NUMBER_TYPE * SPACING / pitch))):
            middle = below + height - i * pitch - size / 2
            canvas.text(left - PAD, middle, names[i], NUMBER_TYPE, ha="right", va="center_baseline")
        canvas.upright(0, below, height, ("layer", ""), va="top")
        canvas.text(left + width / 2, 0, "head", AXIS_TYPE, ha="center", va="bottom")
        tall = min(height, MAX_BAR)
        canvas.color_bar(ScalarMappable(scale, colors), left + width + BAR_GAP, below + height - tall, tall, meaning)

    k = math.ceil(1 / (cell * CELLS_PER_INCH) - 1e-9)
    farthest = "farthest from 0" if len(views) == 2 else "largest"
    note = f"Each dot is the {farthest} of {k}×{k} weights." if k > 1 else ""
    return Drawing(left + width + right, below + height + OVERHANG, draw, note)


def _signed_root(x: Any) -> Any:
    return np.sign(x) * np.sqrt(np.abs(x))


def _signed_square(x: Any) -> Any:
    return np.sign(x) * np.square(x)


def _step(page: Page, number: int, pitch: float) -> int:
    """Return every how many heads have a number."""
    return max(1, math.ceil((page.text_width([str(number - 1)], NUMBER_TYPE) + PAD) / pitch))
