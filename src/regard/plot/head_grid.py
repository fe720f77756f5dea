"""A grid of the maps of all heads, on one colour scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from regard._utils.errors import RegardError
from regard.plot.color_bar import BAR_HEIGHT, BAR_LABELS, BAR_WIDTH, color_bar, drawn_map, mask_note
from regard.plot.fonts import FontFallback, find_fonts
from regard.plot.heading import MARGIN, Heading
from regard.plot.style import Style, get_style
from regard.plot.text_metrics import LINE
from regard.trace import Trace
from regard.views.selection import AttentionView, lazy_heads

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

# Lengths are in inches, type sizes in points.
_GRID_WIDTH, _GRID_HEIGHT = 10.0, 13.0  # of all panels, unless each would be smaller than _MIN_PANEL
_MIN_PANEL, _MAX_PANEL, _GAP = 0.42, 2.4, 0.1
_LABEL_TYPE = 8.5
_CORNER = ("head →", "layer ↓")
_PAD = 0.06
_MIN_WIDTH = 5.0
_SHARE_BAR, _BAR_DROP = 0.05, 0.24
_TEXT_COLUMNS = 100


def head_grid(
    trace: Trace,
    *,
    batch: int = 0,
    show_special_tokens: bool = False,
    merge_subwords: bool = False,
    theme: str = "light",
    figure: Figure | None = None,
) -> Figure:
    """Draw the maps of all heads, one row of panels a layer, on one colour scale.

    The scale is the square root of the weight, so that the patterns of heads with small and with large weights are both
    visible; `heatmap` has a linear scale.

    If special tokens are left out, the bar and the number below a panel are the share of the head's attention on them:
    a pale panel above a long bar is a head that attends to ``[SEP]``.

    Parameters
    ----------
    trace, batch, show_special_tokens, merge_subwords
        As in `select`.
    theme : {"light", "dark"}
    figure : Figure, optional
        Is cleared and resized. Default: a new figure.

    Returns
    -------
    Figure

    Raises
    ------
    RegardError
        There are no weights, or no such batch entry or theme.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    from regard.plot.notebook import NotebookFigure

    if figure is not None and not isinstance(figure, Figure):
        raise RegardError("head_grid sets the size of its figure: give a Figure, not a SubFigure")
    style = get_style(theme)
    computed = lazy_heads(trace, batch, show_special_tokens, merge_subwords)
    view = computed[0][0]()
    text = trace.encodings[batch].text if trace.encodings else " ".join(view.queries)
    fonts = find_fonts([text, *view.special_tokens, view.model])
    panels = _Panels.fit(len(computed), max(map(len, computed)), with_shares=bool(view.special_tokens))
    layers = [[panels.pooled(each()) for each in of_layer] for of_layer in computed]
    names = list(map(str, view.layers)) or [""]
    left = max(fonts.metrics.max_width(names, _LABEL_TYPE), fonts.metrics.max_width(_CORNER, _LABEL_TYPE)) + _PAD
    above = len(_CORNER) * _LABEL_TYPE * LINE + _PAD
    below = _BAR_DROP + BAR_HEIGHT + BAR_LABELS
    across = max(left + panels.width, left + BAR_WIDTH, _MIN_WIDTH)
    note = "\n".join(filter(None, (_note(view, text, fonts), mask_note(view), layers[0][0].note)))
    heading = Heading.wrap(_title(view, fonts), note, across, fonts.metrics)
    W, H = across + 2 * MARGIN, heading.height + above + panels.height + below + 2 * MARGIN
    with style.rc_context():
        figure = NotebookFigure() if figure is None else figure
        figure.clear()
        figure.set(size_inches=(W, H), facecolor=style.background)
        heading.draw(figure, fonts.metrics, style)
        bottom = MARGIN + below
        ax = figure.add_axes(
            ((MARGIN + left) / W, bottom / H, panels.width / W, panels.height / H),
            xlim=(0, panels.width),
            ylim=(panels.height, 0),
        )
        ax.set_axis_off()
        largest = float(max(panel.weights.max() for row in layers for panel in row)) or 1.0
        scale = PowerNorm(0.5, 0, largest)
        for row, of_layer in enumerate(layers):
            _draw_label(ax, names[row], (-_PAD, panels.corner(row, 0)[1] + panels.size / 2), style, ha="right")
            for column, panel in enumerate(of_layer):
                _draw_panel(ax, panel, panels, panels.corner(row, column), scale, style)
        for column in range(panels.across if view.heads else 0):
            middle = panels.corner(0, column)[0] + panels.size / 2
            _draw_label(ax, str(column), (middle, -_PAD), style, va="bottom")
        _draw_label(ax, "\n".join(_CORNER), (-_PAD, -_PAD), style, ha="right", va="bottom", color=style.muted)
        cax = figure.add_axes(((MARGIN + left) / W, (MARGIN + BAR_LABELS) / H, BAR_WIDTH / W, BAR_HEIGHT / H))
        color_bar(
            cax,
            ScalarMappable(scale, style.colormap()),
            style,
            ticks=[tick for tick in (0, 0.01, 0.05, 0.2, 0.5, 1) if tick < largest],
            note=", on a square-root scale",
        )
    return figure


