"""The title of a figure and the note below it, wrapped to its width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.plot.style import Style
from regard.plot.text_metrics import LINE, TextMetrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARGIN = 0.18
"""The margin of every figure, in inches."""

_TITLE, _NOTE, _BELOW = 11.5, 8.5, 0.16


@dataclass(frozen=True)
class Heading:
    """A title and a note, wrapped into lines."""

    title: tuple[str, ...]
    note: tuple[str, ...]

    @classmethod
    def wrap(cls, title: str, note: str, width: float, metrics: TextMetrics) -> Heading:
        """Wrap both into lines of at most `width` inches."""
        return cls(metrics.wrap(title, _TITLE, width), metrics.wrap(note, _NOTE, width))

    @property
    def height(self) -> float:
        """The height of all lines with the space below, in inches."""
        return (len(self.title) * _TITLE + len(self.note) * _NOTE) * LINE + _BELOW

    def draw(self, figure: Figure, metrics: TextMetrics, style: Style) -> None:
        """Draw the lines at the top of `figure`."""
        width, height = figure.get_size_inches()
        y = height - MARGIN
        sized = [(line, _TITLE, style.foreground) for line in self.title]
        sized += [(line, _NOTE, style.muted) for line in self.note]
        for line, points, color in sized:
            figure.text(
                MARGIN / width,
                y / height,
                line,
                size=points,
                color=color,
                va="top",
                family=list(metrics.families),
                parse_math=False,
            )
            y -= points * LINE
