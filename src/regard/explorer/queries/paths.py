"""The paths behind a next token, as the page draws them: a graph of `regard.metrics.paths`, laid out as its figure."""

from __future__ import annotations

import unicodedata
from typing import TypeAlias, TypedDict

import numpy as np

from regard import metrics
from regard._utils.errors import RegardError
from regard.explorer.codec import short
from regard.explorer.queries.next_tokens import logits_at
from regard.explorer.queries.why import ScoreWriter, written_by
from regard.explorer.query import Exploration, query
from regard.explorer.run import Run
from regard.metrics import PredictionPaths
from regard.metrics.activation_patching import same_length
from regard.metrics.layer_maps import CancelCheck
from regard.metrics.paths import require_paths
from regard.text.token_labels import numbered_labels
from regard.views.next_tokens import likely_tokens

_Question: TypeAlias = tuple[int, int, int | None, str | None, str | None]  # with the default of the corrupted text
_MAX_BYTES = 2_000_000_000
_BYTES_PER_GRADIENT = 60  # measured with SmolLM2: for each number that a head's query, key or value, or an MLP reads
_INCH = 110.0  # pixels: a box is 24 high, which a finger hits
_LETTER = 7.0  # pixels
_MAX_LETTERS = 16  # of the name of a token


class PathNode(ScoreWriter):
    """A node of a graph of paths, with the token at which it stands and its center."""

    token: int
    x: float
    y: float


class PathEdge(TypedDict):
    """An edge between two nodes, by their places in the list; its line is a path of SVG.

    ``token`` is where most of it is read, ``score`` the estimate of how much the number falls without it.
    """

    writer: int
    reader: int
    read_by: str
    token: int
    score: float
    line: str


class PathGraph(TypedDict):
    """A graph of paths, in pixels from its upper left corner; ``feet`` are the tokens at which no edge begins."""

    width: float
    height: float
    box: tuple[float, float]
    nodes: list[PathNode]
    feet: list[tuple[int, float]]
    edges: list[PathEdge]


class Paths(TypedDict):
    """The paths behind a next token; ``tree`` is a row of depth, edge, and whether it is a repeat.

    ``is_default`` tells whether the corrupted text, or none, is what is compared with where none is named.
    """

    position: int
    token: int
    versus: int | None
    corrupted: str | None
    is_default: bool
    summary: str
    faithfulness: float
    graph: PathGraph
    tree: list[tuple[int, int, bool]]


def has_paths(run: Run) -> bool:
    """Tell whether the paths behind a prediction of a run can be asked for."""
    try:
        _require_paths(run)
    except RegardError:
        return False
    return True


def _require_paths(run: Run) -> None:
    if run.model is None or run.encoding is None:
        raise RegardError("the paths behind a prediction need a model: explore a text with one, not a saved trace")
    require_paths(run.model)
    if run.ablated:
        raise RegardError("the paths behind a prediction are those of the model with all its heads: choose A")


@query(slow=True)
def paths(
    exploration: Exploration,
    run: int,
    *,
    position: int | None = None,  # that the next token follows; by default the last
    token: int | None = None,  # the next token by its id, by default the likeliest
    versus: int | None = None,  # another one, whose logit is subtracted
    corrupted: str | None = None,  # by default the text that this one is compared with, if it has as many tokens
    check: CancelCheck = lambda: None,
) -> Paths:
    """Return the paths through which a next token comes from the text, as a graph; see `regard.metrics.paths`.

    Without a corrupted text what is cut is replaced by its mean over the tokens. The last 8 graphs are kept, and an
    exported page holds them. `check` is called between runs of the model.

    An error if the run has no decoder, is an ablation or too long; or there is no such position, token or text.
    """
    recorded = exploration.run(run)
    position = recorded.position(position)
    logits, tokenizer = logits_at(recorded, position), recorded.model.tokenizer
    token = likely_tokens(logits, tokenizer, top=1)[0].id if token is None else token
    default = exploration.other_text(run) if run in exploration.numbers else None
    if default is not None:
        assert recorded.encoding is not None  # there would be no logits
        ids, other = recorded.encoding.ids, tokenizer(default).ids
        if len(other) != len(ids) or other[: position + 1] == ids[: position + 1]:
            default = None
    question: _Question = position, token, versus, default if corrupted is None else corrupted, default
    return exploration.paths_kept.compute((run, *question), lambda: _paths(recorded, question, check))


