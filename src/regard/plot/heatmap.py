"""One map of attention as a picture: who looks, at whom, and how much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.plot.color_bar import BAR_HEIGHT, BAR_LABELS, BAR_WIDTH, colour_bar, pooled
from regard.plot.existing_axes import LEAST, TITLE, Around, available_size, keep_inside, write_title
from regard.plot.fonts import Lettering, lettering
from regard.plot.heading import MARGIN, Heading
from regard.plot.style import Style, luminance, style_around, style_of
from regard.plot.text_metrics import LINE, Ruler
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.views.selection import AttentionView, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from matplotlib.transforms import Affine2DBase

# Lengths are in inches, sizes of type in points.
_LABEL_COLUMNS, _LABEL_TYPE, _NUMBER_TYPE, _AXIS_TYPE = 28, 10.0, 7.5, 8.5
_PITCH = 0.17  # the least between two labels
_MAP, _LARGEST_MAP = 7.5, 10.2  # with cells that may shrink to _PITCH; with any number of cells
_CELL, _CELL_WITH_NUMBER, _CELL_WITH_LINES = 0.62, 0.36, 0.1
_PAD = 0.06
_TIGHT = 1.1  # lines may be this much closer than in running text
_CORNER = ("looks at →", "looks from ↓")
_STRIP_GAP, _STRIP, _STRIP_NUMBER = 0.12, 0.4, 0.36
_BAR_DROP = 0.34
_NARROWEST = 4.7
_PARTS = ("title", "labels", "corner", "left out", "scale", "note")  # of a picture, the most needed first


def heatmap(
    source: Trace | Array,
    tokens: Encoding | Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
    batch: int = 0,
    keep_special: bool = False,
    words: bool = False,
    annotate: bool | None = None,
    vmax: float | None = None,
    theme: str = "light",
    ax: Axes | None = None,
) -> Axes:
    """Draw one map of attention: each row a token that looks, each column a token that is looked at.

    Where special tokens are left out, a bar beside each row shows the share that goes to them: the row and its bar
    make the whole.

    Parameters
    ----------
    source, tokens, keys, layer, head, batch, keep_special, words
        Which map, as in `select`.
    annotate : bool, optional
        Write the weights into the cells. By default where they fit.
    vmax : float, optional
        The weight at the end of the scale of colours, by default the largest. Maps to be compared need the same.
    theme : {"light", "dark"}
    ax : Axes, optional
        Where to draw. By default on a figure of its own, ``heatmap(...).figure``, as large as its labels need. On
        given axes everything stands where the axes stood: they shrink to the map, and around it is as much as there
        is room for. The note is left out first, then the scale, the bars of hidden tokens, labels. Other plots of the
        figure are best drawn before: the room is what they leave then.

    Returns
    -------
    Axes
        With the map, whose cell ``i, j`` has its centre at ``x = j, y = i``.

    Raises
    ------
    RegardError
        As `select`; or there is no such theme, or `vmax` is no number above 0.
    """
    style = style_of(theme)
    if vmax is not None and not (_is_number(vmax) and 0 < vmax < math.inf):
        raise RegardError(f"vmax must be a number above 0, got {vmax!r}")
    view = select(source, tokens, keys, layer=layer, head=head, batch=batch, keep_special=keep_special, words=words)
    letters = lettering([*view.queries, *view.keys, *view.hidden_keys, view.model])
    with style.drawing():
        around = style if ax is None else style_around(ax, style)
        picture = _Picture(
            view, letters, Ruler(letters.families), style, around, float(vmax or view.weights.max() or 1)
        )
        if ax is None:
            return picture.on_own_figure(annotate)
        picture.on_given(ax, annotate)
        return ax


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


@dataclass(frozen=True, eq=False)
class _Labels:
    """The labels along both axes, in a size in which they do not touch; none where there is no room."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    step: int  # every step-th is shown
    points: float
    slanted: bool