@dataclass(frozen=True)
class _Panels:
    """The geometry of the panels, in inches from the top left corner of the grid."""

    down: int
    across: int
    size: float
    points: float  # type size of the number below a panel; 0 without numbers

    @classmethod
    def fit(cls, down: int, across: int, *, with_shares: bool) -> _Panels:
        """Return the largest panels that fit."""
        size = min(max(min(_GRID_WIDTH / across - _GAP, _GRID_HEIGHT / down - _GAP - 0.1), _MIN_PANEL), _MAX_PANEL)
        return cls(down, across, size, min(max(size * 9, 5.0), 7.0) if with_shares else 0.0)

    @property
    def below(self) -> float:
        """The height of the number below a panel."""
        return self.points * LINE

    @property
    def width(self) -> float:
        """The width of the grid."""
        return self.across * (self.size + _GAP) - _GAP

    @property
    def height(self) -> float:
        """The height of the grid."""
        return self.down * (self.size + self.below + _GAP) - _GAP

    def corner(self, row: int, column: int) -> tuple[float, float]:
        """Return the top left corner of a panel."""
        return column * (self.size + _GAP), row * (self.size + self.below + _GAP)

    def pooled(self, view: AttentionView) -> _Panel:
        """Return a map at the resolution of a panel."""
        share = float(view.special_mass.mean()) if view.special_tokens else None
        return _Panel(*drawn_map(view, self.size / max(view.weights.shape)), share)


class _Panel(NamedTuple):
    """One map as it is drawn, a note if it is pooled, and the share of the special tokens that are left out."""

    weights: np.ndarray
    note: str
    share: float | None


def _draw_panel(
    ax: Axes,
    panel: _Panel,
    panels: _Panels,
    corner: tuple[float, float],
    scale: Normalize,
    style: Style,
) -> None:
    """Draw one map in its frame, and the share of the special tokens below if they are left out."""
    from matplotlib.patches import Rectangle

    (x, y), size = corner, panels.size
    ax.imshow(
        panel.weights,
        extent=(x, x + size, y + size, y),
        aspect="auto",
        cmap=style.colormap(),
        norm=scale,
        interpolation="nearest",
    )
    ax.add_patch(Rectangle(corner, size, size, fill=False, edgecolor=style.faint, linewidth=0.6, clip_on=False))
    if (share := panel.share) is not None:
        width = size - panels.points * 0.037  # beside the number
        middle = y + size + panels.below / 2 + 0.01
        bar = Rectangle((x, middle - _SHARE_BAR / 2), width, _SHARE_BAR, color=style.faint, linewidth=0)
        filled = Rectangle((x, middle - _SHARE_BAR / 2), width * share, _SHARE_BAR, color=style.muted, linewidth=0)
        ax.add_patch(bar)
        ax.add_patch(filled)
        ax.text(
            x + size,
            middle,
            f"{share:.0%}",
            size=panels.points,
            color=style.muted,
            ha="right",
            va="center_baseline",
        )


def _draw_label(
    ax: Axes,
    name: str,
    at: tuple[float, float],
    style: Style,
    *,
    ha: Literal["center", "right"] = "center",
    va: Literal["center", "bottom"] = "center",
    color: str | None = None,
) -> None:
    ax.text(*at, name, size=_LABEL_TYPE, color=color or style.foreground, ha=ha, va=va, linespacing=LINE * 72)


def _title(view: AttentionView, fonts: FontFallback) -> str:
    model = f" of {fonts.label(view.model, 60)}" if view.model else ""
    return f"Attention of every head{model}"


def _note(view: AttentionView, text: str, fonts: FontFallback) -> str:
    note = f"Each row attends to the columns: “{fonts.label(text, _TEXT_COLUMNS)}”"
    if view.special_tokens:
        names = " and ".join(fonts.label(key) for key in view.special_tokens)
        note += f"\nLeft out: {names}; grey bars: their share of each head's attention."
    return note
