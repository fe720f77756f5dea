"""A heat map of one attention map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number
from regard.functional.arrays import Array
from regard.plot.color_bar import BAR_HEIGHT, BAR_LABELS, BAR_WIDTH, color_bar, drawn_map, mask_note
from regard.plot.existing_axes import MIN_SHARE, TITLE, Margins, available_size, draw_title, shrink_axes
from regard.plot.fonts import FontFallback, find_fonts
from regard.plot.heading import MARGIN, Heading
from regard.plot.style import Style, get_style, luminance, style_for_axes
from regard.plot.text_metrics import LINE
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.views.selection import AttentionView, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from matplotlib.transforms import Affine2DBase

# Lengths are in inches, type sizes in points.
_LABEL_COLUMNS, _LABEL_TYPE, _NUMBER_TYPE, _AXIS_TYPE = 28, 10.0, 7.5, 8.5
_LABEL_SPACING = 0.17  # minimum distance of labels
_MAP, _MAX_MAP = 7.5, 10.2  # preferred and maximum side of the map
_CELL, _CELL_WITH_NUMBER, _CELL_WITH_LINES = 0.62, 0.36, 0.1
_PAD = 0.06
_TIGHT = 1.1  # type size per label spacing, above that of running text
_CORNER = ("attends to →", "token ↓")
_STRIP_GAP, _STRIP, _STRIP_NUMBER = 0.12, 0.4, 0.36
_BAR_DROP = 0.34
_MIN_WIDTH = 4.7
_PARTS = ("title", "labels", "corner", "special mass", "color bar", "note")  # decorations, most important first


def heatmap(
    source: Trace | Array | AttentionView,
    tokens: Encoding | Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
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
    fonts = find_fonts([*view.queries, *view.keys, *view.special_tokens, view.model])
    with style.rc_context():
        outer_style = style if ax is None else style_for_axes(ax, style)
        plot = _Heatmap(view, fonts, style, outer_style, end or float(view.weights.max()) or 1.0)
        return plot.draw_figure(annotate) if ax is None else plot.draw_into(ax, annotate)


@dataclass(frozen=True, eq=False)
class _Labels:
    """The labels of both axes, in a type size in which they do not touch; empty if they are left out."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    step: int  # every step-th is shown
    points: float
    slanted: bool


