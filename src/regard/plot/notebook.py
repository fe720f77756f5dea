"""Figures and axes of matplotlib that a notebook shows when they end a cell, without pyplot."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.plot.save import encode

_PIXELS_PER_INCH = 96  # of a web page; the picture itself has more, for sharp screens


class NotebookFigure(Figure):
    """A figure that IPython shows as a picture."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        width, height = (round(float(side) * _PIXELS_PER_INCH) for side in self.get_size_inches())
        return encode(self, "png"), {"width": width, "height": height}


class NotebookAxes(Axes):
    """Axes that IPython shows as the picture of their figure, as it does for the figure itself."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        figure = self.get_figure(root=True)
        assert isinstance(figure, NotebookFigure)
        return figure._repr_png_()
