"""Where each word goes: from what it is on its own to what it is in its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from regard._encoding import Encoding
from regard._errors import RegardError
from regard._typing import Array
from regard.trace import Trace
from regard.views._axis import rows_of_word
from regard.views._fonts import Lettering, lettering
from regard.views._heading import MARGIN, Heading
from regard.views._placement import placed
from regard.views._projection import project
from regard.views._ruler import LINE, Ruler
from regard.views._style import Style, style_of
from regard.views._vectors import WordVectors, of_arrays, of_trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Lengths are in inches, sizes of type in points.
_LABEL_TYPE, _FADED_TYPE, _AXIS_TYPE = 9.0, 7.5, 8.5
_LABEL_COLUMNS, _TEXT_COLUMNS = 28, 70
_SMALLEST, _LARGEST = 4.8, 11.0  # the side of the plane
_ROOM = 26.0  # the area of the plane for each unit of area of its labels
_MARKERS = "os^D"
_LINES: tuple[tuple[float, Sequence[float]], ...] = ((0, ()), (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
_MANY = 40  # words; above it points and arrows are finer
_EDGE = 0.4  # between the outermost points and the frame, where labels find room
_AXIS_LABEL, _LEGEND_TYPE, _ENTRY = 0.26, 8.5, 0.19
_SHORTEST_ARROW, _SHORTEST_LEADER = 0.12, 0.14


def movement(
    source: Trace | Sequence[Trace] | Array,
    contextual: Array | None = None,
    tokens: Encoding | Sequence[str] | None = None,
    *,
    batch: int = 0,
    keep_special: bool = False,
    words: bool = False,
    highlight: str | None = None,
    theme: str = "light",
    ax: Axes | None = None,
) -> Axes:
    """Draw an arrow for each word from its original to its contextual vector, on one plane for both.

    What the plane shows and what it leaves out is told in `project`.

    Parameters
    ----------
    source : Trace, sequence of Trace, or array, ``T E``
        What holds ``token_embeddings`` and the output of a block; several texts to compare, each with its own
        colour, marker and line; or the original vectors.
    contextual : array, ``T E``, optional
        With an array: the contextual vectors.
    tokens : Encoding or sequence of str, T, optional
        With an array: the tokens, by default their positions.
    batch, keep_special, words
        Which text and which tokens, as in `select`. A word of several sub-words has the mean of their vectors.
    highlight : str, optional
        Draw the movement of this word alone, wherever it occurs; of the others only faded where they end.
    theme : {"light", "dark"}
    ax : Axes, optional
        Where to draw. By default on a figure of its own, ``movement(...).figure``.

    Returns
    -------
    Axes
        With the plane; both axes have one scale.

    Raises
    ------
    RegardError
        There are no vectors, or their shapes do not fit; `highlight` is not in the text; there are more than four
        texts; or there is no such theme.
    """
    style = style_of(theme)
    texts = _texts(source, contextual, tokens, batch=batch, keep_special=keep_special, words=words)
    letters = lettering([part for text in texts for part in (*text.labels, text.model, text.text)] + [highlight or ""])
    ruler = Ruler(letters.families)
    scene = _Scene.of(texts, letters, ruler, highlight)
    title, note = _title(texts, letters, highlight), _note(texts, letters, scene)
    with style.drawing():
        if ax is None:
            page = scene.page()
            heading = Heading.fitted(title, note, page[0], ruler)
            ax = _own_axes(page, heading, _ENTRY * (2 + len(texts) * (len(texts) > 1)), ruler, style)
        else:
            across = ruler.wrapped(f"{title}. {note}", _AXIS_TYPE, _page_of(ax)[0])
            ax.set_title(
                "\n".join(across), size=_AXIS_TYPE, loc="left", family=list(letters.families), parse_math=False
            )
        _draw_frame(ax, scene.explained, style)
        _draw_legend(ax, texts, letters, style)
        page = _page_of(ax)
        _draw_words(ax, scene, page, style)
        _draw_labels(ax, scene, page, letters, style)
    return ax


@dataclass(frozen=True, eq=False)
class _Scene:
    """The words of all texts on one plane, a row for each; coordinates are those of `project`."""

    labels: tuple[str, ...]
    sizes: np.ndarray  # N 2, of the labels in inches
    count: int  # of texts
    text: np.ndarray  # N, which text a word is in
    focus: np.ndarray  # N, whether its movement is drawn
    before: np.ndarray  # N 2
    after: np.ndarray  # N 2
    explained: np.ndarray  # 2

    @classmethod
    def of(cls, texts: Sequence[WordVectors], letters: Lettering, ruler: Ruler, highlight: str | None) -> _Scene:
        """Project the words of all texts together."""
        names = [label for text in texts for label in text.labels]
        wholes = [word for text in texts for word in text.words]
        focus = np.full(len(names), highlight is None)
        if highlight is not None:
            focus[list(rows_of_word(names, wholes, highlight))] = True
        labels = tuple(letters.label(name, _LABEL_COLUMNS) for name in names)
        points = np.where(focus, _LABEL_TYPE, _FADED_TYPE)
        sizes = [ruler.size(label, p) for label, p in zip(labels, points, strict=True)]
        before, after, explained = project(
            np.concatenate([text.original for text in texts]),
            np.concatenate([text.contextual for text in texts]),
        )
        return cls(
            labels=labels,
            sizes=np.array(sizes) + 0.02,
            count=len(texts),
            text=np.repeat(np.arange(len(texts)), [len(text.labels) for text in texts]),
            focus=focus,
            before=before,
            after=after,
            explained=explained,
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
            unit = float(np.min((np.array(page) - 2 * _EDGE) / (high - low)))
        unit = unit if np.isfinite(unit) else 1.0
        return (low + high) / 2 - np.array(page) / 2 / unit, unit


def _texts(
    source: Trace | Sequence[Trace] | Array,
    contextual: Array | None,
    tokens: Encoding | Sequence[str] | None,
    *,
    batch: int,
    keep_special: bool,
    words: bool,
) -> list[WordVectors]:
    traces = [source] if isinstance(source, Trace) else source
    if isinstance(traces, list | tuple) and traces and all(isinstance(trace, Trace) for trace in traces):
        if contextual is not None or tokens is not None:
            raise RegardError("a trace brings its own vectors and tokens: leave out contextual and tokens")
        if len(traces) > len(_MARKERS):
            raise RegardError(f"at most {len(_MARKERS)} texts can be told apart, got {len(traces)}")
        return [of_trace(trace, batch=batch, keep_special=keep_special, words=words) for trace in traces]
    if contextual is None:
        raise RegardError("movement needs a trace, several traces, or two arrays: original and contextual vectors")
    if batch != 0:
        raise RegardError(f"arrays T E are no batch: leave out batch={batch}")
    return [of_arrays(source, contextual, tokens, keep_special=keep_special, words=words)]


def _title(texts: Sequence[WordVectors], letters: Lettering, highlight: str | None) -> str:
    what = "each word" if highlight is None else f"“{letters.label(highlight, 40)}”"
    model = letters.label(texts[0].model, 60)
    return f"What {what} becomes" + (f" in {model}" if model else "")


def _note(texts: Sequence[WordVectors], letters: Lettering, scene: _Scene) -> str:
    note = f"“{letters.label(texts[0].text, _TEXT_COLUMNS)}” " if len(texts) == 1 and texts[0].text else ""
    if len(scene.labels) == 1:
        return note + "A single word has no others to stand among: its whole movement is drawn."
    return (
        f"{note}Both kinds of vectors are centred and scaled to the same spread, so an arrow is how a word's place "
        f"among the others changes. The plane shows {scene.explained.sum():.0%} of the variance."
    )


def _own_axes(page: tuple[float, float], heading: Heading, legend: float, ruler: Ruler, style: Style) -> Axes:
    """Return axes of the size of the page on a figure with its heading and room for a legend below."""
    from matplotlib.figure import Figure

    below = _AXIS_LABEL + legend
    W = MARGIN + _AXIS_LABEL + page[0] + MARGIN
    H = MARGIN + heading.height + page[1] + below + MARGIN
    figure = Figure(figsize=(W, H))
    heading.write(figure, ruler, style)
    return figure.add_axes(((MARGIN + _AXIS_LABEL) / W, (MARGIN + below) / H, page[0] / W, page[1] / H))


def _page_of(ax: Axes) -> tuple[float, float]:
    """Return the size of given axes, once their figure's layout has made room for what stands around them."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    room = ax.get_window_extent()
    return room.width / figure.dpi, room.height / figure.dpi


