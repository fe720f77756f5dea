"""A map for print, or two maps and their difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from regard.plot.color_bar import drawn_map, max_pool
from regard.plot.print_page import (
    AXIS_TYPE,
    BAR_GAP,
    CELLS_PER_INCH,
    EDGE,
    GAP,
    LONGEST_NOTE,
    MAX_BAR,
    MILLIMETRES,
    NUMBER_TYPE,
    OVERHANG,
    PAD,
    SPACING,
    TITLE_TYPE,
    UPRIGHT,
    Canvas,
    Drawing,
    Page,
    bar_width,
)
from regard.plot.style import Style
from regard.plot.text_metrics import LINE, TextMetrics
from regard.views.selection import AttentionView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.image import AxesImage

_TYPES = (7.5, 7.0, 6.5, 6.0, 5.5, 5.0)  # of labels of tokens: the largest in which none touches the next
_LABEL_COLUMNS = 18
_MAX_CELL, _CELL_WITH_LINES = 0.32, 0.08  # inches
_MIN_ROW = 120.0  # millimetres: in less, A, B and A − B stand one below the other


class _Panel(NamedTuple):
    """One map of a figure: its values are drawn in a scale, beside a bar if that has a label."""

    title: str
    view: AttentionView  # with the tokens, and what is masked
    values: np.ndarray  # T S
    scale: Normalize
    colors: Colormap
    bar: str


class _Labels(NamedTuple):
    """The labels of both axes of a map: every token, or positions."""

    rows: Sequence[str]
    columns: Sequence[str]
    step: int
    points: float
    upright: bool  # the columns, in lines from below to above
    positions: bool


class _Layout(NamedTuple):
    """The sizes of a row, or a column, of maps."""

    labels: list[_Labels]
    lefts: list[float]  # the margins of each map
    rights: list[float]
    above: float
    below: list[float]
    cell: float
    stacked: bool


def draw_maps(page: Page, views: list[AttentionView]) -> Drawing:
    """Draw one map; of two A, B and A − B, side by side or one below the other."""
    from matplotlib.colors import Normalize

    style = page.style
    end = max(float(view.weights.max()) for view in views) or 1.0
    weights = Normalize(0, end), style.colormap()
    if len(views) == 1:
        panels = [_Panel("", views[0], views[0].weights, *weights, "attention weight")]
    else:
        a, b = views
        difference = a.weights - b.weights
        end = float(np.abs(difference).max()) or 1.0
        panels = [
            _Panel("A", a, a.weights, *weights, ""),
            _Panel("B", b, b.weights, *weights, "attention weight"),
            _Panel("A − B", _paired(a, b), difference, Normalize(-end, end), style.diverging_colormap(), "A − B"),
        ]
    layout = _layout(page, panels)
    rows, columns = views[0].weights.shape
    width, height = columns * layout.cell, rows * layout.cell
    if layout.stacked:
        total = max(left + width + right for left, right in zip(layout.lefts, layout.rights, strict=True))
        tall = sum(layout.below) + len(panels) * (layout.above + height) + GAP * (len(panels) - 1)
    else:
        total = sum(layout.lefts) + sum(layout.rights) + len(panels) * width + GAP * (len(panels) - 1)
        tall = layout.above + height + max(layout.below)
    k = math.ceil(1 / (layout.cell * CELLS_PER_INCH) - 1e-9)

    def draw(canvas: Canvas) -> None:
        x, y = 0.0, tall
        for n, panel in enumerate(panels):
            left = max(layout.lefts) if layout.stacked else x + layout.lefts[n]
            top = (y if layout.stacked else tall) - layout.above
            _draw_map(canvas, panel, layout, n, (left, top - height, width, height))
            x = left + width + layout.rights[n] + GAP
            y = top - height - layout.below[n] - GAP

    note = ""
    if k > 1 and len(views) == 1:
        note = f"Each dot is the largest of {k}×{k} weights."
    elif k > 1:
        note = LONGEST_NOTE.replace("100", str(k))
    return Drawing(total, tall, draw, note)


def _layout(page: Page, panels: list[_Panel]) -> _Layout:
    """Return the layout with the largest type in which the labels of all tokens fit; with none, that of positions."""
    across, down = page.available
    stacked = len(panels) > 1 and across * MILLIMETRES < _MIN_ROW - 2 * EDGE * MILLIMETRES
    rows, columns = panels[0].values.shape
    rights = [bar_width(is_difference=panel.scale.vmin != 0) if panel.bar else 0.0 for panel in panels]
    above = TITLE_TYPE * LINE + PAD if len(panels) > 1 else OVERHANG
    tokens = [_token_labels(page, panel.view) for panel in panels]
    for points in (*_TYPES, None):
        size = points or NUMBER_TYPE
        cell = _MAX_CELL
        for _ in range(4):  # labels of positions, and whether columns are upright, depend on the size of a cell
            labels = [_labels(page, *each, points, cell) for each in tokens]
            lefts = [
                0.0
                if n > 0 and not stacked and label.rows == labels[0].rows
                else AXIS_TYPE * LINE + page.text_width(label.rows, size) + 2 * PAD
                for n, label in enumerate(labels)
            ]
            if stacked:
                lefts = [max(lefts)] * len(panels)
            below = [
                PAD + AXIS_TYPE * LINE + (page.text_width(label.columns, size) if label.upright else size * LINE)
                for label in labels
            ]
            if stacked:
                width = across - max(lefts) - max(rights)
                height = (down - sum(below) - len(panels) * above - GAP * (len(panels) - 1)) / len(panels)
            else:
                width = (across - sum(lefts) - sum(rights) - GAP * (len(panels) - 1)) / len(panels)
                below = [max(below)] * len(panels)
                height = down - above - below[0]
            previous, cell = cell, min(width / columns, height / rows, _MAX_CELL)
            if math.isclose(cell, previous):
                break
        if points is None or points * SPACING <= cell:
            return _Layout(labels, lefts, rights, above, below, cell, stacked)
    raise AssertionError("positions always fit")


def _token_labels(page: Page, view: AttentionView) -> tuple[list[str], list[str]]:
    """Return the labels of all queries and of all keys."""
    queries, keys = ([page.fonts.label(token, _LABEL_COLUMNS) for token in side] for side in (view.queries, view.keys))
    return queries, keys


def _labels(page: Page, rows: list[str], columns: list[str], points: float | None, cell: float) -> _Labels:
    """Return the labels of all tokens in this type size; without one, positions as far apart as they need."""
    if points is not None:
        upright = page.text_width(columns, points) > cell - PAD
        return _Labels(rows, columns, 1, points, upright, positions=False)
    spacing = page.text_width([str(max(len(rows), len(columns)))], NUMBER_TYPE) + 2 * PAD
    step = next(n * 10**power for power in count() for n in (1, 2, 5) if n * 10**power * cell >= spacing)
    numbers = [[str(n) for n in range(0, len(labels), step)] for labels in (rows, columns)]
    return _Labels(numbers[0], numbers[1], step, NUMBER_TYPE, upright=False, positions=True)


def _draw_map(canvas: Canvas, panel: _Panel, layout: _Layout, n: int, place: tuple[float, float, float, float]) -> None:
    (left, bottom, width, height), style, labels = place, canvas.style, layout.labels[n]
    ax = canvas.axes(*place)
    rows, columns = panel.values.shape
    image = _draw_values(ax, panel, layout.cell, (-0.5, columns - 0.5, rows - 0.5, -0.5))
    _draw_frame(ax, style)
    if layout.cell >= _CELL_WITH_LINES:
        line: dict[str, Any] = {"color": style.background, "linewidth": 0.4}
        ax.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, **line)
        ax.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, **line)
    text: dict[str, Any] = {
        "family": canvas.families,
        "size": labels.points,
        "color": style.foreground,
        "parse_math": False,
    }
    ax.tick_params(length=1.5 if labels.positions else 0, width=0.5, color=style.muted, pad=PAD * 72 / 2)
    slant: dict[str, Any] = {**UPRIGHT, "ha": "right", "va": "center"} if labels.upright else {}
    ax.set_xticks(range(0, columns, labels.step), labels.columns, **text, **slant)
    has_rows = layout.lefts[n] > 0
    ax.set_yticks(range(0, rows, labels.step) if has_rows else [], labels.rows if has_rows else [], **text)
    kind = " (position)" if labels.positions else ""
    if has_rows:
        canvas.upright(left - layout.lefts[n], bottom, height, (f"query{kind}", "query", ""), va="top")
    key = TextMetrics(tuple(canvas.families)).fit([f"key{kind}", "key"], AXIS_TYPE, width) if kind else "key"
    canvas.text(left + width / 2, bottom - layout.below[n], key, AXIS_TYPE, ha="center", va="bottom")
    if panel.title:
        canvas.text(left + width / 2, bottom + height + PAD, panel.title, TITLE_TYPE, ha="center", va="bottom")
    if panel.bar:
        tall = min(height, MAX_BAR)
        canvas.color_bar(image, left + width + BAR_GAP, bottom + height - tall, tall, panel.bar)


def _draw_values(ax: Axes, panel: _Panel, cell: float, extent: tuple[float, float, float, float]) -> AxesImage:
    if panel.scale.vmin == 0:
        values = drawn_map(panel.view, cell, CELLS_PER_INCH)[0]
    else:
        values = pooled_difference(panel.values, panel.view.masked, cell)
    return ax.imshow(values, extent=extent, cmap=panel.colors, norm=panel.scale, aspect="auto", interpolation="nearest")


def _draw_frame(ax: Axes, style: Style) -> None:
    ax.set_facecolor(style.background)
    ax.spines[:].set_color(style.muted)
    ax.spines[:].set_linewidth(0.5)


def pooled_difference(values: np.ndarray, masked: np.ndarray, cell: float) -> np.ndarray:
    """Return a difference that can be drawn with cells of `cell` inches: of each dot the value farthest from 0."""
    above, below = (max_pool(signed, cell, CELLS_PER_INCH)[0] for signed in (values, -values))
    pooled = np.where(above >= below, above, -below)
    return np.ma.masked_array(pooled, mask=~max_pool(~masked, cell, CELLS_PER_INCH)[0])


def _paired(a: AttentionView, b: AttentionView) -> AttentionView:
    """Return the view of A with the labels of both where they differ, masked where both are."""

    def pairs(ones: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
        return tuple(one if one == other else f"{one} | {other}" for one, other in zip(ones, others, strict=True))

    return replace(
        a, queries=pairs(a.queries, b.queries), keys=pairs(a.keys, b.keys), masked=a.masked & b.masked, is_causal=False
    )
