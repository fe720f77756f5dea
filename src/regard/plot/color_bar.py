"""The colour bar: below a map or beside it, with round numbers, the ends of its scale, and its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from regard.plot.style import Look, Medium
from regard.plot.text_metrics import LINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.transforms import Affine2DBase

LENGTH, THICKNESS = 2.3, 0.08  # inches; the length at most
_MARK = 1.5 / 72  # the marks at its numbers, and the gaps on both sides of a number
_SLACK = 0.04


def room_below(medium: Medium) -> float:
    """Return the height of a bar below a map, with numbers and meaning, in inches."""
    return THICKNESS + 3 * _MARK + (medium.number + medium.small) * LINE + _SLACK


def room_beside(look: Look, *, signed: bool) -> float:
    """Return the width of a bar beside a map, with numbers of three digits and meaning, in inches."""
    numbers = look.metrics.width("−0.999" if signed else "0.999", look.medium.number)
    return THICKNESS + 3 * _MARK + numbers + look.medium.small * LINE


def bar_below(ax: Axes, drop: float, mappable: ScalarMappable, label: str, look: Look, *, beyond: bool) -> None:
    """Draw a bar `drop` inches below a map on a screen; see `color_bar`."""
    from matplotlib.transforms import ScaledTranslation

    figure = ax.get_figure(root=True)
    assert figure is not None
    inches = figure.dpi_scale_trans + ScaledTranslation(0, 0, cast("Affine2DBase", ax.transAxes))
    cax = ax.inset_axes((0, -drop - THICKNESS, LENGTH, THICKNESS), transform=inches)
    color_bar(cax, mappable, [label], look, beyond=beyond)


def color_bar(
    cax: Axes,
    mappable: ScalarMappable,
    labels: Sequence[str],
    look: Look,
    *,
    length: float = LENGTH,
    beside: bool = False,
    beyond: bool = False,
) -> None:
    """Draw a bar of this length into `cax`, with the first of `labels` that fits as its meaning.

    With `beyond` there are larger values, which have the colour of the end.
    """
    medium, metrics = look.medium, look.metrics
    gap = (medium.number * LINE if beside else metrics.width("0.999", medium.number) + _SLACK) / length
    ticks = _ticks(cast("Normalize", mappable.norm), gap)
    figure = cax.get_figure(root=True)
    assert figure is not None
    bar = figure.colorbar(mappable, cax=cax, ticks=ticks, orientation="vertical" if beside else "horizontal")
    numbers = [f"{tick:.3g}".replace("-", "−") for tick in ticks]
    bar.set_ticklabels([*numbers[:-1], f"≥ {numbers[-1]}" if beyond else numbers[-1]])
    bar.minorticks_off()
    bar.outline.set(edgecolor=look.frame, linewidth=medium.line)
    label = metrics.fit([*labels, ""], medium.small, length if beside else float("inf"))
    bar.set_label(label, color=look.names, loc="center" if beside else "left", labelpad=_MARK * 72)
    mark: dict[str, Any] = {"length": _MARK * 72, "pad": _MARK * 72, "width": medium.line, "color": look.frame}
    bar.ax.tick_params(labelcolor=look.style.foreground, **mark)


def _ticks(scale: Normalize, gap: float) -> list[float]:
    """Return round numbers between the ends of a scale, and the ends; none nearer to another than `gap` of it."""
    from matplotlib.ticker import MaxNLocator

    start, end = float(scale.vmin or 0), float(scale.vmax or 1)
    rounds = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(0, end)
    if (scale(end / 4) - scale(0)) / (1 - scale(0)) > 0.4:  # a square-root scale
        rounds = [float(f"{end * share:.1g}") for share in (1 / 16, 1 / 4)]
    inner: list[float] = []
    for tick in sorted(map(float, rounds)):
        if scale(tick) - scale(inner[-1] if inner else 0) > gap and 1 - scale(tick) > gap:
            inner.append(tick)
    negative = [-tick for tick in reversed(inner)] + [start] if start < 0 else []
    middle = [0.0] if start == 0 or scale(0) > gap else []
    return [*negative, *middle, *inner, end]