def _draw_frame(ax: Axes, explained: np.ndarray, style: Style) -> None:
    ax.set(xticks=[], yticks=[], facecolor=style.background)
    ax.spines[:].set_color(style.faint)
    ax.axhline(0, color=style.faint, linewidth=0.6, zorder=0)
    ax.axvline(0, color=style.faint, linewidth=0.6, zorder=0)
    ax.set_xlabel(f"first principal component: {explained[0]:.0%} of the variance", loc="left")
    ax.set_ylabel(f"second principal component: {explained[1]:.0%}", loc="bottom")


def _draw_legend(ax: Axes, texts: Sequence[WordVectors], letters: Lettering, style: Style) -> None:
    """Say below the axes what the marks are."""
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
            line = Line2D([], [], marker=_MARKERS[i], linestyle=_LINES[i], color=style.several[i])
            entries.append((line, letters.label(text.text, _TEXT_COLUMNS) or f"text {i}"))
    assert ax.figure is not None
    legend = ax.legend(
        [mark for mark, _ in entries],
        [name for _, name in entries],
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + ScaledTranslation(0, -_AXIS_LABEL, ax.figure.dpi_scale_trans),
        borderaxespad=0,
        borderpad=0.2,
        fontsize=_LEGEND_TYPE,
        prop={"family": list(letters.families), "size": _LEGEND_TYPE},
        labelcolor=style.foreground,
    )
    for name in legend.get_texts():
        name.set_parse_math(False)


