"""The maps of all heads in panels, a row for each layer, on one square-root scale; of two traces their differences.

The square root makes the patterns of heads with small and with large weights visible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from regard.plot import captions, color_bar as bars
from regard.plot.cells import cells_per_dot, draw_cells, pool
from regard.plot.page import Page
from regard.plot.style import Look
from regard.plot.text_metrics import LINE
from regard.views.selection import AttentionView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Heads: TypeAlias = "Sequence[Sequence[Callable[[], AttentionView]]]"
"""What returns the map of each head of each layer; see `lazy_heads`."""

_GAP = 0.14  # between panels, as a share of a panel and its gap
_SHARE_BAR = 0.05  # inches


class HeadPanels:
    """The panels of one source, or of the differences of two.

    Parameters
    ----------
    sources : one or two of Heads
    available : (float, float)
        The width and the height that everything may take, in inches.
    pitch : (float, float)
        The least and the most from a panel to the next.
    with_shares : bool
        Write below each panel the share of the special tokens that are left out.
    """

    def __init__(
        self,
        sources: Sequence[Heads],
        available: tuple[float, float],
        pitch: tuple[float, float],
        look: Look,
        *,
        with_shares: bool = False,
    ) -> None:
        from matplotlib.colors import FuncNorm, Normalize, PowerNorm

        self.look, medium, metrics = look, look.medium, look.metrics
        of_a = sources[0]
        first, rows, columns = of_a[0][0](), len(of_a), max(map(len, of_a))
        self.layers, self.heads = [str(layer) for layer in first.layers] or [""], columns if first.heads else 0
        self.room_left = medium.small * LINE + metrics.max_width(self.layers, medium.number) + 2 * medium.pad
        self.room_above = (medium.small + medium.number) * LINE + 2 * medium.pad
        self.room_below = medium.number * LINE / 2  # half of the number at the end of the bar
        self.room_right = 2 * medium.pad + bars.room_beside(look, signed=len(sources) == 2)
        share = medium.number * LINE if with_shares else 0.0
        across, down = available[0] - self.room_left - self.room_right, available[1] - self.room_above - self.room_below
        self.pitch = min(max(min(across / columns, down / rows - share), pitch[0]), pitch[1])
        self.panel, self.down = self.pitch * (1 - _GAP), self.pitch + share
        self.width, self.height = columns * self.pitch - _GAP * self.pitch, rows * self.down - _GAP * self.pitch
        self.k = cells_per_dot(self.panel / max(first.weights.shape), medium)
        self.panels: list[list[np.ndarray]] = []
        self.shares: list[list[float]] = []
        for of_layer in zip(*sources, strict=True):
            drawn = [self._pool([each() for each in of_head]) for of_head in zip(*of_layer, strict=True)]
            self.panels.append([values for values, _ in drawn])
            self.shares.append([share for _, share in drawn] if with_shares else [])
        end = max(float(np.abs(panel).max()) for of_layer in self.panels for panel in of_layer) or 1.0
        self.scale: Normalize = PowerNorm(0.5, 0, end)
        self.colors, meaning = look.style.colormap(), captions.SHORT_WEIGHT
        self.note = captions.pooled(self.k, signed=len(sources) == 2)
        if len(sources) == 2:
            self.scale = FuncNorm((_signed_root, _signed_square), -end, end)
            self.colors, meaning = look.style.diverging_colormap(), "A − B"
        self.bar = min(self.height, bars.LENGTH)
        meanings = [*captions.on_square_root_scale(meaning), ""]
        self.meaning = metrics.fit(meanings, medium.small, self.bar)

    @property
    def size(self) -> tuple[float, float]:
        """The width and the height of everything."""
        return self.room_left + self.width + self.room_right, self.height + self.room_above + self.room_below

    def _pool(self, views: Sequence[AttentionView]) -> tuple[np.ndarray, float]:
        """Return the map of a panel, and the share of the special tokens in the first of `views`."""
        values, masked = views[0].weights, views[0].masked
        if len(views) == 2:
            values, masked = values - views[1].weights, masked & views[1].masked
        return pool(values, masked, self.k), float(views[0].special_mass.mean())

    def draw(self, page: Page) -> None:
        """Draw everything in the space of a page."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.patches import Rectangle

        medium, size = self.look.medium, self.panel
        limits = {"xlim": (0, self.width), "ylim": (self.height, 0)}
        ax = page.axes(self.room_left, self.room_below, self.width, self.height, **limits)
        ax.set_axis_off()
        line: dict[str, Any] = {"edgecolor": self.look.frame, "linewidth": medium.line, "clip_on": False}
        for row, of_layer in enumerate(self.panels):
            for column, values in enumerate(of_layer):
                x, y = column * self.pitch, row * self.down
                draw_cells(ax, values, self.colors, self.scale, (x, x + size, y + size, y))
                ax.add_patch(Rectangle((x, y), size, size, fill=False, **line))
                if self.shares[row]:
                    self._draw_share(ax, x, y + size, self.shares[row][column])
        ax.set(**limits)
        self._draw_names(page)
        left, bottom = self.room_left + self.width + 2 * medium.pad, self.room_below + self.height - self.bar
        cax = page.axes(left, bottom, bars.THICKNESS, self.bar)
        mappable = ScalarMappable(self.scale, self.colors)
        bars.color_bar(cax, mappable, [self.meaning], self.look, length=self.bar, beside=True)

    def _draw_names(self, page: Page) -> None:
        medium, metrics, top = self.look.medium, self.look.metrics, self.room_below + self.height
        text: dict[str, Any] = {"size": medium.number, "va": "center_baseline"}
        for row in range(0, len(self.layers), math.ceil(medium.number * LINE / self.down)):
            y = top - row * self.down - self.panel / 2
            page.text(self.room_left - medium.pad, y, self.layers[row], ha="right", **text)
        text, top = {"size": medium.number, "ha": "center", "va": "bottom"}, top + medium.pad
        step = math.ceil((metrics.width(str(self.heads), medium.number) + medium.pad) / self.pitch)
        for column in range(0, self.heads, step):
            page.text(self.room_left + column * self.pitch + self.panel / 2, top, str(column), **text)
        top += medium.number * LINE + medium.pad / 2
        if self.heads:
            page.name_axis(self.room_left + self.width / 2, top, ["head"])
        if self.layers[0]:
            page.name_axis(0, self.room_below + self.height / 2, ["layer"], self.height, upright=True)

    def _draw_share(self, ax: Axes, x: float, y: float, share: float) -> None:
        """Draw the share of the special tokens below a panel: a bar, and the number beside it."""
        from matplotlib.patches import Rectangle

        points = min(max(self.panel * 9, self.look.medium.smallest), self.look.medium.number)
        width, middle = self.panel - points * 0.037, y + points * LINE / 2 + 0.01
        for length, color in ((width, self.look.style.faint), (width * share, self.look.style.muted)):
            corner = (x, middle - _SHARE_BAR / 2)
            ax.add_patch(Rectangle(corner, length, _SHARE_BAR, color=color, linewidth=0, clip_on=False))
        at = x + self.panel, middle
        ax.text(*at, f"{share:.0%}", size=points, color=self.look.style.muted, ha="right", va="center_baseline")


def _signed_root(x: Any) -> Any:
    return np.sign(x) * np.sqrt(np.abs(x))


def _signed_square(x: Any) -> Any:
    return np.sign(x) * np.square(x)
