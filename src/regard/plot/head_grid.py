"""A grid of the maps of all heads, on one colour scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard._utils.errors import RegardError
from regard._utils.packages import needed
from regard.plot import captions
from regard.plot.fonts import find_fonts
from regard.plot.head_panels import HeadPanels
from regard.plot.page import Page
from regard.plot.style import Look, get_style
from regard.trace import Trace
from regard.views.selection import lazy_heads

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_AVAILABLE, _PITCH = (11.0, 14.0), (0.52, 2.7)  # inches
_TEXT_COLUMNS = 100


@needed("a figure")
def head_grid(
    trace: Trace,
    *,
    batch: int = 0,
    show_special_tokens: bool = False,
    merge_subwords: bool = False,
    theme: str = "light",
    figure: Figure | None = None,
) -> Figure:
    """Draw the maps of all heads, one row of panels a layer, on one colour scale.

    The scale is the square root of the weight, so that the patterns of heads with small and with large weights are both
    visible; `heatmap` has a linear scale.

    If special tokens are left out, the bar and the number below a panel are the share of the head's attention on them:
    a pale panel above a long bar is a head that attends to ``[SEP]``.

    Parameters
    ----------
    trace, batch, show_special_tokens, merge_subwords
        As in `select`.
    theme : {"light", "dark"}
    figure : Figure, optional
        Is cleared and resized. Default: a new figure.

    Returns
    -------
    Figure

    Raises
    ------
    RegardError
        There are no weights, or no such batch entry or theme.
    """
    from matplotlib.figure import Figure

    if figure is not None and not isinstance(figure, Figure):
        raise RegardError("head_grid sets the size of its figure: give a Figure, not a SubFigure")
    style = get_style(theme)
    heads = lazy_heads(trace, batch, show_special_tokens, merge_subwords)
    view = heads[0][0]()
    text = trace.encodings[batch].text if trace.encodings else " ".join(view.queries)
    fonts = find_fonts([text, *view.special_tokens, view.model])
    look, has_shares = Look(fonts, style), bool(view.special_tokens)
    panels = HeadPanels([heads], _AVAILABLE, _PITCH, look, with_shares=has_shares)
    notes = (
        f"Each row attends to the columns: {captions.quoted(text, fonts, _TEXT_COLUMNS)}",
        captions.joined(
            "" if panels.meaning else captions.SQUARE_ROOT,
            captions.left_out(view.special_tokens, fonts, where="grey bars: their share of each head's attention"),
            captions.masked(view),
            panels.note,
        ),
    )
    title = captions.titled("Attention of every head", view.model, fonts)
    with look.rc_context():
        page = Page.new(panels.size, look, title=title, note="\n".join(notes), figure=figure)
        panels.draw(page)
    return page.figure
