"""Figures for print, as wide as a column or a page: a map, two maps and their difference, or the maps of all heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number
from regard.plot.color_bar import drawn_map, mask_note, max_pool
from regard.plot.fonts import FontFallback, find_fonts
from regard.plot.style import Style, get_style
from regard.plot.text_metrics import LINE, TextMetrics
from regard.trace import Trace
from regard.views.selection import AttentionView, lazy_heads, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

Head: TypeAlias = "int | Literal['all'] | None"

WIDTHS = {"column": 85.0, "page": 170.0}
"""Millimetres of the named widths."""

# Lengths are in inches, type sizes in points.
_MILLIMETRES = 25.4
_MIN_WIDTH, _MAX_WIDTH, _MAX_HEIGHT = 40.0, 500.0, 230.0  # millimetres; the height of a page, without its margins
_DOTS_PER_INCH = 300  # of PNG
_CELLS_PER_INCH = 150  # of a map: a cell is at least two dots of a PNG
_EDGE, _GAP, _PAD = 0.03, 0.16, 0.04
_TYPES = (7.5, 7.0, 6.5, 6.0, 5.5, 5.0)  # of labels of tokens: the largest in which none touches the next
_AXIS_TYPE, _NUMBER_TYPE, _TITLE_TYPE, _CAPTION_TYPE = 7.5, 6.5, 8.5, 7.5
_SPACING = 1.12 / 72  # of labels, per point of their type
_LABEL_COLUMNS, _TEXT_COLUMNS = 18, 240
_LONGEST_NOTE = "Each dot is the largest of 100×100 weights, in A − B the one farthest from 0."
_MAX_CELL, _CELL_WITH_LINES = 0.32, 0.08
_BAR, _BAR_GAP, _MAX_BAR = 0.075, 0.06, 2.2
_NUMBERS = (0.31, 0.38)  # beside a bar of weights, of differences
_OVERHANG = 0.06  # of the number at the upper end of a bar
_UPRIGHT: dict[str, Any] = {"rotation": 90, "rotation_mode": "anchor", "ha": "center"}
_MIN_ROW = 120.0  # millimetres: in less, A, B and A − B stand one below the other
_PANEL_GAP, _MAX_PANEL = 0.12, 0.6  # of the grid: the gap as a share of a panel and its gap


def figure(
    *sources: Trace | AttentionView,
    layer: int | Sequence[int] | None = None,
    head: Head | Sequence[int | None] = None,
    batch: int | Sequence[int] = 0,
    show_special_tokens: bool = False,
    merge_subwords: bool = False,
    span: tuple[int, int] | None = None,
    width: str | float = "column",
    caption: bool | str = False,
    notes: Sequence[str] = (),
    theme: str = "light",
) -> Figure:
    """Draw a figure for print: its width is given, its height follows.

    Of one source, its map. Of two, A, B and A − B: A and B on one colour scale, the difference on one that is centred
    at 0, blue where A is larger and brown where B is; side by side, or in less than 120 mm one below the other. With
    ``head="all"``, the maps of all heads on the square-root scale of `head_grid`, or of two sources their differences.

    Type is 5 to 8.5 points. Where labels of tokens would have to be smaller, axes are numbered by the position of the
    tokens that are shown.

    Parameters
    ----------
    *sources : Trace or AttentionView
        One or two; the same trace may be given twice, for two of its heads.
    layer, head, batch : int, or one for each of two sources, optional
        As in `select`; of the head also ``"all"``.
    show_special_tokens, merge_subwords, span
        As in `select`. An `AttentionView` has made its selection, and a figure of all heads shows whole texts.
    width : {"column", "page"} or float
        85 mm, 170 mm, or millimetres.
    caption : bool or str
        Write below the figure what it shows: model, layer, head and text, and what is left out; or a text of your own.
    notes : sequence of str, optional
        What a made caption says of each source beside that, such as how its trace was edited.
    theme : {"light", "dark"}

    Returns
    -------
    Figure
        With 300 dots per inch, for `save`. Axes of maps have the cell ``i, j`` at ``x = j, y = i``.

    Raises
    ------
    RegardError
        As in `select`; there are no sources or more than two; two maps have different sizes; or there is no such width
        or theme.
    """
    if not 1 <= len(sources) <= 2 or not all(isinstance(source, Trace | AttentionView) for source in sources):
        raise RegardError("a figure is of one or two sources, each a Trace or an AttentionView")
    style, across = get_style(theme), _width(width)
    selection = {"show_special_tokens": show_special_tokens, "merge_subwords": merge_subwords}
    all_heads = isinstance(head, str)
    if all_heads and (head != "all" or layer is not None or span is not None):
        raise RegardError(f"head is a number, or 'all' without layer and span, got head={head!r}")
    entries = _for_each(batch, len(sources), "batch")
    views: list[list[list[AttentionView]]]
    if all_heads:
        views = [_every_head(source, entry, selection) for source, entry in zip(sources, entries, strict=True)]
    else:
        layers, heads = _for_each(layer, len(sources), "layer"), _for_each(head, len(sources), "head")
        options = [
            {"layer": layers[n], "head": heads[n], "batch": entries[n], "span": span, **selection}
            for n in range(len(sources))
        ]
        views = [[[_view(source, chosen)]] for source, chosen in zip(sources, options, strict=True)]
    _check_shapes(views)
    texts = [_text_of(source, entry) for source, entry in zip(sources, entries, strict=True)]
    first = [ofs[0][0] for ofs in views]
    labels = {label for view in first for label in (*view.queries, *view.keys, *view.special_tokens, view.model)}
    fonts = find_fonts([*sorted(labels), *texts, *notes, caption if isinstance(caption, str) else ""])
    if caption is True:
        caption = _caption(first, texts, notes, fonts, span=span, all_heads=all_heads)
    page = _Page(across, fonts, style, "\n".join(map(fonts.label, caption.split("\n"))) if caption else "")
    with style.rc_context():
        drawing = _draw_grid(page, views) if all_heads else _draw_maps(page, first)
        return _compose(page, drawing)


@dataclass(frozen=True, eq=False)
class _Page:
    """What a figure is drawn on."""

    width: float
    fonts: FontFallback
    style: Style
    caption: str

    @property
    def available(self) -> tuple[float, float]:
        """The width and the height that the drawing may take."""
        return self.width - 2 * _EDGE, _MAX_HEIGHT / _MILLIMETRES - 2 * _EDGE - self.caption_height(_LONGEST_NOTE)

    def caption_lines(self, note: str) -> Sequence[str]:
        """The lines of the caption, with a note of how it is drawn."""
        text = f"{self.caption} {note}".strip() if self.caption else ""
        return self.fonts.metrics.wrap(text, _CAPTION_TYPE, self.width - 2 * _EDGE)

    def caption_height(self, note: str) -> float:
        lines = self.caption_lines(note)
        return len(lines) * _CAPTION_TYPE * LINE + (2 * _PAD if lines else 0.0)

    def text_width(self, texts: Sequence[str], points: float) -> float:
        return self.fonts.metrics.max_width(texts, points)


class _Drawing(NamedTuple):
    """The size of a drawing, what places it on a figure with its lower left corner, and a note for the caption."""

    width: float
    height: float
    draw: Any  # (canvas: _Canvas) -> None
    note: str


@dataclass(frozen=True, eq=False)
class _Canvas:
    """A figure in inches from the lower left corner of a drawing."""

    figure: Figure
    x: float
    y: float
    style: Style
    families: list[str]

    def axes(self, left: float, bottom: float, width: float, height: float, **options: Any) -> Axes:
        W, H = self.figure.get_size_inches()
        rectangle = ((self.x + left) / W, (self.y + bottom) / H, width / W, height / H)
        return self.figure.add_axes(rectangle, **options)

    def text(self, x: float, y: float, text: str, points: float, **options: Any) -> None:
        W, H = self.figure.get_size_inches()
        given = {"color": self.style.foreground, "family": self.families, "parse_math": False, **options}
        self.figure.text((self.x + x) / W, (self.y + y) / H, text, size=points, **given)

    def upright(self, x: float, y: float, height: float, texts: Sequence[str], **options: Any) -> None:
        """Write the first of some texts that is no longer than a height beside its middle, from below to above."""
        metrics = TextMetrics(tuple(self.families))
        text = next(text for text in texts if metrics.width(text, _AXIS_TYPE) <= height or not text)
        self.text(x, y + height / 2, text, _AXIS_TYPE, **_UPRIGHT, **options)

    def color_bar(self, mappable: Any, left: float, bottom: float, height: float, label: str) -> None:
        """Draw a vertical bar with numbers and their meaning to its right."""
        scale = mappable.norm
        ticks = _ticks(scale.vmin, scale.vmax, scale, _NUMBER_TYPE * LINE / height)
        cax = self.axes(left, bottom, _BAR, height)
        bar = self.figure.colorbar(mappable, cax=cax, ticks=ticks)
        bar.set_ticklabels([_number(tick) for tick in ticks])
        bar.minorticks_off()
        bar.outline.set_edgecolor(self.style.muted)
        bar.outline.set_linewidth(0.5)
        bar.ax.tick_params(labelsize=_NUMBER_TYPE, length=1.5, width=0.5, pad=1.5, color=self.style.muted)
        at = left + _BAR + _NUMBERS[scale.vmin != 0] + _AXIS_TYPE * LINE
        self.upright(at, bottom, height, (label, label.removeprefix("attention ").partition(" (")[0], ""), va="bottom")


# Maps


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


def _draw_maps(page: _Page, views: list[AttentionView]) -> _Drawing:
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
        tall = sum(layout.below) + len(panels) * (layout.above + height) + _GAP * (len(panels) - 1)
    else:
        total = sum(layout.lefts) + sum(layout.rights) + len(panels) * width + _GAP * (len(panels) - 1)
        tall = layout.above + height + max(layout.below)
    k = math.ceil(1 / (layout.cell * _CELLS_PER_INCH) - 1e-9)

    def draw(canvas: _Canvas) -> None:
        x, y = 0.0, tall
        for n, panel in enumerate(panels):
            left = max(layout.lefts) if layout.stacked else x + layout.lefts[n]
            top = (y if layout.stacked else tall) - layout.above
            _draw_map(canvas, panel, layout, n, (left, top - height, width, height))
            x = left + width + layout.rights[n] + _GAP
            y = top - height - layout.below[n] - _GAP

    note = ""
    if k > 1 and len(views) == 1:
        note = f"Each dot is the largest of {k}×{k} weights."
    elif k > 1:
        note = _LONGEST_NOTE.replace("100", str(k))
    return _Drawing(total, tall, draw, note)


def _layout(page: _Page, panels: list[_Panel]) -> _Layout:
    """Return the layout with the largest type in which the labels of all tokens fit; with none, that of positions."""
    across, down = page.available
    stacked = len(panels) > 1 and across * _MILLIMETRES < _MIN_ROW - 2 * _EDGE * _MILLIMETRES
    rows, columns = panels[0].values.shape
    rights = [_bar_width(is_difference=panel.scale.vmin != 0) if panel.bar else 0.0 for panel in panels]
    above = _TITLE_TYPE * LINE + _PAD if len(panels) > 1 else _OVERHANG
    for points in (*_TYPES, None):
        size = points or _NUMBER_TYPE
        cell = _MAX_CELL
        for _ in range(4):  # labels of positions, and whether columns are upright, depend on the size of a cell
            labels = [_labels(page, panel.view, points, cell) for panel in panels]
            lefts = [
                0.0
                if n > 0 and not stacked and label.rows == labels[0].rows
                else _AXIS_TYPE * LINE + page.text_width(label.rows, size) + 2 * _PAD
                for n, label in enumerate(labels)
            ]
            if stacked:
                lefts = [max(lefts)] * len(panels)
            below = [
                _PAD + _AXIS_TYPE * LINE + (page.text_width(label.columns, size) if label.upright else size * LINE)
                for label in labels
            ]
            if stacked:
                width = across - max(lefts) - max(rights)
                height = (down - sum(below) - len(panels) * above - _GAP * (len(panels) - 1)) / len(panels)
            else:
                width = (across - sum(lefts) - sum(rights) - _GAP * (len(panels) - 1)) / len(panels)
                below = [max(below)] * len(panels)
                height = down - above - below[0]
            previous, cell = cell, min(width / columns, height / rows, _MAX_CELL)
            if math.isclose(cell, previous):
                break
        if points is None or points * _SPACING <= cell:
            return _Layout(labels, lefts, rights, above, below, cell, stacked)
    raise AssertionError("positions always fit")


def _labels(page: _Page, view: AttentionView, points: float | None, cell: float) -> _Labels:
    """Return the labels of all tokens in this type size; without one, positions as far apart as they need."""
    if points is not None:
        rows = [page.fonts.label(query, _LABEL_COLUMNS) for query in view.queries]
        columns = [page.fonts.label(key, _LABEL_COLUMNS) for key in view.keys]
        upright = page.text_width(columns, points) > cell - _PAD
        return _Labels(rows, columns, 1, points, upright, positions=False)
    longest = max(len(view.queries), len(view.keys))
    spacing = page.text_width([str(longest)], _NUMBER_TYPE) + 2 * _PAD
    step = next(n * 10**power for power in count() for n in (1, 2, 5) if n * 10**power * cell >= spacing)
    numbers = [[str(n) for n in range(0, length, step)] for length in (len(view.queries), len(view.keys))]
    return _Labels(numbers[0], numbers[1], step, _NUMBER_TYPE, upright=False, positions=True)


def _draw_map(
    canvas: _Canvas, panel: _Panel, layout: _Layout, n: int, place: tuple[float, float, float, float]
) -> None:
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
    ax.tick_params(length=1.5 if labels.positions else 0, width=0.5, color=style.muted, pad=_PAD * 72 / 2)
    slant: dict[str, Any] = {**_UPRIGHT, "ha": "right", "va": "center"} if labels.upright else {}
    ax.set_xticks(range(0, columns, labels.step), labels.columns, **text, **slant)
    has_rows = layout.lefts[n] > 0
    ax.set_yticks(range(0, rows, labels.step) if has_rows else [], labels.rows if has_rows else [], **text)
    kind = " (position)" if labels.positions else ""
    if has_rows:
        canvas.upright(left - layout.lefts[n], bottom, height, (f"query{kind}", "query", ""), va="top")
    key = TextMetrics(tuple(canvas.families)).fit([f"key{kind}", "key"], _AXIS_TYPE, width) if kind else "key"
    canvas.text(left + width / 2, bottom - layout.below[n], key, _AXIS_TYPE, ha="center", va="bottom")
    if panel.title:
        canvas.text(left + width / 2, bottom + height + _PAD, panel.title, _TITLE_TYPE, ha="center", va="bottom")
    if panel.bar:
        tall = min(height, _MAX_BAR)
        canvas.color_bar(image, left + width + _BAR_GAP, bottom + height - tall, tall, panel.bar)


def _draw_values(ax: Axes, panel: _Panel, cell: float, extent: tuple[float, float, float, float]) -> AxesImage:
    if panel.scale.vmin == 0:
        values = drawn_map(panel.view, cell, _CELLS_PER_INCH)[0]
    else:
        values = _pooled_difference(panel.values, panel.view.masked, cell)
    return ax.imshow(values, extent=extent, cmap=panel.colors, norm=panel.scale, aspect="auto", interpolation="nearest")


def _draw_frame(ax: Axes, style: Style) -> None:
    ax.set_facecolor(style.background)
    ax.spines[:].set_color(style.muted)
    ax.spines[:].set_linewidth(0.5)


def _pooled_difference(values: np.ndarray, masked: np.ndarray, cell: float) -> np.ndarray:
    """Return a difference that can be drawn with cells of `cell` inches: of each dot the value farthest from 0."""
    above, below = (max_pool(signed, cell, _CELLS_PER_INCH)[0] for signed in (values, -values))
    pooled = np.where(above >= below, above, -below)
    return np.ma.masked_array(pooled, mask=~max_pool(~masked, cell, _CELLS_PER_INCH)[0])


def _paired(a: AttentionView, b: AttentionView) -> AttentionView:
    """Return the view of A with the labels of both where they differ, masked where both are."""
    from dataclasses import replace

    def pairs(ones: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
        return tuple(one if one == other else f"{one} | {other}" for one, other in zip(ones, others, strict=True))

    return replace(
        a, queries=pairs(a.queries, b.queries), keys=pairs(a.keys, b.keys), masked=a.masked & b.masked, is_causal=False
    )


# All heads


def _draw_grid(page: _Page, views: list[list[list[AttentionView]]]) -> _Drawing:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import FuncNorm, PowerNorm

    style, of_a = page.style, views[0]
    across, down = page.available
    names = [str(number) for number in of_a[0][0].layers] or [""]
    columns, rows = max(map(len, of_a)), len(of_a)
    left = _AXIS_TYPE * LINE + page.text_width(names, _NUMBER_TYPE) + 2 * _PAD
    below = _AXIS_TYPE * LINE + _NUMBER_TYPE * LINE + _PAD
    right = _bar_width(is_difference=len(views) == 2)
    pitch = min((across - left - right) / columns, (down - below - _OVERHANG) / rows, _MAX_PANEL)
    size = pitch * (1 - _PANEL_GAP)
    width, height = columns * pitch - (pitch - size), rows * pitch - (pitch - size)
    cell = size / max(of_a[0][0].weights.shape)
    if len(views) == 1:
        panels = [[drawn_map(view, cell, _CELLS_PER_INCH)[0] for view in of_layer] for of_layer in of_a]
    else:
        panels = [
            [
                _pooled_difference(a.weights - b.weights, a.masked & b.masked, cell)
                for a, b in zip(*of_both, strict=True)
            ]
            for of_both in zip(*views, strict=True)
        ]
    end = max(float(np.abs(panel).max()) for of_layer in panels for panel in of_layer) or 1.0
    if len(views) == 1:
        scale: Normalize = PowerNorm(0.5, 0, end)
        colors, meaning = style.colormap(), "attention weight (square-root scale)"
    else:
        scale = FuncNorm((_signed_root, _signed_square), -end, end)
        colors, meaning = style.diverging_colormap(), "A − B (square-root scale)"

    def draw(canvas: _Canvas) -> None:
        from matplotlib.patches import Rectangle

        ax = canvas.axes(left, below, width, height, xlim=(0, width), ylim=(height, 0))
        ax.set_axis_off()
        for i, of_layer in enumerate(panels):
            for j, panel in enumerate(of_layer):
                x, y = j * pitch, i * pitch
                extent = (x, x + size, y + size, y)
                ax.imshow(panel, extent=extent, aspect="auto", cmap=colors, norm=scale, interpolation="nearest")
                frame = Rectangle((x, y), size, size, fill=False, edgecolor=style.muted, linewidth=0.3, clip_on=False)
                ax.add_patch(frame)
        ax.set(xlim=(0, width), ylim=(height, 0))
        step = _step(page, columns, pitch)
        for j in range(0, columns if of_a[0][0].heads else 0, step):
            canvas.text(left + j * pitch + size / 2, below - _PAD, str(j), _NUMBER_TYPE, ha="center", va="top")
        for i in range(0, rows, max(1, math.ceil(_NUMBER_TYPE * _SPACING / pitch))):
            middle = below + height - i * pitch - size / 2
            canvas.text(left - _PAD, middle, names[i], _NUMBER_TYPE, ha="right", va="center_baseline")
        canvas.upright(0, below, height, ("layer", ""), va="top")
        canvas.text(left + width / 2, 0, "head", _AXIS_TYPE, ha="center", va="bottom")
        tall = min(height, _MAX_BAR)
        canvas.color_bar(ScalarMappable(scale, colors), left + width + _BAR_GAP, below + height - tall, tall, meaning)

    k = math.ceil(1 / (cell * _CELLS_PER_INCH) - 1e-9)
    farthest = "farthest from 0" if len(views) == 2 else "largest"
    note = f"Each dot is the {farthest} of {k}×{k} weights." if k > 1 else ""
    return _Drawing(left + width + right, below + height + _OVERHANG, draw, note)


def _signed_root(x: Any) -> Any:
    return np.sign(x) * np.sqrt(np.abs(x))


def _signed_square(x: Any) -> Any:
    return np.sign(x) * np.square(x)


def _step(page: _Page, number: int, pitch: float) -> int:
    """Return every how many heads have a number."""
    return max(1, math.ceil((page.text_width([str(number - 1)], _NUMBER_TYPE) + _PAD) / pitch))


# The scale


def _bar_width(*, is_difference: bool) -> float:
    """Return the width of a colour bar with its numbers, of three digits, and its meaning."""
    return _BAR_GAP + _BAR + _NUMBERS[is_difference] + _AXIS_TYPE * LINE


def _ticks(start: float, end: float, scale: Normalize, gap: float) -> list[float]:
    """Return round numbers between the ends of a scale, and the ends; none nearer to another than `gap` of it."""
    from matplotlib.ticker import MaxNLocator

    rounds = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(0, end)
    if (scale(end / 4) - scale(0)) / (1 - scale(0)) > 0.4:  # a square-root scale
        rounds = [end * share for share in (1 / 16, 1 / 4)]
        rounds = [float(f"{tick:.1g}") for tick in rounds]
    inner: list[float] = []
    for tick in sorted(map(float, rounds)):
        if scale(tick) - scale(inner[-1] if inner else 0) > gap and 1 - scale(tick) > gap:
            inner.append(tick)
    negative = [-tick for tick in reversed(inner)] + [start] if start < 0 else []
    middle = [0.0] if start == 0 or scale(0) > gap else []
    return [*negative, *middle, *inner, end]


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


# The selection, and its caption


def _width(width: str | float) -> float:
    """Return a width in inches."""
    if isinstance(width, str):
        if width not in WIDTHS:
            raise RegardError(f"width is {' or '.join(map(repr, WIDTHS))}, or millimetres, got {width!r}")
        return WIDTHS[width] / _MILLIMETRES
    millimetres = finite_number("width", width, positive=True)
    if not _MIN_WIDTH <= millimetres <= _MAX_WIDTH:
        raise RegardError(f"width is from {_MIN_WIDTH:g} to {_MAX_WIDTH:g} mm, got {millimetres:g}")
    return millimetres / _MILLIMETRES


def _for_each(value: Any, number: int, name: str) -> list[Any]:
    """Return a value for each source: one of its own, or the same for all."""
    if isinstance(value, int | np.integer | None):
        return [value] * number
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != number:
        raise RegardError(f"{name} is a number, or one for each of {number} sources, got {value!r}")
    return list(value)


def _view(source: Trace | AttentionView, chosen: dict[str, Any]) -> AttentionView:
    if isinstance(source, Trace):
        return select(source, **chosen)
    if any(chosen.values()):
        raise RegardError("a view is one map with its tokens: give figure no other selection")
    return source


def _every_head(source: Trace | AttentionView, batch: int, selection: dict[str, bool]) -> list[list[AttentionView]]:
    if not isinstance(source, Trace):
        raise RegardError("a figure of all heads is of traces, not of a view of one map")
    return [
        [each() for each in of_layer]
        for of_layer in lazy_heads(source, batch, selection["show_special_tokens"], selection["merge_subwords"])
    ]


def _check_shapes(views: list[list[list[AttentionView]]]) -> None:
    shapes = [[[view.weights.shape for view in of_layer] for of_layer in of_source] for of_source in views]
    if len(shapes) == 2 and shapes[0] != shapes[1]:
        (a, b), same = (found[0][0] for found in shapes), [len(of_layer) for of_layer in shapes[0]]
        if same != [len(of_layer) for of_layer in shapes[1]]:
            raise RegardError("A and B have different layers and heads, so they have no difference")
        raise RegardError(
            f"A has {a[0]} queries and {a[1]} keys, B has {b[0]} and {b[1]}: they have no difference; draw one of them"
        )


def _text_of(source: Trace | AttentionView, batch: int) -> str:
    return source.encodings[batch].text if isinstance(source, Trace) and len(source.encodings) > batch else ""


def _caption(
    views: list[AttentionView],
    texts: list[str],
    notes: Sequence[str],
    fonts: FontFallback,
    *,
    span: tuple[int, int] | None,
    all_heads: bool,
) -> str:
    """Return what a figure shows, in words."""

    def described(n: int, view: AttentionView) -> str:
        which = "every head" if all_heads else view.describe
        parts = [fonts.label(view.model, 60), which, *notes[n : n + 1]]
        return ", ".join(filter(None, parts))

    quoted = [f": “{fonts.label(text, _TEXT_COLUMNS)}”" if text else "" for text in texts]
    axes = "rows are queries, columns are keys"
    if len(views) == 1:
        of = described(0, views[0])
        said = [f"Attention weights{f' of {of}' if of else ''}{quoted[0]}; {axes}."]
    else:
        if quoted[0] == quoted[1]:
            quoted = [quoted[0], ""]
        said = [f"Attention weights; {axes}."]
        said += [_sentence(f"{'AB'[n]}: {described(n, view)}{quoted[n]}") for n, view in enumerate(views)]
        said.append("A − B is blue where A is larger and brown where B is.")
    if all_heads:
        said.append("Colours are on a square-root scale.")
    left_out = dict.fromkeys(token for view in views for token in view.special_tokens)
    if left_out:
        shares = [f"{view.special_mass.mean():.0%} of the attention" for view in views]
        if len(views) == 2:
            shares = [f"{shares[0]} in A", f"{shares[1].partition(' ')[0]} in B"]
        share = "" if all_heads else f", with {' and '.join(shares)}"
        said.append(f"Left out: {' and '.join(map(fonts.label, left_out))}{share}.")
    if span is not None:
        said.append(f"Only tokens {span[0]} to {span[1] - 1} are shown.")
    said.append(mask_note(views[0]).strip())
    return " ".join(filter(None, said))


def _sentence(text: str) -> str:
    return text if text.endswith((".”", "?”", "!”")) else f"{text}."


def _compose(page: _Page, drawing: _Drawing) -> Figure:
    """Return the figure of a drawing, in the middle of its width, above the caption."""
    from matplotlib.figure import Figure

    lines, below = page.caption_lines(drawing.note), page.caption_height(drawing.note)
    height = drawing.height + below + 2 * _EDGE
    made = Figure(figsize=(page.width, height), dpi=_DOTS_PER_INCH)
    families = list(page.fonts.families)
    middle = max(_EDGE, (page.width - drawing.width) / 2)
    drawing.draw(_Canvas(made, middle, _EDGE + below, page.style, families))
    canvas = _Canvas(made, _EDGE, _EDGE, page.style, families)
    for n, line in enumerate(lines):
        canvas.text(0, (len(lines) - n) * _CAPTION_TYPE * LINE, line, _CAPTION_TYPE, va="top")
    return made
