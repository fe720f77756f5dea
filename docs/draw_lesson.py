"""The pictures of ``docs/diagrams.md``: the shapes in a block, and one row of attention, moving and as stills."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image

from regard import functional as F
from regard.plot import get_style
from regard.plot.style import SCREEN

WORDS = ("the", "cat", "sat", "on", "the", "mat")
ROW = 1  # cat
MILLISECONDS = 900  # of a step; the last one stays four times as long

_STYLE = get_style()
_QUERY, _KEY, _VALUE, _WEIGHT = _STYLE.texts
_LAST = len(WORDS)
_STEPS = (  # how many scores there are, whether weights, how many values are added
    *((scores, False, 0) for scores in range(_LAST + 1)),
    *((_LAST, True, values) for values in range(_LAST + 1)),
)
_STILLS = ((0, False, 0), (_LAST, False, 0), (_LAST, True, 0), (_LAST, True, _LAST))
_TITLES = (
    "1. The query of cat, and all keys",
    "2. Scores: query · key, divided by √D",
    "3. Weights: the softmax of the scores",
    "4. Context: values times weights, added up",
)


def lesson_head() -> tuple[NDArray[np.float64], ...]:
    """Return the queries, keys and values of the first lesson: T D each."""
    rng = np.random.default_rng(1)
    table = rng.standard_normal((5, 8))  # V E
    x = table[[0, 1, 2, 3, 0, 4]] + F.sinusoidal_positions(6, 8)  # T E
    w_q, w_k, w_v = rng.standard_normal((3, 8, 4)) / np.sqrt(8)  # E D
    return x @ w_q, x @ w_k, x @ w_v


def row_of_attention(path: str | Path) -> None:
    """Draw how one word attends, step by step, and write an animated PNG."""
    with _STYLE.rc_context():
        frames = [_image(step) for step in _STEPS]
    times = [MILLISECONDS] * (len(frames) - 1) + [4 * MILLISECONDS]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=times, loop=0)


def row_of_attention_in_stills(path: str | Path) -> None:
    """Draw four of the steps side by side, for print."""
    with _STYLE.rc_context():
        figure = Figure(figsize=(15.2, 8.4), dpi=100)
        for place, step in enumerate(_STILLS):
            row, col = divmod(place, 2)
            _draw(figure, step, (0.5 * col, 0.5 * (1 - row), 0.5, 0.5), highlight=False)
        figure.savefig(path)


def _image(step: tuple[int, bool, int]) -> Image.Image:
    figure = Figure(figsize=(7.6, 4.2), dpi=100)
    _draw(figure, step)
    with io.BytesIO() as file:
        figure.savefig(file, format="png")
        return Image.open(file).convert("RGB")


def blank_axes(figure: Figure, width: float, height: float, place: Sequence[float] = (0, 0, 1, 1)) -> Axes:
    """Return axes without lines, of so many units, which fill a figure or a place in it."""
    axes: Axes = figure.add_axes(place)  # type: ignore[call-overload]
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return axes


def _draw(
    figure: Figure, step: tuple[int, bool, int], place: Sequence[float] = (0, 0, 1, 1), *, highlight: bool = True
) -> None:
    """Draw one step, a line for each key; the one whose turn it is has a band."""
    num_scores, has_weights, num_values = step
    q, k, v = lesson_head()
    scores = q[ROW] @ k.T / 2  # S
    weights = F.softmax(scores)
    axes = blank_axes(figure, 76, 42, place)
    stage = 3 if num_values else 2 if has_weights else 1 if num_scores else 0
    axes.text(2, 38.6, _TITLES[stage], size=SCREEN.title)
    axes.text(2, 33.2, "query of cat", color=_QUERY)
    _cells(axes, 13, 32.4, q[ROW], _QUERY)
    for x, text, color in ((13, "keys", _KEY), (34.5, "scores", _STYLE.foreground), (42, "weights", _WEIGHT)):
        axes.text(x, 29.4, text, color=color)
    axes.text(58, 29.4, "values", color=_VALUE)
    for j, word in enumerate(WORDS):
        y = 25.6 - 3.7 * j
        is_now = highlight and j == (num_values if has_weights else num_scores) - 1
        if is_now:
            axes.add_patch(Rectangle((1, y - 0.6), 75, 3.4, facecolor=_STYLE.masked, edgecolor="none"))
        axes.text(2, y + 1.1, word, va="center", weight="bold" if is_now else "normal")
        _cells(axes, 13, y, k[j], _KEY)
        if j < num_scores:
            axes.text(39.2, y + 1.1, f"{scores[j]:.2f}".replace("-", "−"), va="center", ha="right")
        if has_weights:
            axes.add_patch(Rectangle((46.6, y), 10 * weights[j], 2.2, facecolor=_WEIGHT, edgecolor="none"))
            axes.text(45.8, y + 1.1, f"{weights[j]:.2f}", va="center", ha="right")
        _cells(axes, 58, y, v[j], _VALUE)
    if num_values:
        part = weights[:num_values] @ v[:num_values]  # Dv
        name = "context of cat" if num_values == _LAST else "the sum so far"
        axes.text(56.8, 3.2, name, va="center", ha="right", color=_VALUE)
        _cells(axes, 58, 2.1, part, _VALUE)


def _cells(axes: Axes, x: float, y: float, numbers: NDArray[np.float64], color: str) -> None:
    """Draw a vector: the larger a number, whatever its sign, the darker its cell."""
    for place, number in enumerate(numbers):
        share = min(abs(number) / 3, 1) * 0.6
        face = to_hex(tuple(share * np.array(to_rgb(color)) + (1 - share) * np.array(to_rgb(_STYLE.background))))
        left = x + 4.4 * place
        axes.add_patch(Rectangle((left, y), 4.2, 2.2, facecolor=face, edgecolor=color, lw=0.6))
        text = f"{number:.1f}".replace("-", "−").replace("−0.0", "0.0")
        axes.text(left + 2.1, y + 1.0, text, ha="center", va="center", size=SCREEN.small)


def block_shapes(path: str | Path) -> None:
    """Draw what an encoder block makes of its input, each step with its axes, and write the picture."""
    with _STYLE.rc_context():
        figure = Figure(figsize=(9.6, 6.4), dpi=150)
        axes = blank_axes(figure, 96, 64)
        _attention(axes)
        _feed_forward(axes)
        figure.savefig(path)


def _attention(axes: Axes) -> None:
    axes.text(3, 60.4, "attention: every token reads from all", size=SCREEN.title)
    box(axes, (3, 42), (8, 6), _STYLE.masked, "x\nT E")
    for y, name, color in ((51.0, "q\nH T D", _QUERY), (42, "k\nH S D", _KEY), (33, "v\nH S Dv", _VALUE)):
        box(axes, (20, y), (8, 6), color, name)
        _arrow(axes, [(11, 45), (20, y + 3)])
    for y, name in ((52.6, "· W_q"), (46.2, "· W_k"), (37.0, "· W_v")):
        axes.text(15.3, y, name, ha="center", va="center", color=_STYLE.muted)
    box(axes, (37, 46.5), (9, 6), _STYLE.masked, "scores\nH T S")
    box(axes, (55, 46.5), (9, 6), _WEIGHT, "weights\nH T S")
    box(axes, (55, 33), (9, 6), _VALUE, "context\nH T Dv")
    box(axes, (72, 33), (9, 6), _STYLE.masked, "output\nT E")
    _arrow(axes, [(28, 54), (37, 50.5)])
    _arrow(axes, [(28, 45), (37, 48.5)])
    axes.text(41.5, 44.4, "q · kᵀ / √D", ha="center", color=_STYLE.muted)
    _arrow(axes, [(46, 49.5), (55, 49.5)])
    axes.text(50.5, 50.4, "softmax", ha="center", color=_STYLE.muted)
    _arrow(axes, [(59.5, 46.5), (59.5, 39)])
    _arrow(axes, [(28, 36), (55, 36)])
    axes.text(42, 36.9, "weights · v", ha="center", color=_STYLE.muted)
    _arrow(axes, [(64, 36), (72, 36)])
    axes.text(68, 36.9, "· W_o", ha="center", color=_STYLE.muted)
    _plus(axes, 88, 36)
    _arrow(axes, [(81, 36), (86.8, 36)])
    _arrow(axes, [(7, 48), (7, 58.4), (88, 58.4), (88, 37.2)])
    axes.text(72, 56.4, "residual: x is added", ha="center", color=_STYLE.muted)
    _arrow(axes, [(88, 34.8), (88, 28.6), (7, 28.6), (7, 21)])
    axes.text(48, 29.4, "norm", ha="center", color=_STYLE.muted)


def _feed_forward(axes: Axes) -> None:
    axes.text(20, 24.4, "feed-forward: every token for itself", size=SCREEN.title)
    box(axes, (3, 15), (8, 6), _STYLE.masked, "x\nT E")
    box(axes, (27, 15), (28, 6), _QUERY, "T 4E")
    box(axes, (72, 15), (9, 6), _STYLE.masked, "T E")
    _arrow(axes, [(11, 18), (27, 18)])
    axes.text(19, 18.9, "gelu(· W_up)", ha="center", color=_STYLE.muted)
    _arrow(axes, [(55, 18), (72, 18)])
    axes.text(63.5, 18.9, "· W_down", ha="center", color=_STYLE.muted)
    _plus(axes, 88, 18)
    _arrow(axes, [(81, 18), (86.8, 18)])
    _arrow(axes, [(7, 15), (7, 10.6), (88, 10.6), (88, 16.8)])
    axes.text(48, 11.4, "residual", ha="center", color=_STYLE.muted)
    _arrow(axes, [(89.2, 18), (92.5, 18), (92.5, 6.4)])
    axes.text(93.5, 4.0, "norm: T E", ha="right", color=_STYLE.foreground)
    axes.text(3, 4.0, "In and out: T E. So blocks can follow each other.")


def box(axes: Axes, corner: tuple[float, float], size: tuple[float, float], face: str, text: str, **edge: Any) -> None:
    """Draw a rectangle with a text in it."""
    axes.add_patch(Rectangle(corner, *size, facecolor=face, **{"edgecolor": "none", **edge}))
    color = _STYLE.background if face in _STYLE.texts else _STYLE.foreground
    axes.text(corner[0] + size[0] / 2, corner[1] + size[1] / 2, text, ha="center", va="center", color=color)


def _plus(axes: Axes, x: float, y: float) -> None:
    axes.plot([x], [y], "o", ms=13, mfc=_STYLE.background, mec=_STYLE.foreground)
    axes.text(x, y, "+", ha="center", va="center")


def _arrow(axes: Axes, places: Sequence[tuple[float, float]]) -> None:
    """Draw a line through places, with a head at the last."""
    for begin, end in pairwise(places[:-1]):
        axes.plot(*zip(begin, end, strict=True), color=_STYLE.foreground, lw=1)
    axes.annotate(
        "",
        places[-1],
        places[-2],
        arrowprops={"arrowstyle": "->", "color": _STYLE.foreground, "shrinkA": 0, "shrinkB": 0},
    )
