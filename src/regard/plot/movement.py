"""The movement of each word from its original to its contextual vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.packages import needed
from regard.functional.arrays import Array
from regard.plot import captions
from regard.plot.existing_axes import Margins
from regard.plot.fonts import find_fonts
from regard.plot.plane import AXIS_LABEL, LEGEND_LINE, MARKERS, TEXT_COLUMNS, Plane, Scene
from regard.plot.single_plot import SinglePlot
from regard.plot.style import Look, Style, get_style
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.views.projection import describe_sinks
from regard.views.vectors import TextVectors, vectors_from_arrays, vectors_from_trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@needed("a figure")
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
    return _Movement(texts, style, highlight).draw_on(ax)


class _Movement(SinglePlot):
    """The words of some texts on a plane."""

    parts = ("title", "axis labels", "legend", "note")

    def __init__(self, texts: Sequence[TextVectors], style: Style, highlight: str | None) -> None:
        labels = [part for text in texts for part in (*text.labels, text.model, text.text)]
        super().__init__(Look(find_fonts([*labels, highlight or ""]), style))
        self.texts, self.highlight = texts, highlight
        self.scene = Scene.from_texts(texts, self.look, highlight)

    def size(self) -> tuple[float, float]:
        return self.scene.size()

    def titles(self) -> Sequence[str]:
        word = "each word" if self.highlight is None else captions.quoted(self.highlight, self.look.fonts, 40)
        title = f"Movement of {word}"
        return list(dict.fromkeys((captions.titled(title, self.texts[0].model, self.look.fonts), title)))

    def note(self, _size: np.ndarray, _parts: Sequence[str]) -> str:
        text = captions.quoted(self.texts[0].text, self.look.fonts, TEXT_COLUMNS) if len(self.texts) == 1 else ""
        if self.scene.is_degenerate:
            return f"{text}\nOnly one word: the raw vectors are shown, not standardized."
        share = self.scene.explained_variance_ratio.sum()
        said = captions.joined(
            "Both kinds of vectors are centred and scaled to one spread: an arrow is the change of a word's place "
            f"among the others. The plane shows {share:.0%} of the variance.",
            describe_sinks(self.scene.sinks, "left out") if self.scene.sinks else "",
            "" if self.scene.fits_all else "Special tokens are left out of the fit.",
        )
        return f"{text}\n{said}"

    def margins(self, _size: np.ndarray, parts: Sequence[str]) -> Margins:
        side = AXIS_LABEL if "axis labels" in parts else 0.0
        legend = LEGEND_LINE * (2 + len(self.texts) * (len(self.texts) > 1)) if "legend" in parts else 0.0
        return Margins(left=side, below=side + legend)

    def draw(self, ax: Axes, size: np.ndarray, parts: Sequence[str]) -> None:
        plane = Plane(ax, self.scene, (float(size[0]), float(size[1])), self.look, self.outer)
        plane.draw_frame()
        if "legend" in parts:
            plane.draw_legend(self.texts)
        plane.draw_words()
        left_out = plane.draw_labels()
        if "axis labels" in parts:
            plane.label_axes(left_out)


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
        if len(traces) > len(MARKERS):
            raise RegardError(f"at most {len(MARKERS)} texts can be compared, got {len(traces)}")
        texts = [vectors_from_trace(trace, batch=batch, **shown) for trace in traces]
        if len(widths := {text.original.shape[1] for text in texts}) > 1:
            raise RegardError(f"vectors must have one size, got {sorted(widths)}: compare runs of one model")
        return texts
    if contextual is None:
        raise RegardError("movement needs a trace, several traces, or two arrays: original and contextual vectors")
    if batch != 0:
        raise RegardError(f"arrays T E have no batch axis: leave out batch={batch}")
    return [vectors_from_arrays(source, contextual, tokens, **shown)]
