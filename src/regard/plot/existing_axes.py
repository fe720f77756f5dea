"""Drawing on axes that somebody else made: all that stands around a picture stays in the room that the axes had.

So it lies over no neighbour, leaves no page, and a layout engine has nothing to make room for. Lengths are in inches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from regard.plot.style import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.gridspec import SubplotSpec
    from matplotlib.transforms import Bbox

LEAST = 0.4
"""The share of the room, across and down, that a picture keeps: what stands around has to do with the rest."""

_SURE = 0.97  # of the room: on a screen letters can be wider than they measure

TITLE = 8.5
"""The type of titles on given axes, in points."""


class Around(NamedTuple):
    """What stands around a picture."""

    left: float = 0.0
    right: float = 0.0
    above: float = 0.0
    below: float = 0.0

    def inside(self, room: np.ndarray) -> np.ndarray:
        """Return the width and the height that are left of `room`."""
        return room - (self.left + self.right, self.above + self.below)


@dataclass(frozen=True, eq=False)
class _Inside:
    """Where axes stand that leave room `around` them in the place that they were given (an axes locator)."""

    ax: Axes
    around: Around

    def get_subplotspec(self) -> SubplotSpec | None:
        """Return the axes' own, so that a tight layout goes on to know them."""
        return self.ax.get_subplotspec()

    def __call__(self, _ax: object = None, _renderer: object = None) -> Bbox:
        from matplotlib.transforms import Bbox

        place, (W, H) = self.ax.get_position(original=True), _size_of_panel(self.ax)
        left, bottom = place.x0 + self.around.left / W, place.y0 + self.around.below / H
        right, top = place.x1 - self.around.right / W, place.y1 - self.around.above / H
        return Bbox.from_extents(left, bottom, max(left, right), max(bottom, top))


def available_size(ax: Axes) -> np.ndarray:
    """Return the width and the height that are sure to fit where the layout puts axes with nothing around them.

    Axes that are still empty are taken to be drawn on in the same way: the ticks around them take no room.
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
    return np.asarray(np.multiply(ax.get_position(original=True).size, _SURE * _size_of_panel(ax)))


def keep_inside(ax: Axes, around: Around) -> None:
    """Shrink axes by what stands around them, now and whenever their figure is laid out anew."""
    place = _Inside(ax, around)
    ax.set_axes_locator(place)
    ax.apply_aspect(place())


def write_title(
    ax: Axes, lines: Sequence[str], *, before: float, above: float, families: Sequence[str], style: Style
) -> None:
    """Write a title that begins so far before the left edge of the axes and ends so far above their upper edge."""
    from matplotlib.transforms import ScaledTranslation

    figure = ax.get_figure(root=True)
    assert figure is not None
    title = ax.set_title(
        "\n".join(lines),
        size=TITLE,
        color=style.foreground,
        loc="left",
        y=1,
        pad=above * 72,
        family=list(families),
        parse_math=False,
    )
    title.set_transform(title.get_transform() + ScaledTranslation(-before, 0, figure.dpi_scale_trans))


def _size_of_panel(ax: Axes) -> np.ndarray:
    """Return the width and the height of the figure, or of the part of one, that axes are in."""
    panel, figure = ax.get_figure(root=False), ax.get_figure(root=True)
    assert panel is not None
    assert figure is not None
    return np.asarray(panel.bbox.size) / figure.dpi
