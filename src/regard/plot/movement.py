"""Where each word goes: from what it is on its own to what it is in its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.plot.existing_axes import LEAST, TITLE, Around, available_size, keep_inside, write_title
from regard.plot.fonts import Lettering, lettering
from regard.plot.heading import MARGIN, Heading
from regard.plot.plane import (
    AXIS_LABEL,
    LEGEND_LINE,
    MARKERS,
    TEXT_COLUMNS,
    Scene,
    draw_frame,
    draw_labels,
    draw_legend,
    draw_words,
    name_axes,
)
from regard.plot.style import Style, style_around, style_of
from regard.plot.text_metrics import LINE, Ruler
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.views.vectors import TextVectors, of_arrays, of_trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PAD = 0.06  # below a title on given axes, in inches


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
        Where to draw. By default on a figure of its own, ``movement(...).figure``. On given axes everything stands
        where the axes stood: they shrink to the plane, and around it is as much as there is room for. The note is left
        out first, then the legend, the names of the axes, the title. Other plots are best drawn before.

    Returns
    -------
    Axes
        With the plane; both axes have one scale.

    Raises
    ------
    RegardError
        There are no vectors, or their shapes do not fit; `highlight` is not in the text; there are more than four
        texts, or they are of different models; or there is no such theme.
    """
    style = style_of(theme)
    texts = _texts(source, contextual, tokens, batch=batch, keep_special=keep_special, words=words)
    letters = lettering([part for text in texts for part in (*text.labels, text.model, text.text)] + [highlight or ""])
    ruler = Ruler(letters.families)
    scene = Scene.of(texts, letters, ruler, highlight)
    titles, note = _titles(texts, letters, highlight), _note(texts, letters, scene)
    around = style if ax is None else style_around(ax, style)
    legend = LEGEND_LINE * (2 + len(texts) * (len(texts) > 1))
    with style.drawing():
        if ax is None:
            page = scene.page()
            ax = _own_axes(page, Heading.fitted(titles[0], note, page[0], ruler), legend, ruler, style)
            named = explained = True
        else:
            page, named, explained = _shrunk(ax, titles, note, legend, letters, ruler, around)
        draw_frame(ax, style)
        if explained:
            draw_legend(ax, texts, letters, ruler, page[0], style, around)
        draw_words(ax, scene, page, style)
        left_out = draw_labels(ax, scene, page, letters, style)
        if named:
            name_axes(ax, scene, page, left_out, ruler, around)
    return ax


def _shrunk(
    ax: Axes, titles: Sequence[str], note: str, legend: float, letters: Lettering, ruler: Ruler, around: Style
) -> tuple[tuple[float, float], bool, bool]:
    """Shrink given axes by as much as leaves the plane its share of the room, and write their title.

    Return the size of the plane, whether its axes are named, and whether there is a legend.
    """
    room = available_size(ax)
    for parts in range(4, -1, -1):
        heading = [ruler.fitting(titles, TITLE, room[0])] if parts >= 1 else []
        heading += ruler.wrapped(note, TITLE, room[0]) if parts == 4 else ()
        outside = Around(
            left=AXIS_LABEL if parts >= 2 else 0.0,
            above=len(heading) * TITLE * LINE + _PAD if heading else 0.0,
            below=AXIS_LABEL * (parts >= 2) + legend * (parts >= 3),
        )
        width, height = outside.inside(room)
        if (outside.inside(room) >= LEAST * room).all():
            break
    keep_inside(ax, outside)
    write_title(ax, heading, before=outside.left, above=_PAD, families=letters.families, style=around)
    return (float(width), float(height)), parts >= 2, parts >= 3


def _texts(
    source: Trace | Sequence[Trace] | Array,
    contextual: Array | None,
    tokens: Encoding | Sequence[str] | None,
    *,
    batch: int,
    keep_special: bool,
    words: bool,
) -> list[TextVectors]:
    traces = [source] if isinstance(source, Trace) else source
    if isinstance(traces, list | tuple) and traces and all(isinstance(trace, Trace) for trace in traces):
        if contextual is not None or tokens is not None:
            raise RegardError("a trace brings its own vectors and tokens: leave out contextual and tokens")
        if len(traces) > len(MARKERS):
            raise RegardError(f"at most {len(MARKERS)} texts can be told apart, got {len(traces)}")
        texts = [of_trace(trace, batch=batch, keep_special=keep_special, words=words) for trace in traces]
        if len(widths := {text.original.shape[1] for text in texts}) > 1:
            raise RegardError(f"vectors of {sorted(widths)} numbers share no plane: compare runs of one model")
        return texts
    if contextual is None:
        raise RegardError("movement needs a trace, several traces, or two arrays: original and contextual vectors")
    if batch != 0:
        raise RegardError(f"arrays T E are no batch: leave out batch={batch}")
    return [of_arrays(source, contextual, tokens, keep_special=keep_special, words=words)]


def _titles(texts: Sequence[TextVectors], letters: Lettering, highlight: str | None) -> list[str]:
    """Return the title, the model named only in the first, the longer one."""
    what = "each word" if highlight is None else f"“{letters.label(highlight, 40)}”"
    model = letters.label(texts[0].model, 60)
    title = f"What {what} becomes"
    return [f"{title} in {model}", title] if model else [title]


def _note(texts: Sequence[TextVectors], letters: Lettering, scene: Scene) -> str:
    note = f"“{letters.label(texts[0].text, TEXT_COLUMNS)}”\n" if len(texts) == 1 and texts[0].text else ""
    if scene.alone:
        one = "A single word has" if len(scene.labels) == 1 else "Words that do not differ have"
        return f"{note}{one} no others to stand among: the whole movement is drawn."
    return (
        f"{note}Both kinds of vectors are centred and scaled to the same spread, so an arrow is how a word's place "
        f"among the others changes. The plane shows {scene.explained.sum():.0%} of the variance."
    )


def _own_axes(page: tuple[float, float], heading: Heading, legend: float, ruler: Ruler, style: Style) -> Axes:
    """Return axes of the size of the page on a figure with its heading and room for a legend below."""
    from matplotlib.figure import Figure

    below = AXIS_LABEL + legend
    W = MARGIN + AXIS_LABEL + page[0] + MARGIN
    H = MARGIN + heading.height + page[1] + below + MARGIN
    figure = Figure(figsize=(W, H))
    heading.write(figure, ruler, style)
    return figure.add_axes(((MARGIN + AXIS_LABEL) / W, (MARGIN + below) / H, page[0] / W, page[1] / H))