def _colours(text: int, count: int, style: Style) -> tuple[str, str]:
    """Return the colours of a text's original and contextual points."""
    return (style.original, style.contextual) if count == 1 else (style.several[text],) * 2


def _draw_words(ax: Axes, scene: _Scene, page: tuple[float, float], style: Style) -> None:
    """Draw the points, and the arrows between them."""
    from matplotlib.patches import FancyArrowPatch

    corner, unit = scene.window(page)
    far = corner + np.array(page) / unit
    ax.set(xlim=(corner[0], far[0]), ylim=(corner[1], far[1]), autoscale_on=False)
    ax.set_aspect("equal", adjustable="datalim")
    size, width = (5.0, 0.9) if len(scene.labels) <= _MANY else (3.5, 0.6)
    for text in range(scene.count):
        before_colour, after_colour = _colours(text, scene.count, style)
        here, marker = scene.text == text, _MARKERS[text]
        faded, focus = here & ~scene.focus, here & scene.focus
        ax.plot(*scene.after[faded].T, marker, color=after_colour, alpha=0.3, markersize=4, zorder=2)
        ax.plot(*scene.before[focus].T, marker, color=before_colour, mfc=style.background, markersize=size, zorder=3)
        ax.plot(*scene.after[focus].T, marker, color=after_colour, markersize=size, zorder=4)
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


def _draw_labels(ax: Axes, scene: _Scene, page: tuple[float, float], letters: Lettering, style: Style) -> None:
    """Write each word beside where it ends."""
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
    if left_out := centres.count(None):
        ax.set_xlabel(f"{ax.get_xlabel()}; {left_out} labels left out for want of room", loc="left")
