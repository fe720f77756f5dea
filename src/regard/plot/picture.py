"""What one token attends to, over the picture that the model sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number
from regard.plot.color_bar import BAR_HEIGHT, BAR_LABELS, BAR_WIDTH, color_bar
from regard.plot.existing_axes import TITLE, Margins, available_size, draw_title, shrink_axes
from regard.plot.fonts import FontFallback, find_fonts
from regard.plot.heading import MARGIN, Heading
from regard.plot.style import Style, get_style, luminance, style_for_axes
from regard.plot.text_metrics import LINE
from regard.trace import Trace
from regard.views.patches import PatchView, select_patches

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.transforms import Affine2DBase

# Lengths are in inches, type sizes in points.
_SIDE, _MIN_WIDTH = 4.6, 4.7  # the longer side of the picture
_LABELS, _TYPE, _PAD = 0.3, 8.0, 0.06
_BAR_DROP = 0.16
_LABEL_SPACING = 0.3
_OPAQUE, _PALEST = 0.9, 0.35  # the colour of the largest value; where in the colour map the smallest begin
_SHADES = 0.45  # of the range of lightness that is left to the picture


def picture(
    source: Trace | PatchView,
    values: Any = None,
    *,
    query: str | None = None,
    layer: int | None = None,
    head: int | None = None,
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
    fonts = find_fonts([view.model])
    with style.rc_context():
        drawing = _Drawing(view, seen, fonts, style, end or float(view.values.max()) or 1.0)
        return drawing.draw_figure() if ax is None else drawing.draw_into(ax)


class _Drawing:
    """A view over a picture, in a style."""

    def __init__(self, view: PatchView, seen: np.ndarray, fonts: FontFallback, style: Style, end: float) -> None:
        self.view, self.seen, self.fonts, self.style, self.end = view, seen, fonts, style, end

    def draw_figure(self) -> Axes:
        from regard.plot.notebook import NotebookAxes, NotebookFigure

        height, width = self.seen.shape[:2]
        across, down = (_SIDE * side / max(height, width) for side in (width, height))
        wide = max(_LABELS + across, _MIN_WIDTH)
        heading = Heading.wrap(self._title(), self._note(), wide, self.fonts.metrics)
        below = _BAR_DROP + BAR_HEIGHT + BAR_LABELS
        W, H = wide + 2 * MARGIN, heading.height + _LABELS + down + below + 2 * MARGIN
        figure = NotebookFigure(figsize=(W, H))
        heading.draw(figure, self.fonts.metrics, self.style)
        ax = figure.add_axes(
            ((MARGIN + _LABELS) / W, (MARGIN + below) / H, across / W, down / H), axes_class=NotebookAxes
        )
        self._draw(ax, self.style, across)
        self._draw_bar(ax, self.style)
        return ax

    def draw_into(self, ax: Axes) -> Axes:
        outer = style_for_axes(ax, self.style)
        size = available_size(ax)
        titles = (self._title(), self.view.describe, self.view.query or "")
        title = self.fonts.metrics.fit([each for each in titles if each], TITLE, float(size[0]))
        above = _LABELS + TITLE * LINE
        shrink_axes(ax, Margins(left=_LABELS, above=above))
        self._draw(ax, outer, float(size[0]) - _LABELS)
        draw_title(ax, (title,), before=_LABELS, above=_LABELS, families=self.fonts.families, style=outer)
        return ax

    def _title(self) -> str:
        model = f" in {self.fonts.label(self.view.model, 60)}" if self.view.model else ""
        if self.view.query is None:
            return f"Patches of a picture{model}"
        return f"Attention of {self.view.query}{model}: {self.view.describe}"

    def _note(self) -> str:
        if not self.view.others:
            return ""
        return f"Left out: {' and '.join(self.view.others)}, with {self.view.rest:.0%} of the attention."

    def _draw(self, ax: Axes, outer: Style, across: float) -> None:
        from matplotlib.patches import Rectangle

        rows, columns = self.view.values.shape
        extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
        height, width = self.seen.shape[:2]
        aspect = (height / rows) / (width / columns)
        ax.imshow(self._pale(), extent=extent, aspect=aspect, interpolation="bilinear")
        self.image = ax.imshow(
            self.view.values,
            extent=extent,
            aspect=aspect,
            cmap=_transparent(self.style),
            vmin=0,
            vmax=self.end,
            interpolation="nearest",
        )
        if self.view.place is not None:
            row, column = self.view.place
            frame: dict[str, Any] = {"fill": False, "edgecolor": self.style.contextual, "linewidth": 2.0}
            ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **frame))
        ax.spines[:].set_color(self.style.faint)
        ax.xaxis.tick_top()
        ax.tick_params(length=0, pad=_PAD * 72, labelsize=_TYPE, labelcolor=outer.muted)
        step = _step(across / columns)
        ax.set_xticks(range(0, columns, step), [f"c{i}" for i in range(0, columns, step)])
        ax.set_yticks(range(0, rows, step), [f"r{i}" for i in range(0, rows, step)])

    def _draw_bar(self, ax: Axes, style: Style) -> None:
        from matplotlib.transforms import ScaledTranslation

        figure = ax.get_figure(root=True)
        assert figure is not None
        below = figure.dpi_scale_trans + ScaledTranslation(0, 0, cast("Affine2DBase", ax.transAxes))
        cax = ax.inset_axes((0, -_BAR_DROP - BAR_HEIGHT, BAR_WIDTH, BAR_HEIGHT), transform=below)
        label = "value" if self.view.query is None else f"weight: share of the attention of {self.view.query}"
        color_bar(cax, self.image, style, label=label, beyond=bool(self.end < self.view.values.max()))

    def _pale(self) -> np.ndarray:
        """Return the picture in grey, in the part of the lightness that is next to the background."""
        from matplotlib.colors import to_rgb

        grey = self.seen @ np.array([0.299, 0.587, 0.114]) / 255
        is_light = luminance(to_rgb(self.style.background)) > 0.5
        grey = 1 - _SHADES * (1 - grey) if is_light else _SHADES * grey
        return np.repeat(grey[..., None], 3, axis=2)


def _transparent(style: Style) -> Colormap:
    """Return the colours of weights, the smaller the more transparent."""
    from matplotlib.colors import ListedColormap

    shares = np.linspace(0, 1, 256)
    colors = style.colormap()(_PALEST + (1 - _PALEST) * shares)
    colors[:, 3] = _OPAQUE * shares**0.6
    return ListedColormap(colors, name="regard.patches")


def _step(cell: float) -> int:
    """Return every how many rows and columns have a label."""
    return next(n for n in (1, 2, 5, 10, 20, 50, 100, 1000) if n * cell >= _LABEL_SPACING or n == 1000)
