"""The paths behind a prediction as a graph: tokens across, layers up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard._utils.errors import RegardError
from regard._utils.packages import needed
from regard.metrics import PredictionPaths
from regard.plot.fonts import find_fonts
from regard.plot.page import Page
from regard.plot.path_layout import GAP, PathLayout, path_rows
from regard.plot.style import Look, get_style
from regard.text.token_labels import numbered_labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDEST = 4.0  # points
_MAX_EDGES = 200


@needed("a figure")
def paths(graph: PredictionPaths, *, theme: str = "light") -> Figure:
    """Draw the graph of a prediction: the tokens below, nodes above the token at which they write most, logits on top.

    Parameters
    ----------
    graph : PredictionPaths
        Of `regard.metrics.paths`.
    theme : {"light", "dark"}

    Returns
    -------
    Figure
        A token in a box is where edges begin; one without names the column above it. Edges are as wide as their
        estimates are large; blue raises the number and brown lowers it. At a head they end at the left for the query,
        in the middle for the key, at the right for the value. An edge goes around the nodes between its ends.

    Raises
    ------
    RegardError
        There is no such theme, or the graph has more than 200 edges.
    """
    from matplotlib.patches import Rectangle

    style = get_style(theme)
    if len(graph.edges) > _MAX_EDGES:
        raise RegardError(f"the figure of paths has at most {_MAX_EDGES} edges, this graph has {len(graph.edges)}")
    tokens = numbered_labels(graph.encoding)
    fonts = find_fonts([*tokens, graph.metric])
    look = Look(fonts, style)
    places = path_rows(graph)
    feet = {place.token: fonts.label(tokens[place.token], 16) for place in places}
    names = {place: feet[place.token] if place.is_embedding else place.label for place in places}
    width = max(look.metrics.max_width([*names.values(), *feet.values()], look.medium.small), 0.3) + GAP
    layout = PathLayout.from_graph(graph, width)
    (W, H), height = layout.size, layout.box[1]
    largest = max((abs(edge.score) for edge in graph.edges), default=1.0)
    with look.rc_context():
        page = Page.new((W, H), look, title="Paths behind a prediction", note=fonts.label(graph.summary()))
        ax = page.axes(0, 0, W, H, xlim=(0, W), ylim=(0, H))
        ax.axis("off")
        for edge, *_, line in reversed(layout.edges):
            color = (style.sequential if edge.score > 0 else style.negative)[5]
            ax.plot(
                *line.T,
                color=color,
                linewidth=0.5 + _WIDEST * abs(edge.score) / largest,
                alpha=0.75,
                solid_capstyle="round",
                zorder=1,
            )
        for place, (x, y) in layout.centers.items():
            corner = x - width / 2, y - height / 2
            ax.add_patch(
                Rectangle(
                    corner, width, height, facecolor=style.background, edgecolor=look.frame, linewidth=0.8, zorder=2
                )
            )
            ax.text(x, y, names[place], ha="center", va="center_baseline", size=look.medium.small, zorder=3)
        for column, x in layout.feet.items():
            size = look.medium.small
            ax.text(x, height, feet[column], ha="center", va="center_baseline", size=size, color=style.muted)
    return page.figure
