"""Themes of figures: colours for every kind of colour vision, on white and on black.

A theme is applied inside `Style.rc_context`; matplotlib's global settings never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from regard._utils.errors import RegardError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap


@dataclass(frozen=True)
class Style:
    """The colours of one theme.

    `sequential` are blues in steps of equal lightness (OKLab), from the background, on which a weight of 0 is
    invisible, to its opposite: the same order in grey and for every kind of colour vision; `negative` are browns of the
    same lightness. `original`, `contextual` and `texts`, the colours of compared texts, are those of Okabe and Ito
    (2008), lightened on black.
    """

    background: str
    foreground: str
    muted: str
    faint: str
    bar: str
    masked: str
    original: str
    contextual: str
    texts: tuple[str, ...]
    sequential: tuple[str, ...]
    negative: tuple[str, ...]

    def colormap(self) -> Colormap:
        """Return the colormap of weights, from 0 up, with the colour of masked cells."""
        from matplotlib.colors import LinearSegmentedColormap

        return LinearSegmentedColormap.from_list("regard.weights", self.sequential, bad=self.masked)

    def diverging_colormap(self) -> Colormap:
        """Return the colormap of differences: browns below 0, the background at 0, blues above."""
        from matplotlib.colors import LinearSegmentedColormap

        colors = (*reversed(self.negative), *self.sequential[1:])
        return LinearSegmentedColormap.from_list("regard.differences", colors, N=257, bad=self.masked)

    def rc_context(self) -> AbstractContextManager[None]:
        """Return a context in which matplotlib draws in this style, independent of its global settings."""
        import matplotlib

        return matplotlib.rc_context(
            {
                "font.family": ["DejaVu Sans"],
                "font.size": 9,
                "font.style": "normal",
                "font.weight": "normal",
                "text.usetex": False,
                "text.color": self.foreground,
                "axes.unicode_minus": True,
                "axes.facecolor": self.background,
                "axes.edgecolor": self.faint,
                "axes.labelcolor": self.muted,
                "axes.labelsize": 8.5,
                "axes.labelweight": "normal",
                "axes.linewidth": 0.8,
                "axes.grid": False,
                "figure.facecolor": self.background,
                "figure.autolayout": False,
                "figure.constrained_layout.use": False,
                "image.cmap": "viridis",
                "legend.frameon": False,
                "legend.labelcolor": self.foreground,
                "lines.linewidth": 1.0,
                "path.sketch": None,
                "xtick.color": self.muted,
                "ytick.color": self.muted,
                "xtick.labelcolor": self.foreground,
                "ytick.labelcolor": self.foreground,
            }
        )


def get_style(theme: str) -> Style:
    """Return the style of a theme, ``"light"`` or ``"dark"``; an error if there is no such theme."""
    if theme not in _STYLES:
        raise RegardError(f"theme must be one of {', '.join(_STYLES)}, got {theme!r}")
    return _STYLES[theme]


def style_for_axes(ax: Axes, style: Style) -> Style:
    """Return the style that is readable on the background of the figure of `ax`; `style` if that is transparent."""
    from matplotlib.colors import to_rgba

    figure = ax.get_figure(root=True)
    assert figure is not None
    *color, opacity = to_rgba(figure.get_facecolor())
    return style if opacity < 0.5 else _STYLES["light" if luminance(color) > 0.18 else "dark"]


def luminance(color: Sequence[float]) -> float:
    """Return the relative luminance of a color, as the Web Content Accessibility Guidelines 2 define it."""
    rgb = np.asarray(color[:3])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


_STYLES = {
    "light": Style(
        background="#ffffff",
        foreground="#1b1d22",
        muted="#5f6570",
        faint="#c9cdd4",
        bar="#9aa1ad",
        masked="#e9eaee",
        original="#0072b2",
        contextual="#d55e00",
        texts=("#0072b2", "#d55e00", "#009e73", "#b3558a"),
        sequential=("#ffffff", "#d3e6ed", "#a8ccdf", "#7eb1d3", "#5a95c7", "#3c78b8", "#2a5aa4", "#213d8a", "#1c2468"),
        negative=("#ffffff", "#fbe3d0", "#f6c59f", "#eda56e", "#de8544", "#c66a27", "#a55219", "#813d12", "#5e2b0d"),
    ),
    "dark": Style(
        background="#15171d",
        foreground="#eceef2",
        muted="#a0a7b4",
        faint="#3d434e",
        bar="#6f7786",
        masked="#262a33",
        original="#56b4e9",
        contextual="#f09a3e",
        texts=("#56b4e9", "#f09a3e", "#2fc196", "#df93bf"),
        sequential=("#15171d", "#1f2d46", "#26466f", "#2c6293", "#3580b4", "#43a1cc", "#63c1de", "#95deec", "#ccf8fa"),
        negative=("#15171d", "#33251c", "#573723", "#7d4a27", "#a4602a", "#c87a35", "#e39a54", "#f4be86", "#fde4c6"),
    ),
}
