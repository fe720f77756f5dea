"""Drawing on axes of the caller: the decorations of a plot stay inside the space that the axes had.

So they cover no neighbour and do not leave the page, and a layout engine reserves no space for them. Lengths are in
inches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from regard.plot.style import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.gridspec import SubplotSpec
    from matplotlib.transforms import Bbox

MIN_SHARE = 0.4
"""The least share of the available width and height that is left to the plot itself."""

_SAFETY = 0.97  # on screens, text may be wider than measured


class Margins(NamedTuple):
    """The space for decorations around a plot."""

    left: float = 0.0
    right: float = 0.0
    above: float = 0.0
    below: float = 0.0

    def shrink(self, size: np.ndarray) -> np.ndarray:
        """Return a width and a height minus the margins."""
        return size - (self.left + self.right, self.above + self.below)

    def grow(self, size: np.ndarray) -> np.ndarray:
        """Return a width and a height plus the margins."""
        return np.asarray(np.add(size, (self.left + self.right, self.above + self.below)))


@dataclass(frozen=True, eq=False)
class _InsetLocator:
    """An axes locator: the original position of `ax` minus margins."""

    ax: Axes
    margins: Margins

    def get_subplotspec(self) -> SubplotSpec | None:
        """Return that of the axes, which a tight layout needs."""
        return self.ax.get_subplotspec()

    def __call__(self, _ax: object = None, _renderer: object = None) -> Bbox:
        from matplotlib.transforms import Bbox

        place, (W, H) = self.ax.get_position(original=True), _figure_size(self.ax)
        left, bottom = place.x0 + self.margins.left / W, place.y0 + self.margins.below / H
        right, top = place.x1 - self.margins.right / W, place.y1 - self.margins.above / H
        return Bbox.from_extents(left, bottom, max(left, right), max(bottom, top))


def available_size(ax: Axes) -> np.ndarray:
    """Return the width and the height that the layout gives to axes without decorations.

    Other axes that are still empty count as having no decorations either.
    """
    figure = ax.get_figure(root=True)
    assert figure is not None
    if (engine := figure.get_layout_engine()) is not None:
        empty = [other for other in figure.axes if other.get_visible() and not other.has_data()]
        for other in empty:
            other.set_visible(False)
        try:
            engine.execute(figure)
        finally:
            for other in empty:
                other.set_visible(True)
    return np.asarray(np.multiply(ax.get_position(original=True).size, _SAFETY * _figure_size(ax)))


def shrink_axes(ax: Axes, margins: Margins) -> None:
    """Shrink axes by margins, now and at each new layout of their figure."""
    locator = _InsetLocator(ax, margins)
    ax.set_axes_locator(locator)
    ax.apply_aspect(locator())


def draw_title(ax: Axes, lines: Sequence[str], *, before: float, above: float, look: Look) -> None:
    """Draw a title that starts `before` inches left of the axes and ends `above` inches above them."""
    from matplotlib.transforms import ScaledTranslation

    figure = ax.get_figure(root=True)
    assert figure is not None
    title = ax.set_title(
        "\n".join(lines),
        size=look.medium.small,
        color=look.style.foreground,
        loc="left",
        y=1,
        pad=above * 72,
        family=list(look.fonts.families),
        parse_math=False,
    )
    title.set_transform(title.get_transform() + ScaledTranslation(-before, 0, figure.dpi_scale_trans))


def _figure_size(ax: Axes) -> np.ndarray:
    """Return the width and the height of the figure, or subfigure, of axes."""
    panel, figure = ax.get_figure(root=False), ax.get_figure(root=True)
    assert panel is not None
    assert figure is not None
    return np.asarray(panel.bbox.size) / figure.dpi
