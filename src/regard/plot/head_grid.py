"""All heads of all layers at a glance: small maps that share one scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from regard._utils.errors import RegardError
from regard.plot.color_bar import BAR_HEIGHT, BAR_LABELS, BAR_WIDTH, colour_bar, pooled
from regard.plot.fonts import Lettering, lettering
from regard.plot.heading import MARGIN, Heading
from regard.plot.style import Style, style_of
from regard.plot.text_metrics import LINE, Ruler
from regard.trace import Trace
from regard.views.selection import AttentionView, every_head

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

# Lengths are in inches, sizes of type in points.
_WIDE, _HIGH = 10.0, 13.0  # what the panels together keep to while each can stay larger than _SMALLEST
_SMALLEST, _LARGEST, _GAP = 0.42, 2.4, 0.1
_LABEL_TYPE = 8.5
_CORNER = ("head →", "layer ↓")
_PAD = 0.06
_NARROWEST = 5.0
_SHARE_BAR, _BAR_DROP = 0.05, 0.24
_TEXT_COLUMNS = 100


def head_grid(
    trace: Trace,
    *,
    batch: int = 0,
    keep_special: bool = False,
    words: bool = False,
    theme: str = "light",
    figure: Figure | None = None,
) -> Figure:
    """Draw the maps of all heads, a row of panels for each layer, on one scale of colour.

    The scale grows with the square root of the weight, so that the pattern of a head that spreads its attention
    can be seen beside one that does not; `heatmap` has the even scale.

    Where special tokens are left out, the bar and the number under a panel are the share of the head's attention
    that goes to them: a pale panel over a long bar is a head that looks at ``[SEP]``.

    Parameters
    ----------
    trace, batch, keep_special, words
        Which text and which tokens, as in `select`.
    theme : {"light", "dark"}
    figure : Figure, optional
        Where to draw; it is cleared and takes the size that the panels need. A new one by default.

    Returns
    -------
    Figure

    Raises
    ------
    RegardError
        The trace holds no weights, or no such batch entry; or there is no such theme.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    if figure is not None and not isinstance(figure, Figure):
        raise RegardError("head_grid sets the size of its figure: give it a Figure of its own, not a part of one")
    style = style_of(theme)
    layers = every_head(trace, batch=batch, keep_special=keep_special, words=words)
    view = layers[0][0]
    text = trace.encodings[batch].text if trace.encodings else " ".join(view.queries)
    letters = lettering([text, *view.hidden_keys, view.model])
    ruler = Ruler(letters.families)
    panels = _Panels.fitted(len(layers), max(map(len, layers)), shares=bool(view.hidden_keys))
    names = [str(row[0].layer) if row[0].layer is not None else "" for row in layers]
    left = max(ruler.widest(names, _LABEL_TYPE), ruler.widest(_CORNER, _LABEL_TYPE)) + _PAD
    above = len(_CORNER) * _LABEL_TYPE * LINE + _PAD
    below = _BAR_DROP + BAR_HEIGHT + BAR_LABELS
    across = max(left + panels.width, left + BAR_WIDTH, _NARROWEST)
    note = "\n".join(filter(None, (_note(view, text, letters), panels.drawn(view)[1])))
    heading = Heading.fitted(_title(view, letters), note, across, ruler)
    W, H = across + 2 * MARGIN, heading.height + above + panels.height + below + 2 * MARGIN
    with style.drawing():
        figure = Figure() if figure is None else figure
        figure.clear()
        figure.set(size_inches=(W, H), facecolor=style.background)
        heading.write(figure, ruler, style)
        bottom = MARGIN + below
        ax = figure.add_axes(
            ((MARGIN + left) / W, bottom / H, panels.width / W, panels.height / H),
            xlim=(0, panels.width),
            ylim=(panels.height, 0),
        )
        ax.set_axis_off()
        strongest = float(max(view.weights.max() for row in layers for view in row)) or 1.0
        scale = PowerNorm(0.5, 0, strongest)
        for row, views in enumerate(layers):
            _write_name(ax, names[row], (-_PAD, panels.corner(row, 0)[1] + panels.size / 2), style, ha="right")
            for column, view in enumerate(views):
                _draw_panel(ax, view, panels, panels.corner(row, column), scale, style)
        for column in range(panels.across if view.heads else 0):
            middle = panels.corner(0, column)[0] + panels.size / 2
            _write_name(ax, str(column), (middle, -_PAD), style, va="bottom")
        _write_name(ax, "\n".join(_CORNER), (-_PAD, -_PAD), style, ha="right", va="bottom", color=style.muted)
        cax = figure.add_axes(((MARGIN + left) / W, (MARGIN + BAR_LABELS) / H, BAR_WIDTH / W, BAR_HEIGHT / H))
        colour_bar(
            cax,
            ScalarMappable(scale, style.weights()),
            style,
            ticks=[tick for tick in (0, 0.01, 0.05, 0.2, 0.5, 1) if tick < strongest],
            note=", on a square-root scale",
        )
    return figure