@dataclass(frozen=True, eq=False)
class _Heatmap:
    """A view with its fonts and styles."""

    view: AttentionView
    fonts: FontFallback
    style: Style
    outer_style: Style  # outside of the axes
    end: float  # of the colour scale

    def draw_figure(self, annotate: bool | None) -> Axes:
        from regard.plot.notebook import NotebookAxes, NotebookFigure

        height, width = self.view.weights.shape
        longest = max(height, width)
        cell = min(max(_MAP / longest, _LABEL_SPACING), _CELL, _MAX_MAP / longest)
        if annotate:
            cell = max(cell, _CELL_WITH_NUMBER)
        labels = self._labels(cell)
        margins = self._margins(labels, width * cell)
        across = max(margins.left + width * cell + margins.right, _MIN_WIDTH)
        heading = Heading.wrap(self._title(), self._note(cell, labels), across, self.fonts.metrics)
        W = across + 2 * MARGIN
        H = heading.height + margins.above + height * cell + margins.below + 2 * MARGIN
        figure = NotebookFigure(figsize=(W, H))
        heading.draw(figure, self.fonts.metrics, self.style)
        x, y = MARGIN + margins.left, MARGIN + margins.below
        ax = figure.add_axes((x / W, y / H, width * cell / W, height * cell / H), axes_class=NotebookAxes)
        self._draw(ax, labels, cell, annotate)
        return ax

    def draw_into(self, ax: Axes, annotate: bool | None) -> Axes:
        parts, size, labels, heading, margins = self._fit(available_size(ax))
        shrink_axes(ax, margins)
        self._draw(ax, labels, float(np.min(size / self.view.weights.shape[::-1])), annotate, parts)
        # The title starts at the map, or to its left if it would be too long.
        overhang = max(self.fonts.metrics.max_width(heading, TITLE) - size[0] - margins.right, 0.0)
        draw_title(
            ax,
            heading,
            before=min(overhang, margins.left),
            above=margins.above - self._heading_height(heading),
            families=self.fonts.families,
            style=self.outer_style,
        )
        return ax

    def _fit(self, available: np.ndarray) -> tuple[Sequence[str], np.ndarray, _Labels, Sequence[str], Margins]:
        """Return the parts that leave the map its share of the space, the size of the map, and its decorations."""
        for most in range(len(_PARTS), -1, -1):
            parts, size = _PARTS[:most], available
            while (size >= MIN_SHARE * available).all():
                cell = float(np.min(size / self.view.weights.shape[::-1]))
                labels = self._labels(cell, parts)
                heading = self._heading(cell, labels, parts, available[0])
                margins = self._margins(labels, size[0], parts)
                margins = margins._replace(above=margins.above + self._heading_height(heading))
                rest = margins.shrink(available)
                if (size <= rest + 1e-9).all():
                    return parts, rest, labels, heading, margins
                size = np.where(size > rest, np.maximum(rest, 0.94 * size), size)
        raise AssertionError("a map without decorations always fits")

    def _heading(self, cell: float, labels: _Labels, parts: Sequence[str], across: float) -> Sequence[str]:
        """Return the title in one line, and the note."""
        if "title" not in parts:
            return ()
        short = ", ".join(
            f"{k} {n}" for k, n in (("layer", self.view.layer), ("head", self.view.head)) if n is not None
        )
        titles = list(filter(None, (self._title(), self.view.describe, short)))
        note = self.fonts.metrics.wrap(self._note(cell, labels), TITLE, across) if "note" in parts else ()
        return (self.fonts.metrics.fit(titles, TITLE, across), *note)

    def _heading_height(self, heading: Sequence[str]) -> float:
        return len(heading) * TITLE * LINE + _PAD if heading else 0.0

    def _title(self) -> str:
        model = f" in {self.fonts.label(self.view.model, 60)}" if self.view.model else ""
        return f"Attention{model}" + (f": {self.view.describe}" if self.view.describe else "")

    def _note(self, cell: float, labels: _Labels) -> str:
        notes = []
        if self.view.special_tokens:
            names = " and ".join(self.fonts.label(key) for key in self.view.special_tokens)
            share = f"{self.view.special_mass.mean():.0%}"
            notes.append(f"Left out: {names}, with {share} of the attention (grey bars).")
        if labels.step > 1:
            notes.append(f"One label of {labels.step} is shown.")
        return " ".join(filter(None, [mask_note(self.view), *notes, drawn_map(self.view, cell)[1]]))

    def _labels(self, cell: float, parts: Sequence[str] = _PARTS) -> _Labels:
        if "labels" not in parts:
            return _Labels((), (), 1, _LABEL_TYPE, False)
        step = next(
            n * 10**power for power in count() for n in (1, 2, 5) if n * 10**power * cell >= _LABEL_SPACING - 1e-9
        )
        rows = tuple(self.fonts.label(query, _LABEL_COLUMNS) for query in self.view.queries[::step])
        columns = tuple(self.fonts.label(key, _LABEL_COLUMNS) for key in self.view.keys[::step])
        slanted = self.fonts.metrics.max_width(columns, _LABEL_TYPE) > min(step * cell - _PAD, cell + 2 * _PAD)
        spacing = step * cell * (math.sqrt(0.5) if slanted else 1) * _TIGHT
        tallest = max(self.fonts.metrics.size(label, _LABEL_TYPE)[1] for label in (*rows, *columns))
        return _Labels(rows, columns, step, _LABEL_TYPE * min(1, spacing / tallest), slanted)

    def _margins(self, labels: _Labels, across: float, parts: Sequence[str] = _PARTS) -> Margins:
        """Return the margins of a map that is `across` inches wide."""
        cell = across / self.view.weights.shape[1]
        line = labels.points * LINE
        widths = [self.fonts.metrics.width(column, labels.points) for column in labels.columns]
        slope = math.sqrt(0.5) if labels.slanted else 1.0
        beyond = [w * slope + line if labels.slanted else w / 2 for w in widths]  # the centre of their columns
        left, right, above, below = self.fonts.metrics.max_width(labels.rows, labels.points), 0.0, 0.0, 0.0
        if widths:
            above = (max(widths) + line) * slope if labels.slanted else line
            right = max((i * labels.step + 0.5) * cell + b for i, b in enumerate(beyond)) - across
        if "corner" in parts:
            left = max(left, self.fonts.metrics.max_width(_CORNER, _AXIS_TYPE))
            above = max(above, len(_CORNER) * _AXIS_TYPE * LINE)
        if "special mass" in parts and self.view.special_tokens:
            right = max(right, _STRIP_GAP + _STRIP + _STRIP_NUMBER)
            below = _PAD + _NUMBER_TYPE * LINE
        if "color bar" in parts:
            right = max(right, BAR_WIDTH + 0.1 - across)
            below = _BAR_DROP + BAR_HEIGHT + BAR_LABELS
        return Margins(left + _PAD if left else 0.0, max(right, 0.0), above + _PAD if above else 0.0, below)

    def _draw(
        self, ax: Axes, labels: _Labels, cell: float, annotate: bool | None, parts: Sequence[str] = _PARTS
    ) -> None:
        """Draw on axes with cells of at least `cell` inches."""
        from matplotlib.transforms import ScaledTranslation, blended_transform_factory

        height, width = self.view.weights.shape
        image = ax.imshow(
            drawn_map(self.view, cell)[0],
            extent=(-0.5, width - 0.5, height - 0.5, -0.5),
            cmap=self.style.colormap(),
            vmin=0,
            vmax=self.end,
            aspect="auto",
            interpolation="nearest",
        )
        self._draw_frame(ax, lines=cell >= _CELL_WITH_LINES)
        self._draw_labels(ax, labels)
        if "corner" in parts:
            self._draw_corner(ax)
        if annotate or (annotate is None and cell >= _CELL_WITH_NUMBER):
            self._draw_numbers(ax, image, min(_NUMBER_TYPE, cell / _CELL_WITH_NUMBER * _NUMBER_TYPE))
        figure = ax.get_figure(root=True)
        assert figure is not None
        inches, place = figure.dpi_scale_trans, cast("Affine2DBase", ax.transAxes)
        if "special mass" in parts and self.view.special_tokens:
            beside = blended_transform_factory(inches + ScaledTranslation(1, 0, place), ax.transAxes)
            self._draw_special_mass(ax.inset_axes((_STRIP_GAP, 0, _STRIP, 1), transform=beside), labels, cell)
        if "color bar" in parts:
            below = inches + ScaledTranslation(0, 0, place)
            cax = ax.inset_axes((0, -_BAR_DROP - BAR_HEIGHT, BAR_WIDTH, BAR_HEIGHT), transform=below)
            color_bar(cax, image, self.outer_style, beyond=bool(self.end < self.view.weights.max()))

    def _draw_frame(self, ax: Axes, *, lines: bool) -> None:
        height, width = self.view.weights.shape
        ax.set_facecolor(self.style.background)
        ax.spines[:].set_color(self.style.faint)
        if lines:
            line: dict[str, Any] = {"color": self.style.background, "linewidth": 0.8}
            ax.vlines(np.arange(1, width) - 0.5, -0.5, height - 0.5, **line)
            ax.hlines(np.arange(1, height) - 0.5, -0.5, width - 0.5, **line)

    def _draw_labels(self, ax: Axes, labels: _Labels) -> None:
        height, width = self.view.weights.shape
        text: dict[str, Any] = {
            "family": list(self.fonts.families),
            "size": labels.points,
            "color": self.outer_style.foreground,
            "parse_math": False,
        }
        slant: dict[str, Any] = {"rotation": 45, "rotation_mode": "anchor", "ha": "left", "va": "center"}
        ax.xaxis.tick_top()
        ax.tick_params(length=0, pad=_PAD * 72)
        if not labels.rows:
            ax.set(xticks=[], yticks=[])
            return
        ax.set_xticks(range(0, width, labels.step), labels.columns, **text, **(slant if labels.slanted else {}))
        ax.set_yticks(range(0, height, labels.step), labels.rows, **text)

    def _draw_corner(self, ax: Axes) -> None:
        ax.annotate(
            "\n".join(_CORNER),
            (0, 1),
            (-_PAD * 72, _PAD * 72),
            xycoords="axes fraction",
            textcoords="offset points",
            size=_AXIS_TYPE,
            color=self.outer_style.muted,
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

    def _draw_special_mass(self, strip: Axes, labels: _Labels, cell: float) -> None:
        """Draw the weight of each row on special tokens as a bar in a frame of length 1."""
        height = len(self.view.special_mass)
        thick = 0.62 if cell >= _LABEL_SPACING / 2 else 1.0
        strip.barh(range(height), self.view.special_mass, height=thick, color=self.style.bar)
        strip.set(xlim=(0, 1), ylim=(height - 0.5, -0.5), xticks=[], yticks=[])
        strip.set_facecolor(self.style.background)
        strip.spines[:].set_color(self.style.faint)
        strip.set_xlabel("special", size=_NUMBER_TYPE, color=self.outer_style.muted, labelpad=_PAD * 72)
        points = min(_NUMBER_TYPE, labels.points)
        if labels.step == 1:
            for row, share in enumerate(self.view.special_mass):
                strip.text(1.12, row, f"{share:.0%}", size=points, color=self.outer_style.muted, va="center")


def _ink(color: Sequence[float]) -> str:
    """Return black or white, the one with more contrast on `color`: at least 4.5."""
    # Equal contrast at (1 + 0.05) / (luminance + 0.05) = (luminance + 0.05) / 0.05.
    return "black" if luminance(color) + 0.05 > math.sqrt(1.05 * 0.05) else "white"
