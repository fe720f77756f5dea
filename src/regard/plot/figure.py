"""Figures for print, as wide as a column or a page: a map, two maps and their difference, or the maps of all heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.packages import needed
from regard._utils.validation import finite_number
from regard.plot import captions
from regard.plot.fonts import find_fonts
from regard.plot.head_panels import HeadPanels, Heads
from regard.plot.page import Page, caption_height
from regard.plot.print_maps import PrintMaps
from regard.plot.style import PRINT, Look, get_style
from regard.trace import Trace
from regard.views.selection import AttentionView, lazy_heads, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Head: TypeAlias = "int | Literal['all'] | None"

WIDTHS = {"column": 85.0, "page": 170.0}
"""Millimetres of the named widths."""

_MILLIMETRES = 25.4  # in an inch
_MIN_WIDTH, _MAX_WIDTH = 40.0, 500.0  # millimetres
_MAX_HEIGHT = 230.0 / _MILLIMETRES  # of a page without its margins
_PITCH = 0.0, 0.6  # from a head to the next, at least and at most, in inches


@needed("a figure")
def figure(
    *sources: Trace | AttentionView,
    layer: int | Sequence[int] | None = None,
    head: Head | Sequence[int | None] = None,
    batch: int | Sequence[int] = 0,
    show_special_tokens: bool = False,
    merge_subwords: bool = False,
    span: tuple[int, int] | None = None,
    width: str | float = "column",
    caption: bool | str = False,
    notes: Sequence[str] = (),
    theme: str = "light",
) -> Figure:
    """Draw a figure for print: its width is given, its height follows.

    For one source, its map. For two, A, B and A − B: A and B on one colour scale, the difference on one that is centred
    at 0, blue where A is larger and brown where B is; side by side, or in less than 120 mm one below the other. With
    ``head="all"``, the maps of all heads on the square-root scale of `head_grid`, or of two sources their differences.

    Type is 5 to 8.5 points. Where labels of tokens would have to be smaller, axes are numbered by the position of the
    tokens that are shown.

    Parameters
    ----------
    *sources : Trace or AttentionView
        One or two; the same trace may be given twice, for two of its heads.
    layer, head, batch : int, or one for each of two sources, optional
        As in `select`; of the head also ``"all"``.
    show_special_tokens, merge_subwords, span
        As in `select`. An `AttentionView` has made its selection, and a figure of all heads shows whole texts.
    width : {"column", "page"} or float
        85 mm, 170 mm, or millimetres.
    caption : bool or str
        Write below the figure what it shows: model, layer, head and text, and what is left out; or a text of your own.
    notes : sequence of str, optional
        What a made caption says of each source in addition, such as how its trace was edited.
    theme : {"light", "dark"}

    Returns
    -------
    Figure
        With 300 dots per inch, for `save`. Axes of maps have the cell ``i, j`` at ``x = j, y = i``.

    Raises
    ------
    RegardError
        As in `select`; there are no sources or more than two; two maps have different sizes; or there is no such width
        or theme.
    """
    if not 1 <= len(sources) <= 2 or not all(isinstance(source, Trace | AttentionView) for source in sources):
        raise RegardError("a figure is of one or two sources, each a Trace or an AttentionView")
    style, across = get_style(theme), figure_width(width)
    selection = {"show_special_tokens": show_special_tokens, "merge_subwords": merge_subwords}
    all_heads = isinstance(head, str)
    if all_heads and (head != "all" or layer is not None or span is not None):
        raise RegardError(f"head is a number, or 'all' without layer and span, got head={head!r}")
    layers, head_numbers, entries = (
        _for_each(value, len(sources), name)
        for value, name in ((layer, "layer"), (None if all_heads else head, "head"), (batch, "batch"))
    )
    heads: list[Heads] = []
    if all_heads:
        heads = [_every_head(source, entry, selection) for source, entry in zip(sources, entries, strict=True)]
        views = [of_source[0][0]() for of_source in heads]
        if len(heads) == 2 and list(map(len, heads[0])) != list(map(len, heads[1])):
            raise RegardError("A and B have different layers and heads, so they have no difference")
    else:
        views = [
            _view(source, {"layer": layers[n], "head": head_numbers[n], "batch": entries[n], "span": span, **selection})
            for n, source in enumerate(sources)
        ]
    _check_shapes(views)
    texts = [_text_of(source, entry) for source, entry in zip(sources, entries, strict=True)]
    labels = {label for view in views for label in (*view.queries, *view.keys, *view.special_tokens, view.model)}
    fonts = find_fonts([*sorted(labels), *texts, *notes, caption if isinstance(caption, str) else ""])
    if caption is True:
        caption = captions.of_print(views, texts, notes, fonts, span=span, all_heads=all_heads)
    said = "\n".join(map(fonts.label, caption.split("\n"))) if caption else ""
    look = Look(fonts, style, PRINT)
    inside = across - 2 * PRINT.margin
    longest = captions.joined(said, captions.pooled_pair(100)) if said else ""
    down = _MAX_HEIGHT - 2 * PRINT.margin - caption_height(longest, inside, look)
    with look.rc_context():
        drawing: HeadPanels | PrintMaps
        if all_heads:
            drawing = HeadPanels(heads, (inside, down), _PITCH, look)
        else:
            drawing = PrintMaps(views, (inside, down), look)
        said = captions.joined(said, drawing.note) if said else ""
        page = Page.new(drawing.size, look, caption=said, width=across)
        drawing.draw(page)
    return page.figure


def figure_width(width: str | float) -> float:
    """Return a width in inches."""
    if isinstance(width, str):
        if width not in WIDTHS:
            raise RegardError(f"width is {' or '.join(map(repr, WIDTHS))}, or millimetres, got {width!r}")
        return WIDTHS[width] / _MILLIMETRES
    millimetres = finite_number("width", width, positive=True)
    if not _MIN_WIDTH <= millimetres <= _MAX_WIDTH:
        raise RegardError(f"width is from {_MIN_WIDTH:g} to {_MAX_WIDTH:g} mm, got {millimetres:g}")
    return millimetres / _MILLIMETRES


def _for_each(value: Any, number: int, name: str) -> list[Any]:
    """Return a value for each source: one of its own, or the same for all."""
    if isinstance(value, int | np.integer | None):
        return [value] * number
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != number:
        raise RegardError(f"{name} is a number, or one for each of {number} sources, got {value!r}")
    return list(value)


def _view(source: Trace | AttentionView, selection: dict[str, Any]) -> AttentionView:
    if isinstance(source, Trace):
        return select(source, **selection)
    if any(selection.values()):
        raise RegardError("a view is one map with its tokens: give figure no other selection")
    return source


def _every_head(source: Trace | AttentionView, batch: int, selection: dict[str, bool]) -> Heads:
    if not isinstance(source, Trace):
        raise RegardError("a figure of all heads is of traces, not of a view of one map")
    return lazy_heads(source, batch, **selection)


def _check_shapes(views: Sequence[AttentionView]) -> None:
    a, b = views[0].weights.shape, views[-1].weights.shape
    if a != b:
        raise RegardError(
            f"A has {a[0]} queries and {a[1]} keys, B has {b[0]} and {b[1]}: they have no difference; draw one of them"
        )


def _text_of(source: Trace | AttentionView, batch: int) -> str:
    return source.encodings[batch].text if isinstance(source, Trace) and len(source.encodings) > batch else ""
