"""A new figure in inches: a title and a note above what is drawn, a caption below it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.plot.style import Look
from regard.plot.text_metrics import LINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BELOW_HEADING = 0.16
_MIN_WIDTH = 4.7  # of the title and the note


@dataclass(frozen=True, eq=False)
class Page:
    """A figure with a heading, a caption, and between them space of a given size.

    Places are in inches from the lower left corner of that space. Make and fill it inside `Look.rc_context`.
    """

    figure: Figure
    left: float
    bottom: float
    look: Look

    @classmethod
    def new(
        cls,
        size: Sequence[float],
        look: Look,
        *,
        title: str = "",
        note: str = "",
        caption: str = "",
        width: float | None = None,
        figure: Figure | None = None,
    ) -> Page:
        """Return the page around a space of a width and a height.

        In a given `width` of the figure the space is in the middle. A `figure` is cleared and resized.
        """
        from regard.plot.notebook import NotebookFigure

        medium, metrics = look.medium, look.metrics
        across = max(size[0], _MIN_WIDTH) if width is None else width - 2 * medium.margin
        lines = [(line, medium.title, look.style.foreground) for line in metrics.wrap(title, medium.title, across)]
        lines += [(line, medium.small, look.style.muted) for line in metrics.wrap(note, medium.small, across)]
        above = sum(points * LINE for _, points, _ in lines) + _BELOW_HEADING * bool(lines)
        below = caption_height(caption, across, look)
        W, H = across + 2 * medium.margin, above + size[1] + below + 2 * medium.margin
        figure = NotebookFigure(dpi=medium.dots) if figure is None else figure
        figure.clear()
        figure.set(size_inches=(W, H), facecolor=look.style.background)
        paper = cls(figure, medium.margin, medium.margin, look)
        y = H - 2 * medium.margin
        for line, points, color in lines:
            paper.text(0, y, line, size=points, color=color, va="top")
            y -= points * LINE
        for n, line in enumerate(metrics.wrap(caption, medium.small, across)):
            paper.text(0, below - 3 * medium.pad - n * medium.small * LINE, line, size=medium.small, va="top")
        indent = 0 if width is None else max(0.0, (across - size[0]) / 2)
        return cls(figure, medium.margin + indent, medium.margin + below, look)

    def axes(self, left: float, bottom: float, width: float, height: float, **options: Any) -> Axes:
        """Return new axes of this place and size."""
        W, H = self.figure.get_size_inches()
        place = ((self.left + left) / W, (self.bottom + bottom) / H, width / W, height / H)
        return self.figure.add_axes(place, **options)

    def text(self, x: float, y: float, text: str, **options: Any) -> None:
        """Write a text at a place, as `Figure.text` does."""
        W, H = self.figure.get_size_inches()
        self.figure.text((self.left + x) / W, (self.bottom + y) / H, text, **options)

    def name_axis(
        self, x: float, y: float, names: Sequence[str], length: float = math.inf, *, upright: bool = False
    ) -> None:
        """Write the first of `names` that is no longer than `length` centred on a place and above it.

        An upright one goes from below to above, to the right of the place.
        """
        name = self.look.metrics.fit([*names, ""], self.look.medium.small, length)
        turned: dict[str, Any] = {"rotation": 90, "rotation_mode": "anchor", "va": "top"}
        options: dict[str, Any] = turned if upright else {"va": "bottom"}
        self.text(x, y, name, size=self.look.medium.small, color=self.look.names, ha="center", **options)


def caption_height(caption: str, width: float, look: Look) -> float:
    """Return the height of a caption in a width, with the gap above it; 0 without one."""
    lines = look.metrics.wrap(caption, look.medium.small, width)
    return len(lines) * look.medium.small * LINE + (3 * look.medium.pad if lines else 0.0)
