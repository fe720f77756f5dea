"""A map for print, or two maps and their difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from regard.plot import captions, color_bar as bars
from regard.plot.cells import cells_per_dot, draw_cells, draw_frame, draw_lines, extent_of, pool
from regard.plot.existing_axes import Margins
from regard.plot.labels import Labels, all_labels, draw_labels, positions, print_spacing
from regard.plot.page import Page
from regard.plot.style import PRINT, Look, Style
from regard.plot.text_metrics import LINE
from regard.views.selection import AttentionView

if TYPE_CHECKING:
    from matplotlib.colors import Colormap, Normalize

# Lengths are in inches.
_LABEL_COLUMNS = 18
_MAX_CELL, _CELL_WITH_LINES = 0.32, 0.08
_MIN_ROW = 4.6  # in less, A, B and A − B stand one below the other
_GAP, _OVERHANG = 0.16, 0.06  # between maps; of the number at the upper end of a bar


class _Panel(NamedTuple):
    """One map of a figure: its values are drawn in a scale, beside a bar if that has a label."""

    title: str
    view: AttentionView  # with the tokens, and what is masked
    values: np.ndarray  # T S
    scale: Normalize
    colors: Colormap
    bar: str


class PrintMaps:
    """One map; of two A, B and A − B, side by side or one below the other, in an available width and height."""

    def __init__(self, views: Sequence[AttentionView], available: tuple[float, float], look: Look) -> None:
        self.look = look
        self.panels = _panels(views, look.style)
        self.stacked = len(self.panels) > 1 and available[0] < _MIN_ROW
        self.labels, self.margins, self.cell = self._fit(available)
        self.shape = views[0].weights.shape
        self.k = cells_per_dot(self.cell, PRINT)

    @property
    def size(self) -> tuple[float, float]:
        """The width and the height of everything."""
        sizes = np.array([margins.grow(self._map) for margins in self.margins])
        gaps = _GAP * (len(sizes) - 1)
        (across, down), (most_across, most_down) = sizes.sum(axis=0) + gaps, sizes.max(axis=0)
        return (most_across, down) if self.stacked else (across, most_down)

    @property
    def _map(self) -> np.ndarray:
        """The width and the height of a map."""
        return self.cell * np.array(self.shape[::-1])

    def _fit(self, available: tuple[float, float]) -> tuple[list[Labels], list[Margins], float]:
        """Return labels, margins and cell with the largest type in which all tokens fit; with none, of positions."""

        def spelled(tokens: Sequence[str]) -> list[str]:
            return [self.look.fonts.label(token, _LABEL_COLUMNS) for token in tokens]

        tokens = [(spelled(panel.view.queries), spelled(panel.view.keys)) for panel in self.panels]
        spacing = print_spacing([each for sides in tokens for side in sides for each in side], self.look)
        shape = np.array(self.panels[0].values.shape)
        for points in (*np.arange(PRINT.label, PRINT.smallest - 0.1, -0.5).tolist(), None):
            cell = _MAX_CELL
            for _ in range(4):  # labels of positions, and whether columns are upright, depend on the size of a cell
                if points is None:
                    labels = [positions(self.panels[0].values.shape, cell, self.look)] * len(self.panels)
                else:
                    labels = [all_labels(rows, columns, points, cell, self.look) for rows, columns in tokens]
                margins = [self._margins(n, labels) for n in range(len(labels))]
                if self.stacked:
                    margins = [each._replace(left=max(m.left for m in margins)) for each in margins]
                else:
                    margins = [each._replace(below=max(m.below for m in margins)) for each in margins]
                space = np.array(available) / ((1, len(labels)) if self.stacked else (len(labels), 1))
                gaps = _GAP * (len(labels) - 1) / len(labels)
                taken = np.array([each.grow(np.zeros(2)) for each in margins])
                mean, most = taken.mean(axis=0), taken.max(axis=0)
                rest = space - ((most[0], mean[1] + gaps) if self.stacked else (mean[0] + gaps, most[1]))
                previous, cell = cell, float(min(*(rest / shape[::-1]), _MAX_CELL))
                if np.isclose(cell, previous):
                    break
            if points is None or points * spacing <= cell:
                return labels, margins, cell
        raise AssertionError("positions always fit")

    def _margins(self, n: int, labels: Sequence[Labels]) -> Margins:
        """Return the space around a map; its rows are not labelled again beside one with the same labels."""
        panel, own, metrics, name = self.panels[n], labels[n], self.look.metrics, PRINT.small * LINE
        is_labelled = n == 0 or self.stacked or own.rows != labels[0].rows
        return Margins(
            left=name + metrics.max_width(own.rows, own.points) + 2 * PRINT.pad if is_labelled else 0.0,
            right=PRINT.pad + bars.room_beside(self.look, signed=panel.scale.vmin != 0) if panel.bar else 0.0,
            above=PRINT.title * LINE + PRINT.pad if panel.title else _OVERHANG,
            below=PRINT.pad + name + (metrics.max_width(own.columns, own.points) if own.angle else own.points * LINE),
        )

    def draw(self, page: Page) -> None:
        """Draw everything in the space of a page."""
        x, y = 0.0, self.size[1]
        for panel, labels, margins in zip(self.panels, self.labels, self.margins, strict=True):
            self._draw(page, panel, labels, margins, (x + margins.left, y - margins.above - self._map[1]))
            across, down = margins.grow(self._map) + _GAP
            x, y = (x, y - down) if self.stacked else (x + across, y)

    def _draw(self, page: Page, panel: _Panel, labels: Labels, margins: Margins, corner: tuple[float, float]) -> None:
        (left, bottom), (width, height) = corner, self._map
        ax = page.axes(left, bottom, width, height)
        values = pool(panel.values, panel.view.masked, self.k)
        image = draw_cells(ax, values, panel.colors, panel.scale, extent_of(panel.values.shape))
        draw_frame(ax, self.look)
        if self.cell >= _CELL_WITH_LINES:
            draw_lines(ax, panel.values.shape, self.look)
        shown = labels if margins.left else labels._replace(rows=())
        draw_labels(ax, shown, self.look, self.look.style.foreground, above=False)
        kind = " (position)" if labels.are_positions else ""
        middle = left + width / 2
        page.name_axis(middle, bottom - margins.below, (f"key{kind}", "key"), width if kind else math.inf)
        if margins.left:
            names = f"query{kind}", "query"
            page.name_axis(left - margins.left, bottom + height / 2, names, height, upright=True)
        if panel.title:
            page.text(middle, bottom + height + PRINT.pad, panel.title, size=PRINT.title, ha="center", va="bottom")
        if panel.bar:
            tall = min(float(height), bars.LENGTH)
            cax = page.axes(left + width + PRINT.pad, bottom + height - tall, bars.THICKNESS, tall)
            meanings = (panel.bar, panel.bar.removeprefix("attention "))
            bars.color_bar(cax, image, meanings, self.look, length=tall, beside=True)

    @property
    def note(self) -> str:
        """How the maps are drawn."""
        return captions.pooled(self.k) if len(self.panels) == 1 else captions.pooled_pair(self.k)


def _panels(views: Sequence[AttentionView], style: Style) -> list[_Panel]:
    from matplotlib.colors import Normalize

    weights = Normalize(0, max(float(view.weights.max()) for view in views) or 1.0), style.colormap()
    if len(views) == 1:
        return [_Panel("", views[0], views[0].weights, *weights, captions.SHORT_WEIGHT)]
    a, b = views
    difference = a.weights - b.weights
    end = float(np.abs(difference).max()) or 1.0
    return [
        _Panel("A", a, a.weights, *weights, ""),
        _Panel("B", b, b.weights, *weights, captions.SHORT_WEIGHT),
        _Panel("A − B", _paired(a, b), difference, Normalize(-end, end), style.diverging_colormap(), "A − B"),
    ]


def _paired(a: AttentionView, b: AttentionView) -> AttentionView:
    """Return the view of A with the labels of both where they differ, masked where both are."""

    def pairs(ones: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
        return tuple(one if one == other else f"{one} | {other}" for one, other in zip(ones, others, strict=True))

    return replace(
        a, queries=pairs(a.queries, b.queries), keys=pairs(a.keys, b.keys), masked=a.masked & b.masked, is_causal=False
    )
