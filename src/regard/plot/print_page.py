"""The page of a figure for print: its sizes, text, colour bars and caption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.plot.fonts import FontFallback
from regard.plot.style import Style
from regard.plot.text_metrics import LINE, TextMetrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

# Lengths are in inches, type sizes in points.
MILLIMETRES = 25.4
_MAX_HEIGHT = 230.0  # millimetres: the height of a page, without its margins
DOTS_PER_INCH = 300  # of PNG
CELLS_PER_INCH = 150  # of a map: a cell is at least two dots of a PNG
EDGE, GAP, PAD = 0.03, 0.16, 0.04
AXIS_TYPE, NUMBER_TYPE, TITLE_TYPE, CAPTION_TYPE = 7.5, 6.5, 8.5, 7.5
SPACING = 1.12 / 72  # of labels, per point of their type
LONGEST_NOTE = "Each dot is the largest of 100×100 weights, in A − B the one farthest from 0."
_BAR, BAR_GAP, MAX_BAR = 0.075, 0.06, 2.2
_NUMBERS = (0.31, 0.38)  # beside a bar of weights, of differences
OVERHANG = 0.06  # of the number at the upper end of a bar
UPRIGHT: dict[str, Any] = {"rotation": 90, "rotation_mode": "anchor", "ha": "center"}


@dataclass(frozen=True, eq=False)
class Page:
    """What a figure is drawn on."""

    width: float
    fonts: FontFallback
    style: Style
    caption: str

    @property
    def available(self) -> tuple[float, float]:
        """The width and the height that the drawing may take."""
        return self.width - 2 * EDGE, _MAX_HEIGHT / MILLIMETRES - 2 * EDGE - self.caption_height(LONGEST_NOTE)

    def caption_lines(self, note: str) -> Sequence[str]:
        """The lines of the caption, with a note of how it is drawn."""
        text = f"{self.caption} {note}".strip() if self.caption else ""
        return self.fonts.metrics.wrap(text, CAPTION_TYPE, self.width - 2 * EDGE)

    def caption_height(self, note: str) -> float:
        """Return the height of the caption and of the gap above it, 0 without one."""
        lines = self.caption_lines(note)
        return len(lines) * CAPTION_TYPE * LINE + (2 * PAD if lines else 0.0)

    def text_width(self, texts: Sequence[str], points: float) -> float:
        """Return the width of the longest of some texts."""
        return self.fonts.metrics.max_width(texts, points)


class Drawing(NamedTuple):
    """The size of a drawing, what places it on a figure with its lower left corner, and a note for the caption."""

    width: float
    height: float
    draw: Callable[[Canvas], None]
    note: str


@dataclass(frozen=True, eq=False)
class Canvas:
    """A figure in inches from the lower left corner of a drawing."""

    figure: Figure
    x: float
    y: float
    style: Style
    families: list[str]

    def axes(self, left: float, bottom: float, width: float, height: float, **options: Any) -> Axes:
        """Return new axes of this place and size."""
        W, H = self.figure.get_size_inches()
        rectangle = ((self.x + left) / W, (self.y + bottom) / H, width / W, height / H)
        return self.figure.add_axes(rectangle, **options)

    def text(self, x: float, y: float, text: str, points: float, **options: Any) -> None:
        """Write a text at a place, as `Figure.text` does."""
        W, H = self.figure.get_size_inches()
        given = {"color": self.style.foreground, "family": self.families, "parse_math": False, **options}
        self.figure.text((self.x + x) / W, (self.y + y) / H, text, size=points, **given)

    def upright(self, x: float, y: float, height: float, texts: Sequence[str], **options: Any) -> None:
        """Write the first of some texts that is no longer than a height beside its middle, from below to above."""
        metrics = TextMetrics(tuple(self.families))
        text = next(text for text in texts if metrics.width(text, AXIS_TYPE) <= height or not text)
        self.text(x, y + height / 2, text, AXIS_TYPE, **UPRIGHT, **options)

    def color_bar(self, mappable: Any, left: float, bottom: float, height: float, label: str) -> None:
        """Draw a vertical bar with numbers and their meaning to its right."""
        scale = mappable.norm
        ticks = _ticks(scale.vmin, scale.vmax, scale, NUMBER_TYPE * LINE / height)
        cax = self.axes(left, bottom, _BAR, height)
        bar = self.figure.colorbar(mappable, cax=cax, ticks=ticks)
        bar.set_ticklabels([_number(tick) for tick in ticks])
        bar.minorticks_off()
        bar.outline.set_edgecolor(self.style.muted)
        bar.outline.set_linewidth(0.5)
        bar.ax.tick_params(labelsize=NUMBER_TYPE, length=1.5, width=0.5, pad=1.5, color=self.style.muted)
        at = left + _BAR + _NUMBERS[scale.vmin != 0] + AXIS_TYPE * LINE
        self.upright(at, bottom, height, (label, label.removeprefix("attention ").partition(" (")[0], ""), va="bottom")


def bar_width(*, is_difference: bool) -> float:
    """Return the width of a colour bar with its numbers, of three digits, and its meaning."""
    return BAR_GAP + _BAR + _NUMBERS[is_difference] + AXIS_TYPE * LINE


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


def compose(page: Page, drawing: Drawing) -> Figure:
    """Return the figure of a drawing, in the middle of its width, above the caption."""
    from regard.plot.notebook import NotebookFigure

    lines, below = page.caption_lines(drawing.note), page.caption_height(drawing.note)
    height = drawing.height + below + 2 * EDGE
    made = NotebookFigure(figsize=(page.width, height), dpi=DOTS_PER_INCH)
    families = list(page.fonts.families)
    middle = max(EDGE, (page.width - drawing.width) / 2)
    drawing.draw(Canvas(made, middle, EDGE + below, page.style, families))
    canvas = Canvas(made, EDGE, EDGE, page.style, families)
    for n, line in enumerate(lines):
        canvas.text(0, (len(lines) - n) * CAPTION_TYPE * LINE, line, CAPTION_TYPE, va="top")
    return made
