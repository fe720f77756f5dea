"""The plane on which words move: what is where, and how it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.plot.fonts import Lettering
from regard.plot.label_placement import placed
from regard.plot.style import Style
from regard.plot.text_metrics import Ruler
from regard.views.axis import rows_of_word
from regard.views.projection import project, stands_alone
from regard.views.vectors import TextVectors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Lengths are in inches, sizes of type in points.
_LABEL_TYPE, _FADED_TYPE, _AXIS_TYPE = 9.0, 7.5, 8.5
_LABEL_COLUMNS, TEXT_COLUMNS = 28, 70
_SMALLEST, _LARGEST = 4.8, 11.0  # the side of the plane
_ROOM = 26.0  # the area of the plane for each unit of area of its labels
MARKERS = "os^D"
_LINES: tuple[tuple[float, Sequence[float]], ...] = ((0, ()), (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
_MANY = 40  # words; above it points and arrows are finer
_EDGE = 0.4  # between the outermost points and the frame, where labels find room
AXIS_LABEL, _LEGEND_TYPE, LEGEND_LINE = 0.26, 8.5, 0.19
_LEGEND_MARK = 0.4  # before a name
_SHORTEST_ARROW, _SHORTEST_LEADER = 0.12, 0.14
_SAME, _RIM = 0.02, 4.5  # points that cover each other, in inches; how much larger the lower one is, in points


@dataclass(frozen=True, eq=False)
class Scene:
    """The words of all texts on one plane, a row for each; coordinates are those of `project`."""

    labels: tuple[str, ...]
    sizes: np.ndarray  # N 2, of the labels in inches
    count: int  # of texts
    text: np.ndarray  # N, which text a word is in
    focus: np.ndarray  # N, whether its movement is drawn
    before: np.ndarray  # N 2
    after: np.ndarray  # N 2
    explained: np.ndarray  # 2
    alone: bool  # whether the words have no others to stand among

    @classmethod
    def of(cls, texts: Sequence[TextVectors], letters: Lettering, ruler: Ruler, highlight: str | None) -> Scene:
        """Project the words of all texts together."""
        names = [label for text in texts for label in text.labels]
        wholes = [word for text in texts for word in text.words]
        focus = np.full(len(names), highlight is None)
        if highlight is not None:
            focus[list(rows_of_word(names, wholes, highlight))] = True
        labels = tuple(letters.label(name, _LABEL_COLUMNS) for name in names)
        points = np.where(focus, _LABEL_TYPE, _FADED_TYPE)
        sizes = [ruler.size(label, p) for label, p in zip(labels, points, strict=True)]
        original = np.concatenate([text.original for text in texts])
        contextual = np.concatenate([text.contextual for text in texts])
        before, after, explained = project(original, contextual)
        return cls(
            labels=labels,
            sizes=np.array(sizes) + 0.02,
            count=len(texts),
            text=np.repeat(np.arange(len(texts)), [len(text.labels) for text in texts]),
            focus=focus,
            before=before,
            after=after,
            explained=explained,
            alone=stands_alone(original, contextual),
        )

    @property
    def drawn(self) -> np.ndarray:
        """All points that are drawn, ``M 2``."""
        return np.concatenate([self.after, self.before[self.focus]])

    def page(self) -> tuple[float, float]:
        """Return a width and a height, in inches, in which the labels find room."""
        width = np.clip(np.sqrt(_ROOM * self.sizes.prod(axis=1).sum()), _SMALLEST, _LARGEST)
        across, down = np.ptp(self.drawn, axis=0)
        return float(width), float(width * np.clip(down / across if across > 0 else 0.6, 0.6, 1))

    def window(self, page: tuple[float, float]) -> tuple[np.ndarray, float]:
        """Return the point in the lower left corner of the page and the inches for a unit, the same on both axes."""
        low, high = self.drawn.min(axis=0), self.drawn.max(axis=0)
        with np.errstate(divide="ignore"):
            unit = float(np.min((np.array(page) - 2 * min(_EDGE, min(page) / 4)) / (high - low)))
        unit = unit if np.isfinite(unit) else 1.0
        return (low + high) / 2 - np.array(page) / 2 / unit, unit


def draw_frame(ax: Axes, style: Style) -> None:
    """Draw the frame and the cross through the middle."""
    ax.set(xticks=[], yticks=[], facecolor=style.background)
    ax.spines[:].set_color(style.faint)
    ax.axhline(0, color=style.faint, linewidth=0.6, zorder=0)
    ax.axvline(0, color=style.faint, linewidth=0.6, zorder=0)


def name_axes(ax: Axes, scene: Scene, page: tuple[float, float], left_out: int, ruler: Ruler, around: Style) -> None:
    """Write along the axes how much of the variance each shows, and how many labels are left out."""
    first, second = (f"{share:.0%}" for share in scene.explained)
    names = [f"first principal component: {first} of the variance", f"first component: {first}", first]
    if left_out:
        lost = f"{left_out} {'label' if left_out == 1 else 'labels'} left out"
        names = [
            f"{names[0]}; {lost} for want of room",
            *(f"{name}; {lost}" for name in names),
            lost,
            f"{left_out} left out",
        ]
    upright = [f"second principal component: {second}", f"second component: {second}", second]
    ink: dict[str, Any] = {"color": around.muted, "size": _AXIS_TYPE}
    ax.set_xlabel(ruler.fitting(names, _AXIS_TYPE, page[0]), loc="left", **ink)
    ax.set_ylabel(ruler.fitting(upright, _AXIS_TYPE, page[1]), loc="bottom", **ink)


def draw_legend(
    ax: Axes, texts: Sequence[TextVectors], letters: Lettering, ruler: Ruler, width: float, style: Style, around: Style
) -> None:
    """Say below the axes what the marks are, in `width` inches."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    before, after = _colours(0, len(texts), style) if len(texts) == 1 else (style.muted, style.muted)
    became = texts[0].became
    entries = [
        (Line2D([], [], marker="o", linestyle="", color=before, markerfacecolor=style.background), texts[0].was),
        (Line2D([], [], marker="o", linestyle="", color=after), became),
    ]
    if len(texts) > 1:
        for i, text in enumerate(texts):
            line = Line2D([], [], marker=MARKERS[i], linestyle=_LINES[i], color=style.several[i])
            entries.append((line, letters.label(text.text, TEXT_COLUMNS) or f"text {i}"))
    assert ax.figure is not None
    legend = ax.legend(
        [mark for mark, _ in entries],
        [ruler.fitting([name], _LEGEND_TYPE, width - _LEGEND_MARK) for _, name in entries],
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + ScaledTranslation(0, -AXIS_LABEL, ax.figure.dpi_scale_trans),
        borderaxespad=0,
        borderpad=0.2,
        prop={"family": list(letters.families), "size": _LEGEND_TYPE},
        labelcolor=around.foreground,
    )
    for name in legend.get_texts():
        name.set_parse_math(False)


