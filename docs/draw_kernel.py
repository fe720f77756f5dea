"""The picture of ``docs/kernel.md``: the blocks of the map, a block of scores, and the context."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from draw_lesson import blank_axes, box
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.plot import get_style
from regard.plot.style import SCREEN

_STYLE = get_style()
_QUIET, _PAPER = _STYLE.muted, _STYLE.background
_QUERIES, _KEYS, _VALUES, _SCORES = _STYLE.texts
_EDGE = {"edgecolor": _PAPER, "lw": 1.2}


def _pale(color: str) -> str:
    """Return a colour mixed with the background."""
    red, green, blue = 0.3 * np.array(to_rgb(color)) + 0.7 * np.array(to_rgb(_PAPER))
    return to_hex((red, green, blue))


def tiling(path: str | Path) -> None:
    """Draw the blocks and tiles, and write the picture."""
    with _STYLE.rc_context():
        figure = Figure(figsize=(9.6, 4.9), dpi=150)
        axes = blank_axes(figure, 96, 49)
        _map(axes)
        _scores(axes)
        _context(axes)
        figure.savefig(path)


def _map(axes: Axes) -> None:
    """The whole map, causal: one block of queries, its blocks of keys."""
    axes.text(3, 46, "the map, never stored", size=SCREEN.label)
    left, bottom, size, cells = 5.0, 8.0, 32.0, 8
    step = size / cells
    for row in range(cells):
        for col in range(cells):
            x, y = left + col * step, bottom + size - (row + 1) * step
            if col > row:
                axes.add_patch(Rectangle((x, y), step, step, facecolor="none", edgecolor=_STYLE.faint, lw=0.6))
                continue
            mine, now = row == 5, row == 5 and col == 3
            face = _SCORES if now else _pale(_SCORES) if mine and col <= 5 else _STYLE.masked
            axes.add_patch(Rectangle((x, y), step, step, facecolor=face, edgecolor=_PAPER, lw=1.2))
            if col == row:
                corner = [(x, y + step), (x + step, y + step), (x + step, y)]
                axes.fill(*zip(*corner, strict=True), facecolor=_PAPER, edgecolor="none")
    axes.text(left + size / 2, bottom + size + 1, "keys, 96 at a time →", ha="center", color=_QUIET)
    axes.text(
        left - 1.2, bottom + size / 2, "queries, 64 at a time ↓", rotation=90, va="center", ha="center", color=_QUIET
    )
    y = bottom + size - 5.5 * step
    axes.annotate(
        "",
        (left + 5.9 * step, y),
        (left + 0.1 * step, y),
        arrowprops={"arrowstyle": "->", "color": _STYLE.foreground, "lw": 1.3},
    )
    axes.text(left, 4.6, "A task is a row of blocks. Blocks that the causal mask")
    axes.text(left, 2.4, "empties are not read; it cuts only the last ones.")


def _scores(axes: Axes) -> None:
    """One block of scores, transposed, and the tile of it that is kept in registers."""
    axes.text(43, 46, "its scores, transposed", size=SCREEN.label)
    box(axes, (43, 13), (7, 24), _KEYS, "K\n96 × D", **_EDGE)
    box(axes, (52, 38.5), (18, 5.5), _QUERIES, "Qᵀ   D × 64", **_EDGE)
    box(axes, (52, 13), (18, 24), _pale(_SCORES), "", **_EDGE)
    for lane in range(4):
        axes.add_patch(Rectangle((52 + lane * 4.5, 29), 4.5, 3, facecolor=_SCORES, edgecolor=_PAPER, lw=1.0))
    axes.add_patch(Rectangle((43, 29), 7, 3, facecolor="none", edgecolor=_STYLE.foreground, lw=1.3))
    axes.text(61, 33.6, "a tile: 6 keys × 4 vectors", ha="center", va="center")
    axes.text(61, 20, "a vector: one key,\n16 queries", ha="center", va="center")
    axes.text(43, 9.2, "24 sums stay in registers until complete.")
    axes.text(43, 7.0, "Maximum, exponential and sum of a row are")
    axes.text(43, 4.8, "lane-wise: no reductions across lanes.")


def _context(axes: Axes) -> None:
    """The weighted values are added to the context."""
    axes.text(75, 46, "the context", size=SCREEN.label)
    box(axes, (75, 22), (6, 15), _VALUES, "Vᵀ\nDv × 96", **_EDGE)
    box(axes, (83, 38.5), (11, 5.5), _SCORES, "weights", **_EDGE)
    box(axes, (83, 22), (11, 15), _pale(_VALUES), "Oᵀ\nDv × 64", **_EDGE)
    axes.text(75, 17.6, "O ← O · rescale + V · weights")
    axes.text(75, 13.6, "rescale = exp(old maximum")
    axes.text(75, 11.4, "               − new maximum),")
    axes.text(75, 9.2, "one factor a lane, in")
    axes.text(75, 7.0, "the same multiply-add that")
    axes.text(75, 4.8, "writes the tile back.")
