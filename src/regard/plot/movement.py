"""The movement of each word from its original to its contextual vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard._utils.errors import RegardError
from regard.functional.arrays import Array
from regard.plot import plane
from regard.plot.existing_axes import MIN_SHARE, TITLE, Margins, available_size, draw_title, shrink_axes
from regard.plot.fonts import FontFallback, find_fonts
from regard.plot.heading import MARGIN, Heading
from regard.plot.style import Style, get_style, style_for_axes
from regard.plot.text_metrics import LINE
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.views.projection import describe_sinks
from regard.views.vectors import TextVectors, vectors_from_arrays, vectors_from_trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PAD = 0.06  # below a title on existing axes, in inches


def movement(
    source: Trace | Sequence[Trace] | Array,
    contextual: Array | None = None,
    tokens: Encoding | Sequence[str] | None = None,
    *,
    batch: int = 0,
    show_special_tokens: bool = False,
    merge_subwords: bool = False,
    highlight: str | None = None,
    theme: str = "light",
    ax: Axes | None = None,
) -> Axes:
    """Draw an arrow for each word from its original to its contextual vector, on the plane of `project`.

    Words with a vector far longer than the others, attention sinks, are left out, as the note says; special tokens do
    not take part in the fit of the plane.

    Parameters
    ----------
    source : Trace, sequence of Trace, or array, ``T E``
        A trace with ``token_embeddings`` and the output of a block; several traces to compare, each with its own
        colour, marker and line; or the original vectors.
    contextual : array, ``T E``, optional
        With an array: the contextual vectors.
    tokens : Encoding or sequence of str, T, optional
        With an array: the tokens. Default: their positions.
    batch, show_special_tokens, merge_subwords
        As in `select`. The vector of a merged word is the mean over its sub-words.
    highlight : str, optional
        Draw only the arrows of this word; the contextual points of other words are faded.
    theme : {"light", "dark"}
    ax : Axes, optional
        Default: on a new figure, ``movement(...).figure``. Given axes shrink to the plane, so that its decorations stay
        inside their space. What does not fit is left out: the note first, then the legend, the axis labels, the title.
        Draw other plots of the figure before.

    Returns
    -------
    Axes
        With equal scales.

    Raises
    ------
    RegardError
        There are no vectors, or their shapes differ; `highlight` is not in the text; there are more than four texts, or
        they are of different models; or there is no such theme.
    """
    style = get_style(theme)
    shown = {"show_special_tokens": show_special_tokens, "merge_subwords": merge_subwords}
    texts = _texts(source, contextual, tokens, batch, shown)
    fonts = find_fonts([part for text in texts for part in (*text.labels, text.model, text.text)] + [highlight or ""])
    scene = plane.Scene.from_texts(texts, fonts, highlight)
    titles, note = _titles(texts, fonts, highlight), _note(texts, fonts, scene)
    outer_style = style if ax is None else style_for_axes(ax, style)
    legend = plane.LEGEND_LINE * (2 + len(texts) * (len(texts) > 1))
    with style.rc_context():
        if ax is None:
            size = scene.size()
            ax = _new_axes(size, Heading.wrap(titles[0], note, size[0], fonts.metrics), legend, fonts, style)
            has_labels = has_legend = True
        else:
            size, has_labels, has_legend = _fit_into(ax, titles, note, legend, fonts, outer_style)
        plane.draw_frame(ax, style)
        if has_legend:
            plane.draw_legend(ax, texts, fonts, size[0], style, outer_style)
        plane.draw_words(ax, scene, size, style)
        left_out = plane.draw_labels(ax, scene, size, fonts, style)
        if has_labels:
            plane.label_axes(ax, scene, size, left_out, fonts, outer_style)
    return ax


def _fit_into(
    ax: Axes, titles: Sequence[str], note: str, legend: float, fonts: FontFallback, style: Style
) -> tuple[tuple[float, float], bool, bool]:
    """Shrink existing axes by the decorations that fit, and draw their title.

    Return the size of the plane, and whether there are axis labels and a legend.
    """
    available = available_size(ax)
    for parts in range(4, -1, -1):
        heading = [fonts.metrics.fit(titles, TITLE, available[0])] if parts >= 1 else []
        heading += fonts.metrics.wrap(note, TITLE, available[0]) if parts == 4 else ()
        margins = Margins(
            left=plane.AXIS_LABEL if parts >= 2 else 0.0,
            above=len(heading) * TITLE * LINE + _PAD if heading else 0.0,
            below=plane.AXIS_LABEL * (parts >= 2) + legend * (parts >= 3),
        )
        width, height = margins.shrink(available)
        if (margins.shrink(available) >= MIN_SHARE * available).all():
            break
    shrink_axes(ax, margins)
    draw_title(ax, heading, before=margins.left, above=_PAD, families=fonts.families, style=style)
    return (float(width), float(height)), parts >= 2, parts >= 3


def _texts(
    source: Trace | Sequence[Trace] | Array,
    contextual: Array | None,
    tokens: Encoding | Sequence[str] | None,
    batch: int,
    shown: dict[str, bool],
) -> list[TextVectors]:
    traces = [source] if isinstance(source, Trace) else source
    if isinstance(traces, list | tuple) and traces and all(isinstance(trace, Trace) for trace in traces):
        if contextual is not None or tokens is not None:
            raise RegardError("a trace has its own vectors and tokens: leave out contextual and tokens")
        if len(traces) > len(plane.MARKERS):
            raise RegardError(f"at most {len(plane.MARKERS)} texts can be compared, got {len(traces)}")
        texts = [vectors_from_trace(trace, batch=batch, **shown) for trace in traces]
        if len(widths := {text.original.shape[1] for text in texts}) > 1:
            raise RegardError(f"vectors must have one size, got {sorted(widths)}: compare runs of one model")
        return texts
    if contextual is None:
        raise RegardError("movement needs a trace, several traces, or two arrays: original and contextual vectors")
    if batch != 0:
        raise RegardError(f"arrays T E have no batch axis: leave out batch={batch}")
    return [vectors_from_arrays(source, contextual, tokens, **shown)]


def _titles(texts: Sequence[TextVectors], fonts: FontFallback, highlight: str | None) -> list[str]:
    """Return the title with the name of the model, and without."""
    what = "each word" if highlight is None else f"“{fonts.label(highlight, 40)}”"
    model = fonts.label(texts[0].model, 60)
    title = f"Movement of {what}"
    return [f"{title} in {model}", title] if model else [title]


def _note(texts: Sequence[TextVectors], fonts: FontFallback, scene: plane.Scene) -> str:
    note = f"“{fonts.label(texts[0].text, plane.TEXT_COLUMNS)}”\n" if len(texts) == 1 and texts[0].text else ""
    if scene.is_degenerate:
        return f"{note}Only one word: the raw vectors are shown, not standardized."
    note += (
        f"Both kinds of vectors are centred and scaled to one spread: an arrow is the change of a word's place "
        f"among the others. The plane shows {scene.explained_variance_ratio.sum():.0%} of the variance."
    )
    if scene.sinks:
        note += f" {describe_sinks(scene.sinks, 'left out')}"
    return note if scene.fits_all else f"{note} Special tokens are left out of the fit."


def _new_axes(size: tuple[float, float], heading: Heading, legend: float, fonts: FontFallback, style: Style) -> Axes:
    """Return axes of this size on a new figure with its heading and space for a legend below."""
    from regard.plot.notebook import NotebookAxes, NotebookFigure

    below = plane.AXIS_LABEL + legend
    W = MARGIN + plane.AXIS_LABEL + size[0] + MARGIN
    H = MARGIN + heading.height + size[1] + below + MARGIN
    figure = NotebookFigure(figsize=(W, H))
    heading.draw(figure, fonts.metrics, style)
    return figure.add_axes(
        ((MARGIN + plane.AXIS_LABEL) / W, (MARGIN + below) / H, size[0] / W, size[1] / H), axes_class=NotebookAxes
    )