def _colours(text: int, count: int, style: Style) -> tuple[str, str]:
    """Return the colours of a text's original and contextual points."""
    return (style.original, style.contextual) if count == 1 else (style.several[text],) * 2


def _covered(points: np.ndarray, scene: Scene) -> np.ndarray:
    """Return for each of `points`, in inches, how many later texts draw over it: it shows when it is larger."""
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
    over = (apart < _SAME) & scene.focus & (scene.text > scene.text[:, None])
    return np.asarray(sum(over[:, scene.text == text].any(axis=1).astype(int) for text in range(scene.count)))


def draw_words(ax: Axes, scene: Scene, page: tuple[float, float], style: Style) -> None:
    """Draw the points, and the arrows between them."""
    from matplotlib.patches import FancyArrowPatch

    corner, unit = scene.window(page)
    far = corner + np.array(page) / unit
    ax.set(xlim=(corner[0], far[0]), ylim=(corner[1], far[1]), autoscale_on=False)
    ax.set_aspect("equal", adjustable="box")
    size, width = (5.0, 0.9) if len(scene.labels) <= _MANY else (3.5, 0.6)
    starts, ends = (_covered(points * unit, scene) for points in (scene.before, scene.after))
    for text in range(scene.count):
        before_colour, after_colour = _colours(text, scene.count, style)
        here, marker = scene.text == text, MARKERS[text]
        faded, focus = here & ~scene.focus, here & scene.focus
        ax.plot(*scene.after[faded].T, marker, color=after_colour, alpha=0.3, markersize=4, zorder=2)
        for times in range(scene.count - text):
            larger: dict[str, Any] = {"marker": marker, "linestyle": "", "markersize": size + times * _RIM}
            shared = scene.before[focus & (starts == times)], scene.after[focus & (ends == times)]
            ax.plot(*shared[0].T, color=before_colour, mfc=style.background, zorder=3, **larger)
            ax.plot(*shared[1].T, color=after_colour, zorder=4, **larger)
        for start, end in zip(scene.before[focus], scene.after[focus], strict=True):
            if unit * np.linalg.norm(end - start) > _SHORTEST_ARROW:
                arrow = FancyArrowPatch(
                    start,
                    end,
                    arrowstyle="-|>",
                    mutation_scale=7 * size / 5,
                    shrinkA=3,
                    shrinkB=3,
                    linewidth=width,
                    linestyle=_LINES[text],
                    color=style.bar if scene.count == 1 else after_colour,
                    zorder=1,
                )
                ax.add_patch(arrow)


def draw_labels(ax: Axes, scene: Scene, page: tuple[float, float], letters: Lettering, style: Style) -> int:
    """Write each word beside where it ends, and return how many have no room."""
    from matplotlib.patheffects import withStroke

    corner, unit = scene.window(page)
    before, after = (scene.before - corner) * unit, (scene.after - corner) * unit
    # The words that move most are first to choose their places.
    order = np.lexsort((-np.linalg.norm(after - before, axis=1), ~scene.focus))
    centres = placed(
        after[order],
        scene.sizes[order],
        page,
        obstacles=np.concatenate([after, before[scene.focus]]),
        segments=np.stack([before, after], axis=1)[scene.focus],
    )
    for i, centre in zip(order, centres, strict=True):
        if centre is None:
            continue
        x, y = at = corner + np.array(centre) / unit
        if (np.abs(np.array(centre) - after[i]) - scene.sizes[i] / 2).max() > _SHORTEST_LEADER:
            ax.plot(*np.stack([scene.after[i], at]).T, "-", color=style.faint, linewidth=0.7, zorder=1)
        ax.text(
            x,
            y,
            scene.labels[i],
            size=_LABEL_TYPE if scene.focus[i] else _FADED_TYPE,
            color=style.foreground if scene.focus[i] else style.muted,
            ha="center",
            va="center",
            family=list(letters.families),
            parse_math=False,
            zorder=5,
            path_effects=[withStroke(linewidth=2, foreground=style.background)],
        )
    return centres.count(None)
