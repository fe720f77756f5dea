"""The bar that says what a colour means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.views._style import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

BAR_WIDTH, BAR_HEIGHT, BAR_LABELS = 2.3, 0.09, 0.42
"""Inches: the bar itself, and what its numbers and its label take below."""


def colour_bar(
    cax: Axes,
    colours: ScalarMappable,
    style: Style,
    *,
    ticks: Sequence[float] | None = None,
    note: str = "",
) -> None:
    """Draw the scale of weights into `cax`, which is `BAR_WIDTH` by `BAR_HEIGHT`."""
    from matplotlib.ticker import MaxNLocator

    figure = cax.get_figure(root=True)
    assert figure is not None
    bar = figure.colorbar(
        colours,
        cax=cax,
        orientation="horizontal",
        ticks=MaxNLocator(4, steps=[1, 2, 5, 10]) if ticks is None else ticks,
        format="%g",
    )
    bar.minorticks_off()
    bar.outline.set_edgecolor(style.faint)
    bar.outline.set_linewidth(0.8)
    bar.set_label(f"weight: share of a word's attention{note}", size=8, color=style.muted, loc="left", labelpad=2)
    bar.ax.tick_params(labelsize=7.5, length=2, pad=2, color=style.faint, labelcolor=style.foreground)
