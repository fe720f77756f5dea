"""A figure of one plot: on a figure of its own, as large as it needs, or on axes of the caller, with what fits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from regard.plot.existing_axes import MIN_SHARE, Margins, available_size, draw_title, shrink_axes
from regard.plot.page import Page
from regard.plot.style import Look, style_for_axes
from regard.plot.text_metrics import LINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class SinglePlot(ABC):
    """A plot with what surrounds it. Sizes are widths and heights in inches.

    Its `parts` are what surrounds the plot, the most important first. On a figure of its own it has all of them.
    """

    parts: ClassVar[tuple[str, ...]]  # "title" and "note" are drawn here, the others by `draw`

    def __init__(self, look: Look) -> None:
        self.look = look
        self.outer = look  # of what is outside of the axes: readable on the caller's figure

    @abstractmethod
    def size(self) -> tuple[float, float]:
        """Return the size of the plot on a figure of its own."""

    @abstractmethod
    def titles(self) -> Sequence[str]:
        """Return the title, and shorter ones for less space."""

    @abstractmethod
    def note(self, size: np.ndarray, parts: Sequence[str]) -> str:
        """Return what stands below the title of a plot of this size."""

    @abstractmethod
    def margins(self, size: np.ndarray, parts: Sequence[str]) -> Margins:
        """Return the space that these parts take around a plot of this size, title and note apart."""

    @abstractmethod
    def draw(self, ax: Axes, size: np.ndarray, parts: Sequence[str]) -> None:
        """Draw the plot, of this size, with these parts."""

    def draw_on(self, ax: Axes | None) -> Axes:
        """Draw everything, on a new figure if there are no axes, and return the axes of the plot."""
        with self.look.rc_context():
            return self._draw_figure() if ax is None else self._draw_into(ax)

    def _draw_figure(self) -> Axes:
        from regard.plot.notebook import NotebookAxes

        size = np.array(self.size())
        margins, note = self.margins(size, self.parts), self.note(size, self.parts)
        page = Page.new(margins.grow(size).tolist(), self.look, title=self.titles()[0], note=note)
        ax = page.axes(margins.left, margins.below, *size, axes_class=NotebookAxes)
        self.draw(ax, size, self.parts)
        return ax

    def _draw_into(self, ax: Axes) -> Axes:
        self.outer = replace(self.look, style=style_for_axes(ax, self.look.style))
        parts, size, margins, heading = self._fit(available_size(ax))
        shrink_axes(ax, margins._replace(above=margins.above + self._height(heading)))
        self.draw(ax, size, parts)
        # The title starts at the plot, or to its left if it would be too long.
        overhang = max(self.look.metrics.max_width(heading, self.look.medium.small) - size[0] - margins.right, 0.0)
        before, above = min(overhang, margins.left), margins.above + self.look.medium.pad
        draw_title(ax, heading, before=before, above=above, look=self.outer)
        return ax

    def _fit(self, available: np.ndarray) -> tuple[Sequence[str], np.ndarray, Margins, Sequence[str]]:
        """Return the parts that leave the plot its share of the space, its size and margins, and title and note."""
        for most in range(len(self.parts), -1, -1):
            parts, size = self.parts[:most], available
            while (size >= MIN_SHARE * available).all():
                margins, heading = self.margins(size, parts), self._heading(size, parts, available[0])
                rest = margins.shrink(available) - (0, self._height(heading))
                if (size <= rest + 1e-9).all():
                    return parts, rest, margins, heading
                size = np.where(size > rest, np.maximum(rest, 0.94 * size), size)
        raise AssertionError("a plot with nothing around it always fits")

    def _heading(self, size: np.ndarray, parts: Sequence[str], across: float) -> Sequence[str]:
        """Return the title in one line, and the lines of the note."""
        if "title" not in parts:
            return ()
        note = self.note(size, parts) if "note" in parts else ""
        title = self.look.metrics.fit(self.titles(), self.look.medium.small, across)
        return (title, *self.look.metrics.wrap(note, self.look.medium.small, across))

    def _height(self, heading: Sequence[str]) -> float:
        return len(heading) * self.look.medium.small * LINE + self.look.medium.pad if heading else 0.0
