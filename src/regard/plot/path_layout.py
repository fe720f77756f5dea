"""Where a graph of paths is drawn, in figures and in the explorer: tokens across, layers up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from regard.metrics import PathEdge, PredictionPaths, Writer
from regard.plot.edge_routes import EdgeRoutes

# Lengths are in inches.
GAP = 0.1
"""From a box to the next, and from its sides to its name together."""

_BOX = 0.22  # the height of a box
_ROW = 0.5
_PORTS = {"q": -0.3, "k": 0.0, "v": 0.3}  # where an edge ends at a head, in widths of its box
_TOKENS = -1  # the row of the tokens; those of nodes follow


class Place(NamedTuple):
    """A node, None for the logits, and the token at which it stands: the embeddings stand at several."""

    node: Writer | None
    token: int

    @property
    def is_embedding(self) -> bool:
        """Whether the token itself stands there."""
        return self.node is not None and self.node.kind == "token_embeddings"

    @property
    def label(self) -> str:
        """The name of the node."""
        return "logits" if self.node is None else self.node.label


class PlacedEdge(NamedTuple):
    """An edge, where it begins and ends, and the points of its line, ``N 2``."""

    edge: PathEdge
    start: Place
    end: Place
    line: np.ndarray


@dataclass(frozen=True, eq=False)
class PathLayout:
    """The boxes and lines of a graph: nodes above the token at which they write most, logits on top.

    Places are from the lower left corner. An edge goes around the boxes between its ends; at a head it ends at the left
    for the query, in the middle for the key, at the right for the value.

    Parameters
    ----------
    size : pair of float
        Width and height of it all.
    box : pair of float
        Those of each box.
    centers : dict of Place to pair of float
        Of the boxes.
    feet : dict of int to float
        The x of the middle of each column at whose foot no edge begins, by its token.
    edges : list of PlacedEdge
        The strongest first.
    """

    size: tuple[float, float]
    box: tuple[float, float]
    centers: dict[Place, tuple[float, float]]
    feet: dict[int, float]
    edges: list[PlacedEdge]

    @classmethod
    def from_graph(cls, graph: PredictionPaths, width: float) -> PathLayout:
        """Return the layout with boxes of a width."""
        rows = path_rows(graph)
        levels = {row: i for i, row in enumerate(sorted({_TOKENS, *rows.values()}))}
        cells = Counter((rows[place], place.token) for place in rows)
        lefts, feet, right = {}, {}, 0.0
        for column in sorted({place.token for place in rows}):
            lefts[column] = right
            right += max(count for (_, at), count in cells.items() if at == column) * (width + GAP) + GAP
            if (_TOKENS, column) not in cells:
                feet[column] = (lefts[column] + right) / 2
        filled: Counter[tuple[int, int]] = Counter()
        centers: dict[Place, tuple[float, float]] = {}
        for place in sorted(rows, key=lambda each: (rows[each], each.label, each.token)):
            cell = rows[place], place.token
            x = lefts[place.token] + GAP + filled[cell] * (width + GAP) + width / 2
            centers[place] = x, levels[rows[place]] * _ROW + _BOX
            filled[cell] += 1
        boxes: list[list[float]] = [[] for _ in levels]
        for place, (x, _) in centers.items():
            boxes[levels[rows[place]]].append(x)
        routes = EdgeRoutes(boxes, (width, _BOX), _ROW)
        edges = []
        for edge in graph.edges:  # the strongest first, nearest to a straight line
            start, end = _start_of(graph, edge), _place_of(graph, edge.reader.node)
            port = centers[end][0] + _PORTS.get(edge.reader.kind, 0.0) * width
            line = routes.add((levels[rows[start]], centers[start][0]), (levels[rows[end]], port))
            edges.append(PlacedEdge(edge, start, end, line))
        left = min([0.0, *(line[:, 0].min() - GAP for *_, line in edges)])
        right = max([right, *(line[:, 0].max() for *_, line in edges)]) + GAP
        return cls(
            size=(right - left, len(levels) * _ROW),
            box=(width, _BOX),
            centers={place: (x - left, y) for place, (x, y) in centers.items()},
            feet={column: x - left for column, x in feet.items()},
            edges=[each._replace(line=each.line - [left, 0]) for each in edges],
        )


def path_rows(graph: PredictionPaths) -> dict[Place, int]:
    """Return the places of a graph, and the row of each."""
    rows: dict[Place, int] = {}
    for edge in graph.edges:
        place, node = _start_of(graph, edge), edge.writer
        rows[place] = _TOKENS if place.is_embedding else 2 * node.layer + (node.kind != "head")
    rows[_place_of(graph, None)] = max(rows.values(), default=_TOKENS) + 1
    return rows


def _start_of(graph: PredictionPaths, edge: PathEdge) -> Place:
    """Return where an edge begins: at a token, or at the node that writes."""
    place = Place(edge.writer, edge.position)
    return place if place.is_embedding else _place_of(graph, edge.writer)


def _place_of(graph: PredictionPaths, node: Writer | None) -> Place:
    """Return where a node stands: at the token where most of it is read; the logits at the last one."""
    if node is None:
        return Place(None, len(graph.encoding) - 1)
    total: Counter[int] = Counter()
    for edge in graph.edges:
        if edge.writer == node:
            total[edge.position] += abs(edge.score)  # type: ignore[assignment]
    return Place(node, max(total, key=lambda at: (total[at], -at)))