@dataclass(frozen=True, eq=False)
class _Picture:
    """A view with what is needed to draw it."""

    view: AttentionView
    letters: Lettering
    ruler: Ruler
    style: Style
    around: Style  # of what stands outside of the axes
    end: float  # of the scale

    def on_own_figure(self, annotate: bool | None) -> Axes:
        from matplotlib.figure import Figure

        height, width = self.view.weights.shape
        longest = max(height, width)
        cell = min(max(_MAP / longest, _PITCH), _CELL, _LARGEST_MAP / longest)
        if annotate:
            cell = max(cell, _CELL_WITH_NUMBER)
        labels = self._labels(cell)
        around = self._around(labels, width * cell)
        across = max(around.left + width * cell + around.right, _NARROWEST)
        heading = Heading.fitted(self._title(), self._note(cell, labels), across, self.ruler)
        W = across + 2 * MARGIN
        H = heading.height + around.above + height * cell + around.below + 2 * MARGIN
        figure = Figure(figsize=(W, H))
        heading.write(figure, self.ruler, self.style)
        x, y = MARGIN + around.left, MARGIN + around.below
        ax = figure.add_axes((x / W, y / H, width * cell / W, height * cell / H))
        self._draw(ax, labels, cell, annotate)
        return ax

    def on_given(self, ax: Axes, annotate: bool | None) -> None:
        parts, size, labels, heading, around = self._fitted(available_size(ax))
        keep_inside(ax, around)
        self._draw(ax, labels, float(np.min(size / self.view.weights.shape[::-1])), annotate, parts)
        # The title begins with the map, or before it where that would make it too long.
        too_long = max(self.ruler.widest(heading, TITLE) - size[0] - around.right, 0.0)
        write_title(
            ax,
            heading,
            before=min(too_long, around.left),
            above=around.above - self._above(heading),
            families=self.letters.families,
            style=self.around,
        )

    def _fitted(self, room: np.ndarray) -> tuple[Sequence[str], np.ndarray, _Labels, Sequence[str], Around]:
        """Return as many parts as leave the map its share of the room, the map's size, and what stands around it."""
        for most in range(len(_PARTS), -1, -1):
            parts, size = _PARTS[:most], room
            while (size >= LEAST * room).all():
                cell = float(np.min(size / self.view.weights.shape[::-1]))
                labels = self._labels(cell, parts)
                heading = self._heading(cell, labels, parts, room[0])
                around = self._around(labels, size[0], parts)
                around = around._replace(above=around.above + self._above(heading))
                left = around.inside(room)
                if (size <= left + 1e-9).all():
                    return parts, left, labels, heading, around
                size = np.where(size > left, np.maximum(left, 0.94 * size), size)
        raise AssertionError("a map alone takes the whole room")

    def _heading(self, cell: float, labels: _Labels, parts: Sequence[str], across: float) -> Sequence[str]:
        """Return the title in one line, and below it the note."""
        if "title" not in parts:
            return ()
        short = ", ".join(
            f"{k} {n}" for k, n in (("layer", self.view.layer), ("head", self.view.head)) if n is not None
        )
        titles = list(filter(None, (self._title(), self.view.describe, short)))
        note = self.ruler.wrapped(self._note(cell, labels), TITLE, across) if "note" in parts else ()
        return (self.ruler.fitting(titles, TITLE, across), *note)

    def _above(self, heading: Sequence[str]) -> float:
        return len(heading) * TITLE * LINE + _PAD if heading else 0.0

    def _title(self) -> str:
        model = f" in {self.letters.label(self.view.model, 60)}" if self.view.model else ""
        return f"Attention{model}" + (f": {self.view.describe}" if self.view.describe else "")

    def _note(self, cell: float, labels: _Labels) -> str:
        notes = []
        if self.view.hidden_keys:
            names = " and ".join(self.letters.label(key) for key in self.view.hidden_keys)
            share = f"{self.view.hidden.mean():.0%}"
            notes.append(f"Left out: {names}, to which {share} of the attention goes (grey bars).")
        if labels.step > 1:
            notes.append(f"One label of {labels.step} is shown.")
        return " ".join(filter(None, [*notes, pooled(self.view.weights, cell)[1]]))

    def _labels(self, cell: float, parts: Sequence[str] = _PARTS) -> _Labels:
        if "labels" not in parts:
            return _Labels((), (), 1, _LABEL_TYPE, False)
        step = next(n * 10**power for power in count() for n in (1, 2, 5) if n * 10**power * cell >= _PITCH - 1e-9)
        rows = tuple(self.letters.label(query, _LABEL_COLUMNS) for query in self.view.queries[::step])
        columns = tuple(self.letters.label(key, _LABEL_COLUMNS) for key in self.view.keys[::step])
        slanted = self.ruler.widest(columns, _LABEL_TYPE) > min(step * cell - _PAD, cell + 2 * _PAD)
        room = step * cell * (math.sqrt(0.5) if slanted else 1) * _TIGHT
        tallest = max(self.ruler.size(label, _LABEL_TYPE)[1] for label in (*rows, *columns))
        return _Labels(rows, columns, step, _LABEL_TYPE * min(1, room / tallest), slanted)

    def _around(self, labels: _Labels, across: float, parts: Sequence[str] = _PARTS) -> Around:
        """Return what stands around a map that is `across` inches wide."""
        cell = across / self.view.weights.shape[1]
        line = labels.points * LINE
        widths = [self.ruler.width(column, labels.points) for column in labels.columns]
        slope = math.sqrt(0.5) if labels.slanted else 1.0
        beyond = [w * slope + line if labels.slanted else w / 2 for w in widths]  # the middle of their columns
        left, right, above, below = self.ruler.widest(labels.rows, labels.points), 0.0, 0.0, 0.0
        if widths:
            above = (max(widths) + line) * slope if labels.slanted else line
            right = max((i * labels.step + 0.5) * cell + b for i, b in enumerate(beyond)) - across
        if "corner" in parts:
            left = max(left, self.ruler.widest(_CORNER, _AXIS_TYPE))
            above = max(above, len(_CORNER) * _AXIS_TYPE * LINE)
        if "left out" in parts and self.view.hidden_keys:
            right = max(right, _STRIP_GAP + _STRIP + _STRIP_NUMBER)
            below = _PAD + _NUMBER_TYPE * LINE
        if "scale" in parts:
            right = max(right, BAR_WIDTH + 0.1 - across)
            below = _BAR_DROP + BAR_HEIGHT + BAR_LABELS
        return Around(left + _PAD if left else 0.0, max(right, 0.0), above + _PAD if above else 0.0, below)

    def _draw(
        self, ax: Axes, labels: _Labels, cell: float, annotate: bool | None, parts: Sequence[str] = _PARTS
    ) -> None:
        """Draw on axes whose cells are at least `cell` inches wide and high."""
        from matplotlib.transforms import ScaledTranslation, blended_transform_factory

        height, width = self.view.weights.shape
        image = ax.imshow(
            pooled(self.view.weights, cell)[0],
            extent=(-0.5, width - 0.5, height - 0.5, -0.5),
            cmap=self.style.weights(),
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
        if "left out" in parts and self.view.hidden_keys:
            beside = blended_transform_factory(inches + ScaledTranslation(1, 0, place), ax.transAxes)
            self._draw_hidden(ax.inset_axes((_STRIP_GAP, 0, _STRIP, 1), transform=beside), labels, cell)
        if "scale" in parts:
            below = inches + ScaledTranslation(0, 0, place)
            cax = ax.inset_axes((0, -_BAR_DROP - BAR_HEIGHT, BAR_WIDTH, BAR_HEIGHT), transform=below)
            colour_bar(cax, image, self.around, beyond=bool(self.end < self.view.weights.max()))

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
            "family": list(self.letters.families),
            "size": labels.points,
            "color": self.around.foreground,
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
            color=self.around.muted,
            ha="right",
            va="bottom",
            linespacing=LINE * 72,
        )

    def _draw_numbers(self, ax: Axes, image: AxesImage, points: float) -> None:
        for i, j in np.ndindex(*self.view.weights.shape):
            weight = self.view.weights[i, j]
            ink = _ink(tuple(image.to_rgba(weight)))
            number = f"{weight:.2f}" if weight >= 0.005 else "0"
            ax.text(j, i, number, size=points, color=ink, ha="center", va="center")

    def _draw_hidden(self, strip: Axes, labels: _Labels, cell: float) -> None:
        """Draw the share that goes to hidden tokens, a bar for each row, in a frame that is the whole."""
        height = len(self.view.hidden)
        thick = 0.62 if cell >= _PITCH / 2 else 1.0
        strip.barh(range(height), self.view.hidden, height=thick, color=self.style.bar)
        strip.set(xlim=(0, 1), ylim=(height - 0.5, -0.5), xticks=[], yticks=[])
        strip.set_facecolor(self.style.background)
        strip.spines[:].set_color(self.style.faint)
        strip.set_xlabel("left out", size=_NUMBER_TYPE, color=self.around.muted, labelpad=_PAD * 72)
        points = min(_NUMBER_TYPE, labels.points)
        if labels.step == 1:
            for row, share in enumerate(self.view.hidden):
                strip.text(1.12, row, f"{share:.0%}", size=points, color=self.around.muted, va="center")


def _ink(colour: Sequence[float]) -> str:
    """Return black or white, whichever has the higher contrast on `colour`: 4.5 at least."""
    # Equal contrast is where (1 + 0.05) / (luminance + 0.05) = (luminance + 0.05) / 0.05.
    return "black" if luminance(colour) + 0.05 > math.sqrt(1.05 * 0.05) else "white"