@dataclass(frozen=True)
class _Panels:
    """Where the panels of a grid stand, in inches from its top left corner."""

    down: int
    across: int
    size: float
    points: float  # of the number under a panel; 0 without numbers

    @classmethod
    def fitted(cls, down: int, across: int, *, shares: bool) -> _Panels:
        """Return panels as large as fit."""
        size = min(max(min(_WIDE / across - _GAP, _HIGH / down - _GAP - 0.1), _SMALLEST), _LARGEST)
        return cls(down, across, size, min(max(size * 9, 5.0), 7.0) if shares else 0.0)

    @property
    def under(self) -> float:
        """The height of what stands under a panel."""
        return self.points * LINE

    @property
    def width(self) -> float:
        """The width of the whole grid."""
        return self.across * (self.size + _GAP) - _GAP

    @property
    def height(self) -> float:
        """The height of the whole grid."""
        return self.down * (self.size + self.under + _GAP) - _GAP

    def corner(self, row: int, column: int) -> tuple[float, float]:
        """Return the top left corner of a panel."""
        return column * (self.size + _GAP), row * (self.size + self.under + _GAP)

    def drawn(self, view: AttentionView) -> tuple[np.ndarray, str]:
        """Return what a panel shows of a map, and a sentence that says so where it is not all."""
        return pooled(view.weights, self.size / max(view.weights.shape))


def _draw_panel(
    ax: Axes,
    view: AttentionView,
    panels: _Panels,
    corner: tuple[float, float],
    scale: Normalize,
    style: Style,
) -> None:
    """Draw one map in its frame and, where tokens are left out, the share that goes to them below."""
    from matplotlib.patches import Rectangle

    (x, y), size = corner, panels.size
    ax.imshow(
        panels.drawn(view)[0],
        extent=(x, x + size, y + size, y),
        aspect="auto",
        cmap=style.weights(),
        norm=scale,
        interpolation="nearest",
    )
    ax.add_patch(Rectangle(corner, size, size, fill=False, edgecolor=style.faint, linewidth=0.6, clip_on=False))
    if view.hidden_keys:
        share = float(view.hidden.mean())
        room = size - panels.points * 0.037  # for the number beside the bar
        middle = y + size + panels.under / 2 + 0.01
        bar = Rectangle((x, middle - _SHARE_BAR / 2), room, _SHARE_BAR, color=style.faint, linewidth=0)
        filled = Rectangle((x, middle - _SHARE_BAR / 2), room * share, _SHARE_BAR, color=style.muted, linewidth=0)
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


def _write_name(
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


def _title(view: AttentionView, letters: Lettering) -> str:
    model = f" of {letters.label(view.model, 60)}" if view.model else ""
    return f"What every head{model} looks at"


def _note(view: AttentionView, text: str, letters: Lettering) -> str:
    note = f"Rows look, columns are looked at: “{letters.label(text, _TEXT_COLUMNS)}”"
    if view.hidden_keys:
        names = " and ".join(letters.label(key) for key in view.hidden_keys)
        note += f"\nLeft out: {names}; the grey bars are their share of each head's attention."
    return note
