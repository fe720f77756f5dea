"""Figures for print, as wide as a column or a page: a map, two maps and their difference, or the maps of all heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number
from regard.plot.color_bar import mask_note
from regard.plot.fonts import FontFallback, find_fonts
from regard.plot.print_grid import draw_grid
from regard.plot.print_maps import draw_maps
from regard.plot.print_page import MILLIMETRES, Page, compose
from regard.plot.style import get_style
from regard.trace import Trace
from regard.views.selection import AttentionView, lazy_heads, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Head: TypeAlias = "int | Literal['all'] | None"

WIDTHS = {"column": 85.0, "page": 170.0}
"""Millimetres of the named widths."""

_MIN_WIDTH, _MAX_WIDTH = 40.0, 500.0  # millimetres
_TEXT_COLUMNS = 240  # of a text in a caption


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

    Of one source, its map. Of two, A, B and A − B: A and B on one colour scale, the difference on one that is centred
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
        What a made caption says of each source beside that, such as how its trace was edited.
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
    style, across = get_style(theme), _width(width)
    selection = {"show_special_tokens": show_special_tokens, "merge_subwords": merge_subwords}
    all_heads = isinstance(head, str)
    if all_heads and (head != "all" or layer is not None or span is not None):
        raise RegardError(f"head is a number, or 'all' without layer and span, got head={head!r}")
    entries = _for_each(batch, len(sources), "batch")
    views: list[list[list[AttentionView]]]
    if all_heads:
        views = [_every_head(source, entry, selection) for source, entry in zip(sources, entries, strict=True)]
    else:
        layers, heads = _for_each(layer, len(sources), "layer"), _for_each(head, len(sources), "head")
        options = [
            {"layer": layers[n], "head": heads[n], "batch": entries[n], "span": span, **selection}
            for n in range(len(sources))
        ]
        views = [[[_view(source, chosen)]] for source, chosen in zip(sources, options, strict=True)]
    _check_shapes(views)
    texts = [_text_of(source, entry) for source, entry in zip(sources, entries, strict=True)]
    first = [ofs[0][0] for ofs in views]
    labels = {label for view in first for label in (*view.queries, *view.keys, *view.special_tokens, view.model)}
    fonts = find_fonts([*sorted(labels), *texts, *notes, caption if isinstance(caption, str) else ""])
    if caption is True:
        caption = _caption(first, texts, notes, fonts, span=span, all_heads=all_heads)
    page = Page(across, fonts, style, "\n".join(map(fonts.label, caption.split("\n"))) if caption else "")
    with style.rc_context():
        drawing = draw_grid(page, views) if all_heads else draw_maps(page, first)
        return compose(page, drawing)


def _width(width: str | float) -> float:
    """Return a width in inches."""
    if isinstance(width, str):
        if width not in WIDTHS:
            raise RegardError(f"width is {' or '.join(map(repr, WIDTHS))}, or millimetres, got {width!r}")
        return WIDTHS[width] / MILLIMETRES
    millimetres = finite_number("width", width, positive=True)
    if not _MIN_WIDTH <= millimetres <= _MAX_WIDTH:
        raise RegardError(f"width is from {_MIN_WIDTH:g} to {_MAX_WIDTH:g} mm, got {millimetres:g}")
    return millimetres / MILLIMETRES


def _for_each(value: Any, number: int, name: str) -> list[Any]:
    """Return a value for each source: one of its own, or the same for all."""
    if isinstance(value, int | np.integer | None):
        return [value] * number
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != number:
        raise RegardError(f"{name} is a number, or one for each of {number} sources, got {value!r}")
    return list(value)


def _view(source: Trace | AttentionView, chosen: dict[str, Any]) -> AttentionView:
    if isinstance(source, Trace):
        return select(source, **chosen)
    if any(chosen.values()):
        raise RegardError("a view is one map with its tokens: give figure no other selection")
    return source


def _every_head(source: Trace | AttentionView, batch: int, selection: dict[str, bool]) -> list[list[AttentionView]]:
    if not isinstance(source, Trace):
        raise RegardError("a figure of all heads is of traces, not of a view of one map")
    return [
        [each() for each in of_layer]
        for of_layer in lazy_heads(source, batch, selection["show_special_tokens"], selection["merge_subwords"])
    ]


def _check_shapes(views: list[list[list[AttentionView]]]) -> None:
    shapes = [[[view.weights.shape for view in of_layer] for of_layer in of_source] for of_source in views]
    if len(shapes) == 2 and shapes[0] != shapes[1]:
        (a, b), same = (found[0][0] for found in shapes), [len(of_layer) for of_layer in shapes[0]]
        if same != [len(of_layer) for of_layer in shapes[1]]:
            raise RegardError("A and B have different layers and heads, so they have no difference")
        raise RegardError(
            f"A has {a[0]} queries and {a[1]} keys, B has {b[0]} and {b[1]}: they have no difference; draw one of them"
        )


def _text_of(source: Trace | AttentionView, batch: int) -> str:
    return source.encodings[batch].text if isinstance(source, Trace) and len(source.encodings) > batch else ""


def _caption(
    views: list[AttentionView],
    texts: list[str],
    notes: Sequence[str],
    fonts: FontFallback,
    *,
    span: tuple[int, int] | None,
    all_heads: bool,
) -> str:
    """Return what a figure shows, in words."""

    def described(n: int, view: AttentionView) -> str:
        which = "every head" if all_heads else view.describe
        parts = [fonts.label(view.model, 60), which, *notes[n : n + 1]]
        return ", ".join(filter(None, parts))

    quoted = [f": “{fonts.label(text, _TEXT_COLUMNS)}”" if text else "" for text in texts]
    axes = "rows are queries, columns are keys"
    if len(views) == 1:
        of = described(0, views[0])
        said = [f"Attention weights{f' of {of}' if of else ''}{quoted[0]}; {axes}."]
    else:
        if quoted[0] == quoted[1]:
            quoted = [quoted[0], ""]
        said = [f"Attention weights; {axes}."]
        said += [_sentence(f"{'AB'[n]}: {described(n, view)}{quoted[n]}") for n, view in enumerate(views)]
        said.append("A − B is blue where A is larger and brown where B is.")
    if all_heads:
        said.append("Colours are on a square-root scale.")
    left_out = dict.fromkeys(token for view in views for token in view.special_tokens)
    if left_out:
        shares = [f"{view.special_mass.mean():.0%} of the attention" for view in views]
        if len(views) == 2:
            shares = [f"{shares[0]} in A", f"{shares[1].partition(' ')[0]} in B"]
        share = "" if all_heads else f", with {' and '.join(shares)}"
        said.append(f"Left out: {' and '.join(map(fonts.label, left_out))}{share}.")
    if span is not None:
        said.append(f"Only tokens {span[0]} to {span[1] - 1} are shown.")
    said.append(mask_note(views[0]).strip())
    return " ".join(filter(None, said))


def _sentence(text: str) -> str:
    return text if text.endswith((".”", "?”", "!”")) else f"{text}."
