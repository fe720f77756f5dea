"""The house style: colours for every kind of colour vision, on white and on black; sizes on screens and in print.

A style is applied inside `Style.rc_context`; matplotlib's global settings never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from regard._utils.errors import RegardError
from regard.plot.fonts import FontFallback
from regard.plot.text_metrics import TextMetrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap


@dataclass(frozen=True)
class Medium:
    """The sizes of what is drawn: type and lines in points, lengths in inches."""

    title: float
    label: float  # of the rows and columns of a map
    small: float  # notes, captions, legends, names of axes, words in a plane
    number: float
    smallest: float
    margin: float  # of a figure
    pad: float  # between labels and what they label
    line: float  # of a frame
    cells: int  # of a map in an inch, at two dots of a PNG each: smaller ones may not be drawn
    dots: int | None  # of a figure in an inch; None: matplotlib's setting


SCREEN = Medium(
    title=11.5, label=10, small=8.5, number=7.5, smallest=5, margin=0.18, pad=0.06, line=0.8, cells=100, dots=None
)
PRINT = Medium(
    title=8.5, label=7.5, small=7.5, number=6.5, smallest=5, margin=0.03, pad=0.04, line=0.5, cells=150, dots=300
)


@dataclass(frozen=True)
class Style:
    """The colours of one theme, as hexadecimal RGB.

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

    def rc_context(
        self, families: Sequence[str] = ("DejaVu Sans",), medium: Medium = SCREEN
    ) -> AbstractContextManager[None]:
        """Return a context in which matplotlib draws in this style, independent of its global settings.

        Text is in the first of `families` that has the character, and never a formula.
        """
        import matplotlib
        from matplotlib.rcsetup import cycler

        return matplotlib.rc_context(
            {
                "font.family": list(families),
                "font.size": medium.small,
                "font.style": "normal",
                "font.weight": "normal",
                "text.usetex": False,
                "text.parse_math": False,
                "text.color": self.foreground,
                "axes.unicode_minus": True,
                "axes.facecolor": self.background,
                "axes.edgecolor": self.faint,
                "axes.labelcolor": self.muted,
                "axes.labelsize": medium.small,
                "axes.labelweight": "normal",
                "axes.linewidth": medium.line,
                "axes.grid": False,
                "axes.prop_cycle": cycler(color=self.texts),
                "axes.titlecolor": self.foreground,
                "axes.titlelocation": "left",
                "axes.titlepad": 5,
                "axes.titlesize": medium.small,
                "axes.titleweight": "normal",
                "figure.facecolor": self.background,
                "figure.autolayout": False,
                "figure.constrained_layout.use": False,
                "image.cmap": "viridis",
                "legend.fontsize": medium.small,
                "legend.frameon": False,
                "legend.labelcolor": self.foreground,
                "lines.linewidth": 1.0,
                "path.sketch": None,
                "xtick.color": self.muted,
                "ytick.color": self.muted,
                "xtick.labelcolor": self.foreground,
                "ytick.labelcolor": self.foreground,
                "xtick.labelsize": medium.number,
                "ytick.labelsize": medium.number,
                "xtick.major.size": 2.5,
                "ytick.major.size": 2.5,
            }
        )


@dataclass(frozen=True)
class Look:
    """How a figure looks: the fonts of its texts, its colours, its sizes."""

    fonts: FontFallback
    style: Style
    medium: Medium = SCREEN

    @property
    def metrics(self) -> TextMetrics:
        """The sizes of text in the fonts."""
        return self.fonts.metrics

    @property
    def frame(self) -> str:
        """The colour of frames: darker in print, where lines are thin."""
        return self.style.muted if self.medium is PRINT else self.style.faint

    @property
    def names(self) -> str:
        """The colour of the names of axes."""
        return self.style.foreground if self.medium is PRINT else self.style.muted

    def rc_context(self) -> AbstractContextManager[None]:
        """Return a context in which matplotlib draws like this."""
        return self.style.rc_context(self.fonts.families, self.medium)


def get_style(theme: str = "light") -> Style:
    """Return the style in which all figures of regard are drawn, for figures of your own.

    Parameters
    ----------
    theme : {"light", "dark"}

    Returns
    -------
    Style
        Its colours: ``background``, ``foreground``, ``muted`` and ``faint`` for text and lines, ``original`` (blue) and
        ``contextual`` (vermilion) for two series, ``texts`` for four; ``colormap()`` of weights and
        ``diverging_colormap()`` of differences. Inside ``with style.rc_context():`` matplotlib draws in its fonts,
        sizes and colours.

    Raises
    ------
    RegardError
        There is no such theme.
    """
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
