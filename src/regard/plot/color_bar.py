"""The colour bar of weights, max-pooling of maps with more cells than pixels, and masked cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.plot.style import Style
from regard.views.selection import AttentionView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

BAR_WIDTH, BAR_HEIGHT, BAR_LABELS = 2.3, 0.09, 0.42
"""Inches: width and height of the bar, and the height of its numbers and label below."""

DOTS_PER_INCH = 100
"""Of a map on a screen: smaller dots may not be drawn."""

_MIN_GAP = 0.19  # of the bar, between the last two numbers


def max_pool(weights: np.ndarray, cell: float, dots_per_inch: float = DOTS_PER_INCH) -> tuple[np.ndarray, str]:
    """Return a map that can be drawn with cells of `cell` inches, and a note if it is pooled.

    The cells of one dot become their maximum: their mean would be a weight that does not occur, and a sample would
    omit weights.
    """
    k = math.ceil(1 / (cell * dots_per_inch) - 1e-9)
    if k <= 1:
        return weights, ""
    for axis, length in enumerate(weights.shape):
        dots = math.ceil(length / k)
        weights = np.maximum.reduceat(weights, np.arange(dots) * length // dots, axis=axis)
    return weights, f"Each dot is the largest of {k}×{k} weights."


def drawn_map(view: AttentionView, cell: float, dots_per_inch: float = DOTS_PER_INCH) -> tuple[np.ndarray, str]:
    """Return the map as `max_pool` does, as a masked array if cells are masked."""
    weights, note = max_pool(view.weights, cell, dots_per_inch)
    if view.masked.any():
        weights = np.ma.masked_array(weights, mask=~max_pool(~view.masked, cell, dots_per_inch)[0])
    return weights, note


def mask_note(view: AttentionView) -> str:
    """Return what is masked, in words; "" if nothing is."""
    causal = "Causal: each word attends to itself and to earlier words only. " if view.is_causal else ""
    return f"{causal}Grey cells are masked." if view.masked.any() else ""


def color_bar(
    cax: Axes,
    mappable: ScalarMappable,
    style: Style,
    *,
    ticks: Sequence[float] | None = None,
    label: str = "weight: share of a word's attention",
    note: str = "",
    beyond: bool = False,
) -> None:
    """Draw the colour bar into `cax`, which is `BAR_WIDTH` by `BAR_HEIGHT`, with a number at its end.

    With `beyond` there are larger weights, which have the colour of the end.
    """
    from matplotlib.ticker import MaxNLocator

    end = mappable.get_clim()[1] or 1.0
    inner = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(0, end) if ticks is None else ticks
    gaps = 1 - np.asarray(mappable.norm(np.asarray(inner, dtype=float)))
    shown = [*(float(t) for t, gap in zip(inner, gaps, strict=True) if 0 <= t < end and gap > _MIN_GAP), end]
    figure = cax.get_figure(root=True)
    assert figure is not None
    bar = figure.colorbar(
        mappable,
        cax=cax,
        orientation="horizontal",
        ticks=shown,
    )
    bar.set_ticklabels([*(f"{tick:g}" for tick in shown[:-1]), f"≥ {end:.3g}" if beyond else f"{end:.3g}"])
    bar.minorticks_off()
    bar.outline.set_edgecolor(style.faint)
    bar.outline.set_linewidth(0.8)
    bar.set_label(f"{label}{note}", size=8, color=style.muted, loc="left", labelpad=2)
    bar.ax.tick_params(labelsize=7.5, length=2, pad=2, color=style.faint, labelcolor=style.foreground)
