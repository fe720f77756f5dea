"""The plane of a movement plot: points, labels, legend and axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.plot.cells import draw_frame
from regard.plot.label_placement import gaps, place_labels
from regard.plot.style import Look
from regard.views.axis import rows_of_word
from regard.views.projection import is_degenerate, project, tokens_to_fit
from regard.views.vectors import TextVectors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Lengths are in inches, type sizes in points.
_LABEL_COLUMNS, TEXT_COLUMNS = 28, 70
_MIN_SIDE, _MAX_SIDE = 4.8, 11.0
_AREA_PER_LABEL_AREA = 26.0  # of the plane
_NEAR, _GROWTH = 0.2, 1.15  # a plane grows until every label is so near to its point; by this factor
MARKERS = "os^D"
_LINES: tuple[tuple[float, Sequence[float]], ...] = ((0, ()), (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
_MANY_WORDS = 40  # more have smaller points and arrows
_EDGE = 0.4  # between the outermost points and the frame, for labels
AXIS_LABEL, LEGEND_LINE = 0.26, 0.19
_LEGEND_MARK = 0.4  # width of the marker
_MIN_ARROW, _MIN_LEADER = 0.12, 0.14
_SAME_PLACE = 0.02  # maximum distance of points that cover each other
_RING = 4.5  # by which the marker of a covered point is larger, in points


@dataclass(frozen=True, eq=False)
class Scene:
    """The words of all texts on one plane, one row each, in the coordinates of `project`."""

    labels: tuple[str, ...]
    sizes: np.ndarray  # N 2, of the labels in inches
    num_texts: int
    text: np.ndarray  # N, the index of the text
    focus: np.ndarray  # N, whether its movement is drawn
    before: np.ndarray  # N 2
    after: np.ndarray  # N 2
    explained_variance_ratio: np.ndarray  # 2
    is_degenerate: bool  # see `regard.views.projection`
    sinks: tuple[str, ...]  # the labels of words that are neither fitted nor drawn: their vectors are far too long
    fits_all: bool  # whether the plane is fitted to all words that are drawn, special tokens too

    @classmethod
    def from_texts(cls, texts: Sequence[TextVectors], look: Look, highlight: str | None) -> Scene:
        """Project the words of all texts together; sinks are left out, unless `highlight` asks for them."""
        original = np.concatenate([text.original for text in texts])
        contextual = np.concatenate([text.contextual for text in texts])
        names = [label for text in texts for label in text.labels]
        wholes = [word for text in texts for word in text.words]
        focus, sinks = np.full(len(names), highlight is None), np.concatenate([text.sinks for text in texts])
        if highlight is not None:
            focus[list(rows_of_word(names, wholes, highlight))] = True
            sinks &= ~focus
        fitted = tokens_to_fit(np.concatenate([text.special for text in texts]), sinks)
        before, after, ratio = project(original, contextual, fitted)
        shown = fitted | ~sinks
        labels = [look.fonts.label(name, _LABEL_COLUMNS) for name in names]
        points = np.where(focus, look.medium.small, look.medium.number)
        sizes = [look.metrics.size(label, p) for label, p in zip(labels, points, strict=True)]
        return cls(
            labels=tuple(label for label, is_shown in zip(labels, shown, strict=True) if is_shown),
            sizes=np.array(sizes)[shown] + 0.02,
            num_texts=len(texts),
            text=np.repeat(np.arange(len(texts)), [len(text.labels) for text in texts])[shown],
            focus=focus[shown],
            before=before[shown],
            after=after[shown],
            explained_variance_ratio=ratio,
            is_degenerate=is_degenerate(original[fitted], contextual[fitted]),
            sinks=tuple(label for label, is_shown in zip(labels, shown, strict=True) if not is_shown),
            fits_all=bool(fitted[shown].all()),
        )

    @property
    def drawn(self) -> np.ndarray:
        """All points, ``M 2``."""
        return np.concatenate([self.after, self.before[self.focus]])

    def size(self) -> tuple[float, float]:
        """Return a width and a height that have space for the labels, beside their points if that is possible."""
        width = np.clip(np.sqrt(_AREA_PER_LABEL_AREA * self.sizes.prod(axis=1).sum()), _MIN_SIDE, _MAX_SIDE)
        across, down = np.ptp(self.drawn, axis=0)
        height = np.clip(down / across if across > 0 else 0.6, 0.6, 1)
        count = 1 + int(np.log(_MAX_SIDE / width) / np.log(_GROWTH)) if len(self.labels) <= _MANY_WORDS else 1
        sizes = [(float(w), float(w * height)) for w in width * _GROWTH ** np.arange(count)]
        return min(sizes, key=self._far_labels)

    def _far_labels(self, size: tuple[float, float]) -> int:
        """Return how many labels are far from their point, or nearer to another, on a plane of this size."""
        corner, unit = self.window(size)
        points, drawn = (self.after - corner) * unit, (self.drawn - corner) * unit
        far = 0
        for i, centre in self.place_labels(size):
            own, nearest = (gaps(np.array(centre or np.inf), self.sizes[i], at).min() for at in (points[i], drawn))
            far += centre is None or own > min(_NEAR, nearest + 1e-9)
        return far

    def place_labels(self, size: tuple[float, float]) -> list[tuple[int, tuple[float, float] | None]]:
        """Return the index of each label and its centre in inches; None where no place is free.

        Words that move most are placed first.
        """
        corner, unit = self.window(size)
        before, after = (self.before - corner) * unit, (self.after - corner) * unit
        order = np.lexsort((-np.linalg.norm(after - before, axis=1), ~self.focus))
        centres = place_labels(
            after[order],
            self.sizes[order],
            size,
            obstacles=np.concatenate([after, before[self.focus]]),
            segments=np.stack([before, after], axis=1)[self.focus],
        )
        return list(zip(order.tolist(), centres, strict=True))

    def window(self, size: tuple[float, float]) -> tuple[np.ndarray, float]:
        """Return the coordinates of the lower left corner of the plane, and the inches per unit, equal on both axes."""
        low, high = self.drawn.min(axis=0), self.drawn.max(axis=0)
        with np.errstate(divide="ignore"):
            unit = float(np.min((np.array(size) - 2 * min(_EDGE, min(size) / 4)) / (high - low)))
        unit = unit if np.isfinite(unit) else 1.0
        return (low + high) / 2 - np.array(size) / 2 / unit, unit


class Plane:
    """A scene on axes of a width and a height in inches; `outer` is the look outside of the axes."""

    def __init__(self, ax: Axes, scene: Scene, size: tuple[float, float], look: Look, outer: Look) -> None:
        self.ax, self.scene, self.size, self.look, self.outer = ax, scene, size, look, outer
        self.corner, self.unit = scene.window(size)

    def draw_frame(self) -> None:
        """Draw the frame and the axes through 0."""
        self.ax.set(xticks=[], yticks=[])
        draw_frame(self.ax, self.look)
        for line in (self.ax.axhline, self.ax.axvline):
            line(0, color=self.look.style.faint, linewidth=0.6, zorder=0)

    def label_axes(self, left_out: int) -> None:
        """Label the axes with their share of the variance, and with the number of labels left out."""
        first, second = (f"{share:.0%}" for share in self.scene.explained_variance_ratio)
        names = [f"first principal component: {first} of the variance", f"first component: {first}", first]
        if left_out:
            lost = f"{left_out} {'label' if left_out == 1 else 'labels'} left out"
            names = [
                f"{names[0]}; {lost} for lack of space",
                *(f"{name}; {lost}" for name in names),
                lost,
                f"{left_out} left out",
            ]
        upright = [f"second principal component: {second}", f"second component: {second}", second]
        ink: dict[str, Any] = {"color": self.outer.style.muted, "size": self.look.medium.small}
        self.ax.set_xlabel(self.look.fonts.metrics.fit(names, self.look.medium.small, self.size[0]), loc="left", **ink)
        self.ax.set_ylabel(
            self.look.fonts.metrics.fit(upright, self.look.medium.small, self.size[1]), loc="bottom", **ink
        )

    def draw_legend(self, texts: Sequence[TextVectors]) -> None:
        """Draw a legend of the markers below the axes."""
        from matplotlib.lines import Line2D
        from matplotlib.transforms import ScaledTranslation

        style = self.look.style
        before, after = self._colors(0) if len(texts) == 1 else (style.muted, style.muted)
        entries = [
            (Line2D([], [], marker="o", linestyle="", color=before, mfc=style.background), texts[0].original_label),
            (Line2D([], [], marker="o", linestyle="", color=after), texts[0].contextual_label),
        ]
        if len(texts) > 1:
            for i, text in enumerate(texts):
                line = Line2D([], [], marker=MARKERS[i], linestyle=_LINES[i], color=style.texts[i])
                entries.append((line, self.look.fonts.label(text.text, TEXT_COLUMNS) or f"text {i}"))
        assert self.ax.figure is not None
        below = ScaledTranslation(0, -AXIS_LABEL, self.ax.figure.dpi_scale_trans)
        width = self.size[0] - _LEGEND_MARK
        self.ax.legend(
            [mark for mark, _ in entries],
            [self.look.fonts.metrics.fit([name], self.look.medium.small, width) for _, name in entries],
            loc="upper left",
            bbox_to_anchor=(0, 0),
            bbox_transform=self.ax.transAxes + below,
            borderaxespad=0,
            borderpad=0.2,
            labelcolor=self.outer.style.foreground,
        )

    def _colors(self, text: int) -> tuple[str, str]:
        """Return the colours of the original and the contextual points of a text."""
        style = self.look.style
        return (style.original, style.contextual) if self.scene.num_texts == 1 else (style.texts[text],) * 2

    def _covered(self, points: np.ndarray) -> np.ndarray:
        """Return how many later texts cover each of `points`: a larger marker stays visible."""
        scene = self.scene
        apart = self.unit * np.linalg.norm(points[:, None] - points[None], axis=-1)
        over = (apart < _SAME_PLACE) & scene.focus & (scene.text > scene.text[:, None])
        return np.asarray(sum(over[:, scene.text == text].any(axis=1).astype(int) for text in range(scene.num_texts)))

    def draw_words(self) -> None:
        """Draw the points, and the arrows between them."""
        from matplotlib.patches import FancyArrowPatch

        ax, scene, style = self.ax, self.scene, self.look.style
        far = self.corner + np.array(self.size) / self.unit
        ax.set(xlim=(self.corner[0], far[0]), ylim=(self.corner[1], far[1]), autoscale_on=False)
        ax.set_aspect("equal", adjustable="box")
        marker_size, width = (5.0, 0.9) if len(scene.labels) <= _MANY_WORDS else (3.5, 0.6)
        starts, ends = (self._covered(points) for points in (scene.before, scene.after))
        for text in range(scene.num_texts):
            before_color, after_color = self._colors(text)
            here, marker = scene.text == text, MARKERS[text]
            faded, focus = here & ~scene.focus, here & scene.focus
            ax.plot(*scene.after[faded].T, marker, color=after_color, alpha=0.3, markersize=4, zorder=2)
            for times in range(scene.num_texts - text):
                larger: dict[str, Any] = {"marker": marker, "linestyle": "", "markersize": marker_size + times * _RING}
                shared = scene.before[focus & (starts == times)], scene.after[focus & (ends == times)]
                ax.plot(*shared[0].T, color=before_color, mfc=style.background, zorder=3, **larger)
                ax.plot(*shared[1].T, color=after_color, zorder=4, **larger)
            for start, end in zip(scene.before[focus], scene.after[focus], strict=True):
                if self.unit * np.linalg.norm(end - start) > _MIN_ARROW:
                    arrow = FancyArrowPatch(
                        start,
                        end,
                        arrowstyle="-|>",
                        mutation_scale=7 * marker_size / 5,
                        shrinkA=3,
                        shrinkB=3,
                        linewidth=width,
                        linestyle=_LINES[text],
                        color=style.bar if scene.num_texts == 1 else after_color,
                        zorder=1,
                    )
                    ax.add_patch(arrow)

    def draw_labels(self) -> int:
        """Label each word at its contextual point, and return the number of labels without a free place."""
        from matplotlib.patheffects import withStroke

        scene, style = self.scene, self.look.style
        after = (scene.after - self.corner) * self.unit
        left_out = 0
        for i, centre in scene.place_labels(self.size):
            if centre is None:
                left_out += 1
                continue
            x, y = at = self.corner + np.array(centre) / self.unit
            if (np.abs(np.array(centre) - after[i]) - scene.sizes[i] / 2).max() > _MIN_LEADER:
                self.ax.plot(*np.stack([scene.after[i], at]).T, "-", color=style.bar, linewidth=0.6, zorder=1)
            self.ax.text(
                x,
                y,
                scene.labels[i],
                size=self.look.medium.small if scene.focus[i] else self.look.medium.number,
                color=style.foreground if scene.focus[i] else style.muted,
                ha="center",
                va="center",
                zorder=5,
                path_effects=[withStroke(linewidth=2, foreground=style.background)],
            )
        return left_out
