"""The paths behind a prediction as a graph: tokens across, layers up."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from regard._utils.errors import RegardError
from regard.metrics import PathEdge, PredictionPaths, Writer
from regard.plot.edge_routes import EdgeRoutes
from regard.plot.fonts import find_fonts
from regard.plot.page import Page
from regard.plot.style import Look, get_style
from regard.text.token_labels import numbered_labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Lengths are in inches.
_BOX, _ACROSS, _ROW, _WIDEST = 0.22, 0.1, 0.5, 4.0
_PORTS = {"q": -0.3, "k": 0.0, "v": 0.3}  # where an edge ends at a head, in widths of its box
_MAX_EDGES = 200
_LOGITS, _TOKENS = "logits", -1  # the row of the tokens; those of nodes follow

Place = tuple[str, int]  # a node by its label, and the token at which it stands


def paths(found: PredictionPaths, *, theme: str = "light") -> Figure:
    """Draw the graph of a prediction: the tokens below, nodes above the token at which they write most, logits on top.

    Parameters
    ----------
    found : PredictionPaths
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
    if len(found.edges) > _MAX_EDGES:
        raise RegardError(f"the figure of paths has at most {_MAX_EDGES} edges, this graph has {len(found.edges)}")
    tokens = numbered_labels(found.encoding)
    fonts = find_fonts([*tokens, found.metric])
    look = Look(fonts, style)
    columns, rows = _places(found)
    names = {place: fonts.label(tokens[place[1]], 16) if rows[place] == _TOKENS else place[0] for place in rows}
    feet = {column: fonts.label(tokens[column], 16) for column in columns}
    labels = [*names.values(), *feet.values()]
    width = max(look.metrics.max_width(labels, look.medium.small), 0.3) + _ACROSS
    cells = Counter((rows[place], place[1]) for place in rows)
    lefts, middles, right = {}, {}, 0.0
    for column in columns:
        lefts[column] = right
        right += max(count for (_, at), count in cells.items() if at == column) * (width + _ACROSS) + _ACROSS
        middles[column] = (lefts[column] + right) / 2
    levels = {row: i for i, row in enumerate(sorted({_TOKENS, *rows.values()}))}
    filled: Counter[tuple[int, int]] = Counter()
    centers: dict[Place, tuple[float, float]] = {}
    for place in sorted(rows, key=lambda each: (rows[each], each)):
        cell = rows[place], place[1]
        x = lefts[place[1]] + _ACROSS + filled[cell] * (width + _ACROSS) + width / 2
        centers[place] = x, levels[rows[place]] * _ROW + _BOX
        filled[cell] += 1
    boxes: list[list[float]] = [[] for _ in levels]
    for place, (x, _) in centers.items():
        boxes[levels[rows[place]]].append(x)
    routes = EdgeRoutes(boxes, (width, _BOX), _ROW)
    lines = []
    for edge in found.edges:  # the strongest first, nearest to a straight line
        start, end = _start_of(found, edge), _place_of(found, edge.reader.node)
        port = centers[end][0] + _PORTS.get(edge.reader.kind, 0.0) * width
        lines.append(routes.add((levels[rows[start]], centers[start][0]), (levels[rows[end]], port)))
    left = min([0.0, *(line[:, 0].min() - _ACROSS for line in lines)])
    right = max([right, *(line[:, 0].max() for line in lines)]) + _ACROSS
    W, H = right - left, len(levels) * _ROW
    largest = max((abs(edge.score) for edge in found.edges), default=1.0)
    with look.rc_context():
        page = Page.new((W, H), look, title="Paths behind a prediction", note=fonts.label(found.summary()))
        ax = page.axes(0, 0, W, H, xlim=(left, right), ylim=(0, H))
        ax.axis("off")
        for edge, line in zip(reversed(found.edges), reversed(lines), strict=True):
            color = (style.sequential if edge.score > 0 else style.negative)[5]
            ax.plot(
                *line.T,
                color=color,
                linewidth=0.5 + _WIDEST * abs(edge.score) / largest,
                alpha=0.75,
                solid_capstyle="round",
                zorder=1,
            )
        for place, (x, y) in centers.items():
            corner = x - width / 2, y - _BOX / 2
            ax.add_patch(
                Rectangle(
                    corner, width, _BOX, facecolor=style.background, edgecolor=look.frame, linewidth=0.8, zorder=2
                )
            )
            ax.text(x, y, names[place], ha="center", va="center_baseline", size=look.medium.small, zorder=3)
        for column in columns:
            if (_TOKENS, column) not in cells:  # where no edge begins
                label, size = feet[column], look.medium.small
                ax.text(middles[column], _BOX, label, ha="center", va="center_baseline", size=size, color=style.muted)
    return page.figure


def _places(found: PredictionPaths) -> tuple[list[int], dict[Place, int]]:
    """Return the tokens at which there is something, and the row of each node."""
    rows: dict[Place, int] = {}
    for edge in found.edges:
        node = edge.writer
        is_token = node.kind == "token_embeddings"
        rows[_start_of(found, edge)] = _TOKENS if is_token else 2 * node.layer + (node.kind != "head")
    rows[_place_of(found, None)] = max(rows.values(), default=_TOKENS) + 1
    return sorted({at for _, at in rows}), rows


def _start_of(found: PredictionPaths, edge: PathEdge) -> Place:
    """Return where an edge begins: at a token, or at the node that writes."""
    if edge.writer.kind == "token_embeddings":
        return "", edge.position
    return _place_of(found, edge.writer)


def _place_of(found: PredictionPaths, node: Writer | None) -> Place:
    """Return where a node stands: at the token where most of it is read; the logits at the last one."""
    if node is None:
        return _LOGITS, len(found.encoding) - 1
    total: Counter[int] = Counter()
    for edge in found.edges:
        if edge.writer == node:
            total[edge.position] += abs(edge.score)  # type: ignore[assignment]
    return node.label, max(total, key=lambda at: (total[at], -at))
