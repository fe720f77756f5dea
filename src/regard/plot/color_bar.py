"""What a colour means: the bar that says it, and maps in dots large enough to keep their colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.plot.style import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

BAR_WIDTH, BAR_HEIGHT, BAR_LABELS = 2.3, 0.09, 0.42
"""Inches: the bar itself, and what its numbers and its label take below."""

_DOTS = 100  # in an inch: no smaller dot is sure to be drawn
_APART = 0.19  # of the bar, between the last two numbers


def pooled(weights: np.ndarray, cell: float) -> tuple[np.ndarray, str]:
    """Return a map whose cells of this many inches can be drawn, and a sentence that says so where it is another.

    Where the cells are too small to be drawn, as many as make one dot are drawn as the largest of them: a mean has a
    colour that no weight has, and a sample leaves weights out.
    """
    k = math.ceil(1 / (cell * _DOTS) - 1e-9)
    if k <= 1:
        return weights, ""
    for axis, length in enumerate(weights.shape):
        dots = math.ceil(length / k)
        weights = np.maximum.reduceat(weights, np.arange(dots) * length // dots, axis=axis)
    return weights, f"Each dot is the largest of {k}×{k} weights."


def colour_bar(
    cax: Axes,
    colours: ScalarMappable,
    style: Style,
    *,
    ticks: Sequence[float] | None = None,
    note: str = "",
    beyond: bool = False,
) -> None:
    """Draw the scale of weights into `cax`, which is `BAR_WIDTH` by `BAR_HEIGHT`, with a number at its end.

    `beyond` says that there are larger weights, which have the colour of the end.
    """
    from matplotlib.ticker import MaxNLocator

    end = colours.get_clim()[1] or 1.0
    inner = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(0, end) if ticks is None else ticks
    room = 1 - np.asarray(colours.norm(np.asarray(inner, dtype=float)))
    shown = [*(float(t) for t, r in zip(inner, room, strict=True) if 0 <= t < end and r > _APART), end]
    figure = cax.get_figure(root=True)
    assert figure is not None
    bar = figure.colorbar(
        colours,
        cax=cax,
        orientation="horizontal",
        ticks=shown,
    )
    bar.set_ticklabels([*(f"{tick:g}" for tick in shown[:-1]), f"≥ {end:.3g}" if beyond else f"{end:.3g}"])
    bar.minorticks_off()
    bar.outline.set_edgecolor(style.faint)
    bar.outline.set_linewidth(0.8)
    bar.set_label(f"weight: share of a word's attention{note}", size=8, color=style.muted, loc="left", labelpad=2)
    bar.ax.tick_params(labelsize=7.5, length=2, pad=2, color=style.faint, labelcolor=style.foreground)