def kept_paths(exploration: Exploration, run: int) -> list[Paths]:
    """Return the graphs of a run that were computed, for an exported page."""
    return [graph for (number, *_), graph in exploration.paths_kept.items() if number == run]


def _paths(run: Run, question: _Question, check: CancelCheck) -> Paths:
    position, token, versus, corrupted, default = question
    _require_paths(run)
    assert run.encoding is not None
    end = position + 1
    inputs = sum(3 * len(layer.heads) + 1 for layer in run.layers)
    needed = _BYTES_PER_GRADIENT * inputs * end * run.output.hidden.shape[-1]
    if needed > _MAX_BYTES:
        raise RegardError(
            f"the paths behind a prediction after {end:,} tokens take {needed / 1e9:.1f} GB, more than "
            f"{_MAX_BYTES / 1e9:.1f} GB: choose a word further up, or a shorter text"
        )
    if end == 1 and corrupted is None:
        raise RegardError("the first word is its own mean: choose a later one, or compare with another text")
    replaced = None if corrupted is None else same_length(run.model, run.encoding, corrupted)[1].ids[:end]
    with np.errstate(all="ignore"):
        graph = metrics.paths(run.model, run.encoding.ids[:end], token, versus, corrupted=replaced, check=check)
    return {
        "position": position,
        "token": token,
        "versus": versus,
        "corrupted": corrupted,
        "is_default": corrupted == default,
        "summary": graph.summary(),
        "faithfulness": short(graph.faithfulness, 4),
        "graph": _drawn(run, graph),
        "tree": [(depth, graph.edges.index(edge), repeats) for depth, edge, repeats in graph.tree()],
    }


def _drawn(run: Run, graph: PredictionPaths) -> PathGraph:
    from regard.plot.path_layout import GAP, PathLayout, Place, path_rows

    assert run.encoding is not None
    tokens = numbered_labels(run.encoding)

    def node_of(place: Place, center: tuple[float, float]) -> PathNode:
        logits: ScoreWriter = {"label": place.label, "kind": "logits", "layer": None, "head": None}
        writer = logits if place.node is None else written_by(run, place.node)
        return {**writer, "token": place.token, "x": _pixels(center[0]), "y": _pixels(height - center[1])}

    names = [tokens[place.token][:_MAX_LETTERS] if place.is_embedding else place.label for place in path_rows(graph)]
    layout = PathLayout.from_graph(graph, max(map(_width, names)) / _INCH + GAP)
    width, height = layout.size
    places = {place: number for number, place in enumerate(layout.centers)}
    return {
        "width": _pixels(width),
        "height": _pixels(height),
        "box": (_pixels(layout.box[0]), _pixels(layout.box[1])),
        "nodes": [node_of(*each) for each in layout.centers.items()],
        "feet": [(token, _pixels(x)) for token, x in layout.feet.items()],
        "edges": [
            {
                "writer": places[start],
                "reader": places[end],
                "read_by": edge.reader.label,
                "token": edge.position,
                "score": short(edge.score, 4),
                "line": "M" + "L".join(f"{_pixels(x):g} {_pixels(height - y):g}" for x, y in line),
            }
            for edge, start, end, line in layout.edges
        ],
    }


def _pixels(inches: float) -> float:
    return round(_INCH * float(inches), 1)


def _width(name: str) -> float:
    """Return about how wide a name is."""
    return _LETTER * sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in name)
