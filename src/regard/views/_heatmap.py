"""One map of attention as a picture: who looks, at whom, and how much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from regard._encoding import Encoding
from regard._errors import RegardError
from regard._typing import Array
from regard.trace import Trace
from regard.views._colour_bar import BAR_HEIGHT, BAR_LABELS, BAR_WIDTH, colour_bar, pooled
from regard.views._fonts import Lettering, lettering
from regard.views._heading import MARGIN, Heading
from regard.views._ruler import LINE, Ruler
from regard.views._selection import AttentionView, select
from regard.views._style import Style, luminance, style_around, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

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
        given axes as many labels are shown as there is room for; these, and the bars beside and below the map,
        stand outside of the axes, which a figure with ``layout="constrained"`` makes room for.

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


class _Around(NamedTuple):
    """What stands around the map, in inches."""

    left: float
    right: float
    above: float
    below: float


@dataclass(frozen=True, eq=False)
class _Labels:
    """The labels along both axes, in a size in which they do not touch."""

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
        around = self._around(labels, cell)
        across = max(around.left + width * cell + around.right, _NARROWEST)
        heading = Heading.fitted(self._title(), self._note(cell, labels), across, self.ruler)
        W = across + 2 * MARGIN
        H = heading.height + around.above + height * cell + around.below + 2 * MARGIN
        figure = Figure(figsize=(W, H))
        heading.write(figure, self.ruler, self.style)
        x, y = MARGIN + around.left, MARGIN + around.below
        ax = figure.add_axes((x / W, y / H, width * cell / W, height * cell / H))
        self._draw(ax, labels, cell, (width * cell, height * cell), annotate)
        return ax

    def on_given(self, ax: Axes, annotate: bool | None) -> None:
        height, width = self.view.weights.shape
        figure = ax.get_figure(root=True)
        assert figure is not None
        room = ax.get_window_extent()
        across, down = room.width / figure.dpi, room.height / figure.dpi
        cell = min(across / width, down / height)
        if figure.get_layout_engine() is not None:
            # The layout is going to take the room for what stands around from the axes.
            around = self._around(self._labels(cell), cell)
            across = max(across - around.left - around.right, across / 4)
            down = max(down - around.above - around.below, down / 4)
            cell = min(across / width, down / height)
        labels = self._labels(cell)
        self._draw(ax, labels, cell, (across, down), annotate)
        ax.set_title(
            "\n".join(self.ruler.wrapped(f"{self._title()}\n{self._note(cell, labels)}", _AXIS_TYPE, across)),
            size=_AXIS_TYPE,
            color=self.around.foreground,
            loc="left",
            y=1,
            pad=(self._around(labels, cell).above + _PAD) * 72,
            family=list(self.letters.families),
            parse_math=False,
        )

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

    def _labels(self, cell: float) -> _Labels:
        step = next(n * 10**power for power in count() for n in (1, 2, 5) if n * 10**power * cell >= _PITCH - 1e-9)
        rows = tuple(self.letters.label(query, _LABEL_COLUMNS) for query in self.view.queries[::step])
        columns = tuple(self.letters.label(key, _LABEL_COLUMNS) for key in self.view.keys[::step])
        slanted = self.ruler.widest(columns, _LABEL_TYPE) > step * cell - _PAD
        room = step * cell * (math.sqrt(0.5) if slanted else 1) * _TIGHT
        tallest = max(self.ruler.size(label, _LABEL_TYPE)[1] for label in (*rows, *columns))
        return _Labels(rows, columns, step, _LABEL_TYPE * min(1, room / tallest), slanted)

    def _around(self, labels: _Labels, cell: float) -> _Around:
        width = self.view.weights.shape[1]
        line = labels.points * LINE
        corner = [self.ruler.widest(_CORNER, _AXIS_TYPE), len(_CORNER) * _AXIS_TYPE * LINE]
        widths = [self.ruler.width(column, labels.points) for column in labels.columns]
        if labels.slanted:
            above = (max(widths) + line) * math.sqrt(0.5)
            ends = [(i * labels.step + 0.5) * cell + w * math.sqrt(0.5) + line for i, w in enumerate(widths)]
        else:
            above, ends = line, [width * cell]
        right = _STRIP_GAP + _STRIP + _STRIP_NUMBER if self.view.hidden_keys else 0.0
        return _Around(
            left=max(self.ruler.widest(labels.rows, labels.points), corner[0]) + _PAD,
            right=max(right, max(ends) - width * cell, BAR_WIDTH + 0.1 - width * cell),
            above=max(above, corner[1]) + _PAD,
            below=_BAR_DROP + BAR_HEIGHT + BAR_LABELS,
        )

    def _draw(self, ax: Axes, labels: _Labels, cell: float, size: tuple[float, float], annotate: bool | None) -> None:
        """Draw on axes of this size, whose cells are at least `cell` wide and high."""
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
        if annotate or (annotate is None and cell >= _CELL_WITH_NUMBER):
            self._draw_numbers(ax, image, min(_NUMBER_TYPE, cell / _CELL_WITH_NUMBER * _NUMBER_TYPE))
        across, down = size
        if self.view.hidden_keys:
            strip = ax.inset_axes((1 + _STRIP_GAP / across, 0, _STRIP / across, 1))
            self._draw_hidden(strip, labels, cell)
        drop = _BAR_DROP + BAR_HEIGHT
        cax = ax.inset_axes((0, -drop / down, BAR_WIDTH / across, BAR_HEIGHT / down))
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
        ax.set_xticks(range(0, width, labels.step), labels.columns, **text, **(slant if labels.slanted else {}))
        ax.set_yticks(range(0, height, labels.step), labels.rows, **text)
        ax.tick_params(length=0, pad=_PAD * 72)
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
