"""A training run as a figure: the loss, two measures of every head, and the maps of two heads, over the steps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.packages import needed
from regard.metrics import INDUCTION_CIRCUIT, METRICS, head_metrics, strongest_heads
from regard.metrics.layer_maps import layers_of
from regard.models.output import run_traced
from regard.plot import captions
from regard.plot.cells import draw_cells, draw_frame
from regard.plot.fonts import find_fonts
from regard.plot.page import Page
from regard.plot.style import Look, Style, get_style
from regard.plot.text_metrics import LINE
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.training.thinning import mean_losses, spread
from regard.training.training_run import Losses, TrainingRun
from regard.views.labels import head_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lengths are in inches.
_WIDTH, _LOSS, _MEASURE, _COLUMN_GAP = 6.84, 1.45, 1.45, 0.5
_LEFT, _END_LABELS, _CAPTION, _AXIS = 0.42, 0.46, 0.26, 0.36
_MAP_GAP, _MAP_LABEL = 0.12, 1.12
_MAX_CHECKPOINTS, _NUM_MAPS, _MAX_POINTS = 80, 5, 1000
_MAX_TOKENS = 512


@dataclass(frozen=True)
class _Seen:
    """What the checkpoints of a run do with one text."""

    encoding: Encoding
    steps: list[int]
    values: dict[str, np.ndarray]  # C L H of each measure
    traces: list[Trace]


@needed("a figure")
def training(run: TrainingRun | str | os.PathLike[str], text: str | None = None, *, theme: str = "light") -> Figure:
    """Draw how a model learned: its loss, what its heads do at each checkpoint, and the maps of two of them.

    Parameters
    ----------
    run : TrainingRun or path
        The folder of `regard.train`, with checkpoints.
    text : str, optional
        What the checkpoints read; by default the first held-out text of the run.
    theme : {"light", "dark"}

    Returns
    -------
    Figure
        The heads that end with the largest previous-token score are blue, those with the largest induction score
        vermilion. The maps are of the first of each, at checkpoints between which they change most.

    Raises
    ------
    RegardError
        The folder has no checkpoint; the run has no held-out text and none is given; the text has more than 512
        tokens; or there is no such theme.
    """
    style = get_style(theme)
    run = run if isinstance(run, TrainingRun) else TrainingRun(run)
    seen = _look(run, text)
    fonts = find_fonts([run.name, seen.encoding.text])
    strong = {name: strongest_heads(name, seen.values[name][-1]) for name in INDUCTION_CIRCUIT}
    mapped = list(dict.fromkeys(heads[0] for heads in strong.values() if heads))
    shown = _telling(seen, mapped)
    note = (
        f"The measures are the mean weights of each head on {captions.quoted(seen.encoding.text, fonts, 60)}. "
        "Dotted lines: the steps of the maps."
    )
    side = (_WIDTH - _MAP_LABEL - _MAP_GAP * (_NUM_MAPS - 1)) / _NUM_MAPS
    maps = _CAPTION + len(mapped) * (side + _MAP_GAP) if mapped else 0.0
    top = 2 * _CAPTION + _LOSS + _MEASURE + 2 * _AXIS + 0.1 + maps
    look = Look(fonts, style)
    with look.rc_context():
        title = f"Training of {fonts.label(run.name, 60)}"
        page = Page.new((_WIDTH, top), look, title=title, note=note)
        top -= _CAPTION + _LOSS
        axes = [page.axes(_LEFT, top, _WIDTH - _LEFT - _END_LABELS, _LOSS)]
        _draw_loss(axes[0], run.losses(), max(seen.steps[-1], 1), style)
        top -= _AXIS + _CAPTION + _MEASURE
        width = (_WIDTH - _COLUMN_GAP) / 2 - _LEFT
        for n, name in enumerate(INDUCTION_CIRCUIT):
            axes.append(page.axes(_LEFT + n * (width + _LEFT + _COLUMN_GAP), top, width - _END_LABELS, _MEASURE))
            _draw_measure(axes[-1], seen, name, strong, style)
        for ax in axes:
            for step in shown:
                ax.axvline(step, color=style.muted, linewidth=0.7, linestyle=(0, (1, 2)), zorder=0)
        top -= _AXIS + 0.1 + _CAPTION + side
        colors = _colors(strong, style)
        for row, at in enumerate(mapped):
            y = top - row * (side + _MAP_GAP)
            names = [METRICS[name].title.lower() for name, heads in strong.items() if heads and heads[0] == at]
            page.text(0, y + side / 2, head_label(*at), color=colors[at], va="bottom", weight="bold")
            below = {"size": look.medium.number, "color": style.muted, "va": "top", "linespacing": LINE * 72}
            page.text(0, y + side / 2, "\n".join(names), **below)
            for n, step in enumerate(shown):
                ax = page.axes(_MAP_LABEL + n * (side + _MAP_GAP), y, side, side)
                _draw_map(ax, seen.traces[seen.steps.index(step)], at, look)
                if row == 0:
                    ax.set_title(f"step {step:,}", color=style.muted, loc="center")
    return page.figure


def _look(run: TrainingRun, text: str | None) -> _Seen:
    """Run the checkpoints on a text."""
    steps = spread(list(run.checkpoints), _MAX_CHECKPOINTS)
    traces, metrics = [], []
    for step in steps:
        model = run.load(step)
        encoding = run.encode(model, text)
        if len(encoding) > _MAX_TOKENS:
            raise RegardError(f"the figure of a run takes a text of at most {_MAX_TOKENS} tokens, got {len(encoding)}")
        traces.append(run_traced(model, encoding, Trace(maps=True, only="*attn.weights")))
        metrics.append(head_metrics(traces[-1]))
    return _Seen(
        encoding, steps, {name: np.stack([x.values[name][0] for x in metrics]) for name in INDUCTION_CIRCUIT}, traces
    )


def _telling(seen: _Seen, heads: Sequence[tuple[int, int]]) -> list[int]:
    """Return the steps of a few checkpoints, closer to each other where the measures of some heads change."""
    moved = np.zeros(len(seen.steps))
    for layer, head in heads:
        for values in seen.values.values():
            moved[1:] += np.abs(np.diff(np.nan_to_num(values[:, layer, head])))
    even = np.diff(seen.steps, prepend=seen.steps[0]) / max(1, seen.steps[-1] - seen.steps[0])
    way = np.cumsum(moved / max(moved.sum(), 1e-9) + 0.25 * even)
    places = np.searchsorted(way, np.linspace(0, way[-1], _NUM_MAPS) - 1e-9)
    return [seen.steps[n] for n in dict.fromkeys(places.tolist())]


def _colors(strong: dict[str, list[tuple[int, int]]], style: Style) -> dict[tuple[int, int], str]:
    """Return the colour of each head that stands out: that of the first measure in which it does."""
    by_measure = zip(INDUCTION_CIRCUIT, (style.original, style.contextual), strict=True)
    colors: dict[tuple[int, int], str] = {}
    for name, color in by_measure:
        for at in strong[name]:
            colors.setdefault(at, color)
    return colors


def _draw_loss(ax: Axes, losses: Losses, end: int, style: Style) -> None:
    steps, values, size = mean_losses(losses.steps, losses.values, _MAX_POINTS)
    unit = "nats" if size == 1 else f"nats, mean of {size} steps"
    _frame(ax, f"Loss, {unit}", end)
    if not values:
        ax.text(0.5, 0.5, "no losses in the folder of this run", transform=ax.transAxes, ha="center", color=style.muted)
        ax.set_yticks([])
        return
    ax.plot(steps, values, color=style.bar)
    ax.plot(
        losses.evaluation_steps, losses.evaluation_values, "o", color=style.foreground, markersize=3.0, clip_on=False
    )
    ax.set_ylim(0, 1.05 * max([*values, *losses.evaluation_values]))
    if losses.evaluation_values:
        ax.text(1.0, 1.06, "● held out", transform=ax.transAxes, ha="right")


def _draw_measure(ax: Axes, seen: _Seen, name: str, strong: dict[str, list[tuple[int, int]]], style: Style) -> None:
    values = seen.values[name]
    colors = _colors(strong, style)
    _frame(ax, METRICS[name].title, seen.steps[-1])
    ax.set(ylim=(0, 1), yticks=(0, 0.5, 1))
    for at in np.ndindex(values.shape[1:]):
        line: dict[str, Any] = (
            {"color": colors[at], "linewidth": 1.7, "zorder": 3} if at in colors else {"color": style.faint}
        )
        ax.plot(seen.steps, values[:, *at], clip_on=False, **line)
    if not np.isfinite(values).any():
        ax.text(0.5, 0.5, "no token repeats", transform=ax.transAxes, ha="center", color=style.muted)
    named = sorted((at for at in strong[name] if np.isfinite(values[-1][at])), key=lambda at: -values[-1][at])
    for at, y in zip(named, _apart([float(values[-1][at]) for at in named], 0.12), strict=True):
        ax.annotate(
            head_label(*at),
            (seen.steps[-1], y),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=colors[at],
            annotation_clip=False,
        )


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """Return places at least `gap` apart and as near as they can be to the given ones, which descend."""
    groups: list[list[float]] = []  # of labels that touch: each as if all its labels stood where its first does
    for number, place in enumerate(places):
        groups.append([place + number * gap])
        while len(groups) > 1 and sum(groups[-1]) / len(groups[-1]) > sum(groups[-2]) / len(groups[-2]):
            groups[-2:] = [groups[-2] + groups[-1]]
    firsts = [sum(group) / len(group) for group in groups for _ in group]
    return [first - number * gap for number, first in enumerate(firsts)]


def _frame(ax: Axes, title: str, end: int) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.set_xlim(0, max(end, 1))
    ax.set_title(title)
    ax.spines[["top", "right"]].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
    ax.set_xlabel("step", labelpad=1)


def _draw_map(ax: Axes, trace: Trace, at: tuple[int, int], look: Look) -> None:
    from matplotlib.colors import Normalize

    layer, head = at
    weights = layers_of(trace, 0)[layer].tile(head, None, None)
    draw_cells(ax, np.asarray(weights), look.style.colormap(), Normalize(0, 1))
    draw_frame(ax, look)
    ax.set(xticks=[], yticks=[])
