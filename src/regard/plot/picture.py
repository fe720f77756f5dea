"""What one token attends to, over the picture that the model sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.packages import needed
from regard._utils.validation import finite_number
from regard.plot import captions
from regard.plot.cells import draw_cells, draw_frame, extent_of
from regard.plot.color_bar import LENGTH, bar_below, room_below
from regard.plot.existing_axes import Margins
from regard.plot.fonts import find_fonts
from regard.plot.labels import Labels, draw_labels, round_step
from regard.plot.single_plot import SinglePlot
from regard.plot.style import Look, Style, get_style, luminance
from regard.trace import Trace
from regard.views.patches import PatchView, select_patches

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

# Lengths are in inches.
_SIDE = 4.6  # the longer side of the picture
_LABELS, _LABEL_SPACING, _BAR_DROP = 0.3, 0.3, 0.16
_OPAQUE, _PALEST = 0.9, 0.35  # the colour of the largest value; where in the colour map the smallest begin
_SHADES = 0.45  # of the range of lightness that is left to the picture


@needed("a figure")
def picture(
    source: Trace | PatchView,
    values: Any = None,
    *,
    query: str | None = None,
    layer: int | None = None,
    head: int | str | None = None,
    batch: int = 0,
    image: Any = None,
    vmax: float | None = None,
    theme: str = "light",
    ax: Axes | None = None,
) -> Axes:
    """Draw what one token of a picture attends to, over the picture.

    The picture is grey and pale, so that the colour is that of the weights alone; the patch that attends has a frame.

    Parameters
    ----------
    source, values, query, layer, head, batch
        As in `regard.views.select_patches`; or its result as `source`, without the others.
    image : array of uint8, ``Y X 3``, optional
        What the model sees. Default: the step ``picture`` of the trace.
    vmax : float, optional
        The value at the end of the colour scale. Default: the largest. Use one value for maps to be compared.
    theme : {"light", "dark"}
    ax : Axes, optional
        Default: on a new figure, ``picture(...).figure``. Given axes shrink to the picture with its labels.

    Returns
    -------
    Axes
        With the picture; the patch in row i and column j has its centre at ``x = j, y = i``.

    Raises
    ------
    RegardError
        As in `select_patches`; or there is no picture, no such theme, or `vmax` is not positive and finite.
    """
    style = get_style(theme)
    end = None if vmax is None else finite_number("vmax", vmax, positive=True)
    if isinstance(source, PatchView):
        if values is not None or (query, layer, head, batch) != (None, None, None, 0):
            raise RegardError("a view is one map over a picture: give picture no other selection")
        view = source
    else:
        view = select_patches(source, values, query=query, layer=layer, head=head, batch=batch)
    seen = np.asarray(view.picture if image is None else image)
    if seen.dtype != np.uint8 or seen.ndim != 3 or seen.shape[2] != 3:
        raise RegardError(
            "the trace has no step picture, what the model sees: record it, Trace(only=('picture', …)), or give "
            "image=model.see(picture)[0]"
        )
    return _Picture(view, seen, style, end or float(view.values.max()) or 1.0).draw_on(ax)


class _Picture(SinglePlot):
    """A view over what the model sees, with the end of its colour scale."""

    parts = ("title", "labels", "color bar", "note")

    def __init__(self, view: PatchView, seen: np.ndarray, style: Style, end: float) -> None:
        super().__init__(Look(find_fonts([view.model]), style))
        self.view, self.seen, self.end = view, seen, end

    def size(self) -> tuple[float, float]:
        height, width = self.seen.shape[:2]
        return _SIDE * width / max(height, width), _SIDE * height / max(height, width)

    def titles(self) -> Sequence[str]:
        view = self.view
        what = "Patches of a picture" if view.query is None else f"Attention of {view.query}"
        titles = captions.titled(what, view.model, self.look.fonts, view.describe), view.describe, view.query or ""
        return [title for title in titles if title]

    def note(self, _size: np.ndarray, _parts: Sequence[str]) -> str:
        return captions.left_out(self.view.others, self.look.fonts, self.view.rest)

    def margins(self, size: np.ndarray, parts: Sequence[str]) -> Margins:
        side, below = _LABELS if "labels" in parts else 0.0, 0.0
        height, width = self.seen.shape[:2]
        across = width * min(size[0] / width, size[1] / height)
        if "color bar" in parts:
            below = _BAR_DROP + room_below(self.look.medium)
        return Margins(side, max(0.0, LENGTH + 0.1 - across) if below else 0.0, side, below)

    def draw(self, ax: Axes, size: np.ndarray, parts: Sequence[str]) -> None:
        from matplotlib.colors import Normalize
        from matplotlib.patches import Rectangle

        shape, (height, width) = self.view.values.shape, self.seen.shape[:2]
        rows, columns = shape
        extent, aspect = extent_of(shape), (height / rows) / (width / columns)
        ax.imshow(self._pale(), extent=extent, aspect=aspect, interpolation="bilinear")
        colors, scale = _transparent(self.look.style), Normalize(0, self.end)
        image = draw_cells(ax, self.view.values, colors, scale, extent, aspect)
        if self.view.place is not None:
            row, column = self.view.place
            frame: dict[str, Any] = {"fill": False, "edgecolor": self.look.style.contextual, "linewidth": 2.0}
            ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **frame))
        draw_frame(ax, self.look)
        labels = Labels()
        if "labels" in parts:
            step = round_step(float(size[0]) / columns, _LABEL_SPACING)
            names = [f"r{n}" for n in range(0, rows, step)], [f"c{n}" for n in range(0, columns, step)]
            labels = Labels(*names, step=step, points=self.look.medium.number)
        draw_labels(ax, labels, self.look, self.outer.style.muted, above=True)
        if "color bar" in parts:
            query, beyond = self.view.query, bool(self.end < self.view.values.max())
            meaning = "value" if query is None else f"weight: share of the attention of {query}"
            bar_below(ax, _BAR_DROP, image, meaning, self.outer, beyond=beyond)

    def _pale(self) -> np.ndarray:
        """Return the picture in grey, in the part of the lightness that is next to the background."""
        from matplotlib.colors import to_rgb

        grey = self.seen @ np.array([0.299, 0.587, 0.114]) / 255
        is_light = luminance(to_rgb(self.look.style.background)) > 0.5
        grey = 1 - _SHADES * (1 - grey) if is_light else _SHADES * grey
        return np.repeat(grey[..., None], 3, axis=2)


def _transparent(style: Style) -> Colormap:
    """Return the colours of weights, the smaller the more transparent."""
    from matplotlib.colors import ListedColormap

    shares = np.linspace(0, 1, 256)
    colors = style.colormap()(_PALEST + (1 - _PALEST) * shares)
    colors[:, 3] = _OPAQUE * shares**0.6
    return ListedColormap(colors, name="regard.patches")
