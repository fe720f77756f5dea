"""A heat map of one attention map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.packages import needed
from regard._utils.validation import finite_number
from regard.functional.arrays import Array
from regard.plot import captions
from regard.plot.cells import cells_per_dot, draw_cells, draw_frame, draw_lines, extent_of, pool
from regard.plot.color_bar import LENGTH, bar_below, room_below
from regard.plot.existing_axes import Margins
from regard.plot.fonts import find_fonts
from regard.plot.labels import SPACING, Labels, draw_labels, margins_of_thinned, thinned
from regard.plot.single_plot import SinglePlot
from regard.plot.style import Look, Style, get_style, luminance
from regard.plot.text_metrics import LINE
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.views.selection import AttentionView, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from matplotlib.transforms import Affine2DBase

# Lengths are in inches.
_LABEL_COLUMNS = 28
_MAP, _MAX_MAP = 7.5, 10.2  # preferred and maximum side of the map
_CELL, _CELL_WITH_NUMBER, _CELL_WITH_LINES = 0.62, 0.36, 0.1
_CORNER = ("attends to →", "token ↓")
_STRIP_GAP, _STRIP, _STRIP_NUMBER = 0.12, 0.4, 0.36
_BAR_DROP = 0.34


@needed("a figure")
def heatmap(
    source: Trace | Array | AttentionView,
    tokens: Encoding | Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    layer: int | None = None,
    head: int | str | None = None,
    batch: int = 0,
    show_special_tokens: bool = False,
    merge_subwords: bool = False,
    annotate: bool | None = None,
    vmax: float | None = None,
    theme: str = "light",
    ax: Axes | None = None,
) -> Axes:
    """Draw one attention map: a row for each query, a column for each key.

    If special tokens are left out, a bar beside each row shows its weight on them, so that row and bar sum to 1.

    Parameters
    ----------
    source, tokens, keys, layer, head, batch, show_special_tokens, merge_subwords
        As in `select`; or its result as `source`, without the others.
    annotate : bool, optional
        Write the weights into the cells. Default: if they fit.
    vmax : float, optional
        The weight at the end of the colour scale. Default: the largest. Use one value for maps to be compared.
    theme : {"light", "dark"}
    ax : Axes, optional
        Default: on a new figure, ``heatmap(...).figure``, as large as its labels need. Given axes shrink to the map, so
        that its decorations stay inside their space. What does not fit is left out: the note first, then the colour
        bar, the bars of special tokens, the labels. Draw other plots of the figure before.

    Returns
    -------
    Axes
        With the map, whose cell ``i, j`` has its centre at ``x = j, y = i``.

    Raises
    ------
    RegardError
        As in `select`; or there is no such theme, or `vmax` is not positive and finite.
    """
    style = get_style(theme)
    end = None if vmax is None else finite_number("vmax", vmax, positive=True)
    if isinstance(source, AttentionView):
        view = source
        if (tokens, keys, layer, head, batch, show_special_tokens, merge_subwords) != (None,) * 4 + (0, False, False):
            raise RegardError("a view is one map with its tokens: give heatmap no other selection")
    else:
        view = select(
            source,
            tokens,
            keys,
            layer=layer,
            head=head,
            batch=batch,
            show_special_tokens=show_special_tokens,
            merge_subwords=merge_subwords,
        )
    plot = _Heatmap(view, style, end or float(view.weights.max()) or 1.0, annotate)
    return plot.draw_on(ax)


class _Heatmap(SinglePlot):
    """A view, with the end of its colour scale."""

    parts = ("title", "labels", "corner", "special mass", "color bar", "note")

    def __init__(self, view: AttentionView, style: Style, end: float, annotate: bool | None) -> None:
        super().__init__(Look(find_fonts([*view.queries, *view.keys, *view.special_tokens, view.model]), style))
        self.view, self.end, self.annotate = view, end, annotate

    def size(self) -> tuple[float, float]:
        height, width = self.view.weights.shape
        longest = max(height, width)
        cell = min(max(_MAP / longest, SPACING), _CELL, _MAX_MAP / longest)
        if self.annotate:
            cell = max(cell, _CELL_WITH_NUMBER)
        return width * cell, height * cell

    def titles(self) -> Sequence[str]:
        short = ", ".join(f"{k} {n}" for k in ("layer", "head") if (n := getattr(self.view, k)) is not None)
        title = captions.titled("Attention", self.view.model, self.look.fonts, self.view.describe)
        return [text for text in (title, self.view.describe, short) if text]

    def note(self, size: np.ndarray, parts: Sequence[str]) -> str:
        view, cell = self.view, self._cell(size)
        step = self._labels(cell, parts).step
        return captions.joined(
            captions.masked(view),
            captions.left_out(view.special_tokens, self.look.fonts, float(view.special_mass.mean()), "grey bars"),
            f"One label of {step} is shown." if step > 1 else "",
            captions.pooled(cells_per_dot(cell, self.look.medium)),
        )

    def margins(self, size: np.ndarray, parts: Sequence[str]) -> Margins:
        cell, metrics = size[0] / self.view.weights.shape[1], self.look.metrics
        left, right, above, below = margins_of_thinned(self._labels(self._cell(size), parts), size[0], cell, self.look)
        if "corner" in parts:
            left = max(left, metrics.max_width(_CORNER, self.look.medium.small) + self.look.medium.pad)
            above = max(above, len(_CORNER) * self.look.medium.small * LINE + self.look.medium.pad)
        if "special mass" in parts and self.view.special_tokens:
            right = max(right, _STRIP_GAP + _STRIP + _STRIP_NUMBER)
            below = self.look.medium.pad + self.look.medium.number * LINE
        if "color bar" in parts:
            right = max(right, LENGTH + 0.1 - size[0])
            below = _BAR_DROP + room_below(self.look.medium)
        return Margins(left, right, above, below)

    def draw(self, ax: Axes, size: np.ndarray, parts: Sequence[str]) -> None:
        from matplotlib.colors import Normalize
        from matplotlib.transforms import ScaledTranslation, blended_transform_factory

        view, cell = self.view, self._cell(size)
        values = pool(view.weights, view.masked, cells_per_dot(cell, self.look.medium))
        scale, labels = Normalize(0, self.end), self._labels(cell, parts)
        image = draw_cells(ax, values, self.look.style.colormap(), scale, extent_of(view.weights.shape))
        draw_frame(ax, self.look)
        if cell >= _CELL_WITH_LINES:
            draw_lines(ax, view.weights.shape, self.look)
        draw_labels(ax, labels, self.look, self.outer.style.foreground, above=True)
        if "corner" in parts:
            self._draw_corner(ax)
        if self.annotate or (self.annotate is None and cell >= _CELL_WITH_NUMBER):
            self._draw_numbers(ax, image, self.look.medium.number * min(1, cell / _CELL_WITH_NUMBER))
        if "special mass" in parts and view.special_tokens:
            figure = ax.get_figure(root=True)
            assert figure is not None
            inches = figure.dpi_scale_trans + ScaledTranslation(1, 0, cast("Affine2DBase", ax.transAxes))
            beside = blended_transform_factory(inches, ax.transAxes)
            self._draw_special_mass(ax.inset_axes((_STRIP_GAP, 0, _STRIP, 1), transform=beside), labels, cell)
        if "color bar" in parts:
            beyond = bool(self.end < view.weights.max())
            bar_below(ax, _BAR_DROP, image, captions.WEIGHT, self.outer, beyond=beyond)

    def _cell(self, size: np.ndarray) -> float:
        """Return the shorter side of a cell."""
        return float(np.min(size / self.view.weights.shape[::-1]))

    def _labels(self, cell: float, parts: Sequence[str]) -> Labels:
        if "labels" not in parts:
            return Labels()
        return thinned(self.view.queries, self.view.keys, cell, self.look, _LABEL_COLUMNS)

    def _draw_corner(self, ax: Axes) -> None:
        ax.annotate(
            "\n".join(_CORNER),
            (0, 1),
            (-self.look.medium.pad * 72, self.look.medium.pad * 72),
            xycoords="axes fraction",
            textcoords="offset points",
            color=self.outer.style.muted,
            ha="right",
            va="bottom",
            linespacing=LINE * 72,
        )

    def _draw_numbers(self, ax: Axes, image: AxesImage, points: float) -> None:
        for i, j in np.argwhere(~self.view.masked).tolist():
            weight = self.view.weights[i, j]
            ink = _ink(tuple(image.to_rgba(weight)))
            number = f"{weight:.2f}" if weight >= 0.005 else "0"
            ax.text(j, i, number, size=points, color=ink, ha="center", va="center")

    def _draw_special_mass(self, strip: Axes, labels: Labels, cell: float) -> None:
        """Draw the weight of each row on special tokens as a bar in a frame of length 1."""
        height, muted = len(self.view.special_mass), self.outer.style.muted
        thick = 0.62 if cell >= SPACING / 2 else 1.0
        strip.barh(range(height), self.view.special_mass, height=thick, color=self.look.style.bar)
        strip.set(xlim=(0, 1), ylim=(height - 0.5, -0.5), xticks=[], yticks=[])
        draw_frame(strip, self.look)
        strip.set_xlabel("special", size=self.look.medium.number, color=muted, labelpad=self.look.medium.pad * 72)
        if labels.step == 1:
            points = min(self.look.medium.number, labels.points)
            for row, share in enumerate(self.view.special_mass):
                strip.text(1.12, row, f"{share:.0%}", size=points, color=muted, va="center")


def _ink(color: Sequence[float]) -> str:
    """Return black or white, the one with more contrast on `color`: at least 4.5."""
    # Equal contrast at (1 + 0.05) / (luminance + 0.05) = (luminance + 0.05) / 0.05.
    return "black" if luminance(color) + 0.05 > math.sqrt(1.05 * 0.05) else "white"
