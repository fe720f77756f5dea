"""The title of a figure and the note under it, from its left edge, as many lines as they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.plot.style import Style
from regard.plot.text_metrics import LINE, Ruler

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARGIN = 0.18
"""What every figure leaves empty at its edges, in inches."""

_TITLE, _NOTE, _BELOW = 11.5, 8.5, 0.16


@dataclass(frozen=True)
class Heading:
    """A title and a note broken into lines."""

    title: tuple[str, ...]
    note: tuple[str, ...]

    @classmethod
    def fitted(cls, title: str, note: str, width: float, ruler: Ruler) -> Heading:
        """Break both into lines of at most `width` inches."""
        return cls(ruler.wrapped(title, _TITLE, width), ruler.wrapped(note, _NOTE, width))

    @property
    def height(self) -> float:
        """The height of all lines and the space below, in inches."""
        return (len(self.title) * _TITLE + len(self.note) * _NOTE) * LINE + _BELOW

    def write(self, figure: Figure, ruler: Ruler, style: Style) -> None:
        """Write the lines at the top of `figure`."""
        width, height = figure.get_size_inches()
        y = height - MARGIN
        sized = [(line, _TITLE, style.foreground) for line in self.title]
        sized += [(line, _NOTE, style.muted) for line in self.note]
        for line, points, colour in sized:
            figure.text(
                MARGIN / width,
                y / height,
                line,
                size=points,
                color=colour,
                va="top",
                family=list(ruler.families),
                parse_math=False,
            )
            y -= points * LINE
