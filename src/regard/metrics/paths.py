"""The paths behind a prediction: a small graph from the tokens through heads and feed-forward layers to a logit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard._utils.frames import Tabular
from regard._utils.validation import one_of, whole_number
from regard.metrics.activation_patching import same_length
from regard.metrics.attribution_target import Target, attributed_metric, encoding_of, require_decoder
from regard.metrics.edge_gradients import edge_gradients
from regard.metrics.edge_runs import EdgeRun, Reader
from regard.metrics.layer_maps import CancelCheck
from regard.metrics.path_search import Edges, PathSearch
from regard.metrics.writers import Writer
from regard.models.batch import OneText
from regard.nn.decoder import require_maps, require_sums
from regard.text.encoding import Encoding
from regard.text.token_labels import numbered_labels, token_labels
from regard.trace import Trace
from regard.trace.notebook_html import page, table, tokens_line

_STEPS = ("*embeddings", "*attn.context", "*mlp.output")
_FIXED = "position_embeddings"  # in every baseline those of the text
_EDGES = 30
_POINTS = 5  # of the quadrature
_LINES = 12  # of the tree in a repr
_ROUNDING = 1e-5  # of the difference that is explained: no estimate that is smaller is an edge

Replacement = Literal["mean", "zero"]


class PathEdge(NamedTuple):
    """An edge: what a writer writes into the residual stream, as a reader reads it.

    Parameters
    ----------
    writer : Writer
        The token embeddings, a head or a feed-forward layer.
    reader : Reader
    score : float
        The estimate of how much the number falls if the edge is cut.
    position : int
        The token at which most of that is read: of a query, a feed-forward layer and the logits the one that reads, of
        a key and a value the one that is read.
    token : str
        That token; one that the text has several times is numbered: ``"John:2"``.
    """

    writer: Writer
    reader: Reader
    score: float
    position: int
    token: str

    def __str__(self) -> str:
        return f"{self.score:+8.3f}  {self.writer.label} at {self.token!r} → {self.reader.label}"


@dataclass(frozen=True, eq=False)
class PredictionPaths(Tabular):
    """A number that a decoder predicts, and the edges through which most of it comes from the tokens.

    Nodes are the token embeddings, heads, feed-forward layers and the logits; each is one for all positions. An edge
    goes from what a node writes into the residual stream to a later reader of it: the query, the key or the value of a
    head, a feed-forward layer, or the logits. Every node is reached from the embeddings, and reaches the logits.

    Parameters
    ----------
    metric : str
        The number in words: ``"logit of ' Mary' minus that of ' John'"``.
    value : float
        That of the text.
    baseline : {"mean", "zero", "corrupted"}
        What cut edges carry: the mean over the tokens, 0, or what they carried in the run on the corrupted text.
    baseline_value : float
        The number where every edge is cut.
    graph_value : float
        That of the run in which all edges outside the graph are cut.
    rest_value : float
        That of the run in which the edges of the graph are cut and no others.
    edges : tuple of PathEdge
        The strongest first.
    encoding : Encoding
        The text as tokens.
    corrupted : Encoding or None
        The corrupted text as tokens, if there is one.
    """

    metric: str
    value: float
    baseline: Literal["mean", "zero", "corrupted"]
    baseline_value: float
    graph_value: float
    rest_value: float
    edges: tuple[PathEdge, ...]
    encoding: Encoding
    corrupted: Encoding | None

    @property
    def faithfulness(self) -> float:
        """The share of the number that remains with the graph alone: 1 is the whole run, 0 the baseline."""
        return self._share(self.graph_value)

    @property
    def lost(self) -> float:
        """The share of the number that is lost if only the graph is cut."""
        return 1 - self._share(self.rest_value)

    def _share(self, value: float) -> float:
        return (value - self.baseline_value) / (self.value - self.baseline_value)

    @cached_property
    def nodes(self) -> tuple[Writer, ...]:
        """The nodes, in the order in which they write, without the logits."""
        return tuple(sorted({edge.writer for edge in self.edges}, key=lambda w: (w.layer, w.kind != "head", w.index)))

    def into(self, node: Writer | None) -> tuple[PathEdge, ...]:
        """Return the edges into a node, the strongest first; None stands for the logits."""
        return tuple(edge for edge in self.edges if edge.reader.node == node)

    def tree(self) -> Iterator[tuple[int, PathEdge, bool]]:
        """Yield the graph from the logits to the tokens: the depth of each edge, the edge, and whether it is a repeat.

        The edges into a node follow the first edge that comes from it, and no other, a repeat.
        """
        seen: set[Writer] = set()
        stack = [(0, edge) for edge in reversed(self.into(None))]
        while stack:
            depth, edge = stack.pop()
            before = self.into(edge.writer)
            yield depth, edge, bool(before) and edge.writer in seen
            if edge.writer not in seen:
                seen.add(edge.writer)
                stack += [(depth + 1, each) for each in reversed(before)]

    def to_columns(self) -> dict[str, np.ndarray]:
        """Return a row for each edge: ``writer``, ``reader``, ``score``, and the ``position`` and ``token``."""
        return {
            "writer": np.array([edge.writer.label for edge in self.edges]),
            "reader": np.array([edge.reader.label for edge in self.edges]),
            "score": np.array([edge.score for edge in self.edges]),
            "position": np.array([edge.position for edge in self.edges], dtype=int),
            "token": np.array([edge.token for edge in self.edges]),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything as numbers, texts, lists and dicts, for JSON."""
        names = ("metric", "value", "baseline", "baseline_value", "graph_value", "rest_value", "faithfulness", "lost")
        columns = {name: values.tolist() for name, values in self.to_columns().items()}
        return {
            **{name: getattr(self, name) for name in names},
            "corrupted": None if self.corrupted is None else self.corrupted.text,
            "tokens": list(token_labels(self.encoding)),
            "nodes": [node.label for node in self.nodes],
            "edges": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        }

    def summary(self) -> str:
        """Return the numbers in a sentence."""
        replacements = {"mean": "means over the tokens", "zero": "zeros", "corrupted": "those of the corrupted text"}
        one = len(self.edges) == 1
        return (
            f"{self.metric} is {_four_digits(self.value)}; with all values replaced by {replacements[self.baseline]} "
            f"{_four_digits(self.baseline_value)}. The {'edge' if one else f'{len(self.edges)} edges'} alone "
            f"{'keeps' if one else 'keep'} {self.faithfulness:.0%} of the difference; cutting only "
            f"{'it' if one else 'them'} loses {self.lost:.0%}"
        )

    def __repr__(self) -> str:
        lines = [f"{'  ' * depth}{edge}{' …' * repeats}" for depth, edge, repeats in self.tree()]
        more = [f"… {len(lines) - _LINES} more"] if len(lines) > _LINES else []
        return "\n".join((f"<PredictionPaths: {self.summary()}>", *lines[:_LINES], *more))

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the tree."""
        rows = [
            (f"{'· ' * depth}{edge.writer.label}{' …' * repeats}", edge.token, edge.reader.label, f"{edge.score:+.3f}")
            for depth, edge, repeats in self.tree()
        ]
        return page(
            f"PredictionPaths: {self.summary()}",
            tokens_line(numbered_labels(self.encoding)),
            table(("writer", "at", "read by", "effect"), rows),
            try_next=("found.tree()", "found.to_frame()", "regard.plot.paths(found)"),
        )


def paths(
    model: Any,
    text: OneText,
    to: Target,
    versus: str | int | None = None,
    *,
    corrupted: OneText | None = None,
    baseline: Replacement | None = None,
    edges: int = _EDGES,
    check: CancelCheck = lambda: None,
) -> PredictionPaths:
    """Return the paths through which a prediction comes from the tokens, as a graph of at most some edges.

    Each edge has an estimate of what cutting it does: the change of what its writer writes, from the baseline to the
    text, times the gradient of the number with respect to what its reader reads, integrated along the straight line
    from the token embeddings of the baseline to those of the text (Gauss–Legendre quadrature at five points). What a
    writer adds to a reader is exact; the estimate is of what follows it. Then paths from the embeddings to the logits
    are added, that with the strongest weakest edge first: such as raise the number, as long as less of it remains with
    the graph alone than in the whole run, otherwise such as lower it. So `faithfulness` is what the graph was chosen
    by; `lost` is not, and checks it.

    The graph has fewer edges than asked for if no path is left: each edge of a path has the same sign, and estimates
    of at most 10⁻⁵ of the difference, which may be rounding, count as 0.

    Parameters
    ----------
    model : Decoder
    text : str, Encoding or ids
    to : str, int or function
        The next token, as text or id: its logit; or a function from the output of one text to one number.
    versus : str or int, optional
        Another next token, whose logit is subtracted.
    corrupted : str, Encoding or ids, optional
        A text of as many tokens: cut edges carry what they carried in the run on it.
    baseline : {"mean", "zero"}, optional
        Without a corrupted text: what each node writes is replaced by its mean over the tokens, the default, or by 0.
    edges : int
        The most edges of the graph.
    check : function
        Called between runs of the model, and between sublayers where gradients are taken; what it raises ends the
        computation.

    Raises
    ------
    RegardError
        The model is not a decoder, or its heads read latents (DeepSeek-V3); a text or token is not one; both
        `corrupted` and `baseline` are given; `to` and `versus` are the same token; the function returns something else
        than a number that depends on the text; a text of one token is to be replaced by its mean; the number is the
        same in both runs.

    References
    ----------
    Syed, Rager and Conmy (2023), "Attribution patching outperforms automated circuit discovery",
    https://arxiv.org/abs/2310.10348. Hanna, Pezzelle and Belinkov (2024), "Have faith in faithfulness",
    https://arxiv.org/abs/2403.17806.

    Examples
    --------
    >>> import regard
    >>> found = regard.load("induction").paths("qzkfqz", to="k", versus="f", corrupted="qxkfqz", edges=12)
    >>> len(found.edges), found.into(None)[0].writer.label
    (12, 'L1H2')
    >>> found.faithfulness > 0.8
    True
    """
    require_paths(model)
    edges = whole_number("edges", edges, 1)
    if corrupted is not None and baseline is not None:
        raise RegardError("corrupted and baseline both say what edges carry that are cut: give one of them")
    baseline = "mean" if baseline is None else baseline
    one_of("baseline", baseline, get_args(Replacement))
    if corrupted is None:
        encoding, other = encoding_of(model, text), None
        if len(encoding) == 1 and baseline == "mean":
            raise RegardError("a text of one token is its own mean: give a corrupted text, or zero as the baseline")
    else:
        encoding, other = same_length(model, text, corrupted)
    metric = attributed_metric(model, encoding, to, versus)
    run, output = _recorded(model, encoding)
    before = _replaced(run, baseline) if other is None else _recorded(model, other)[0]
    comparison = _Comparison(model, encoding, metric.compute, run, output, before, check)
    kept, graph_value = comparison.choose(edges)
    return PredictionPaths(
        metric=metric.name,
        value=comparison.value,
        baseline=baseline if other is None else "corrupted",
        baseline_value=comparison.baseline_value,
        graph_value=graph_value,
        rest_value=comparison.number(kept, cut=True),
        edges=tuple(sorted(map(comparison.edge, kept), key=lambda edge: -abs(edge.score))),
        encoding=encoding,
        corrupted=other,
    )


def require_paths(model: Any) -> None:
    """Raise RegardError unless a model is a decoder whose heads read its residual stream."""
    require_decoder(model)
    require_maps(model, "a graph of paths")
    require_sums(model, "a graph of paths")
    if any(hasattr(block.attn, "kv_latent") for block in model.blocks):
        raise RegardError(
            f"{model.name} has no such paths: its heads read latents, with a norm between, not the stream"
        )
    for i, block in enumerate(model.blocks):
        if block.attn.has_output_gate:
            raise RegardError(
                f"{model.name} has no such paths: the output gates of blocks.{i}.attn read the stream too"
            )


def _four_digits(value: float) -> str:
    """Return a number with its sign and four digits, zeros at the end among them: such stand side by side."""
    return f"{value:+#.4g}".removesuffix(".")


def _number(value: Any) -> float:
    return float(np.asarray(value).item())


def _recorded(model: Any, encoding: Encoding) -> tuple[Trace, Any]:
    trace = Trace(only=_STEPS)
    return trace, model([encoding], trace=trace)


def _replaced(run: Trace, by: Replacement) -> Trace:
    """Return a run with the mean over tokens, or 0, in the place of what each node writes."""
    trace = Trace()
    trace.set_metadata(run.model, run.encodings)
    for name, value in run.items():
        mean = np.broadcast_to(value.mean(-2, keepdims=True), value.shape) if by == "mean" else np.zeros_like(value)
        trace(name, value if name == _FIXED else mean, run.axes(name))
    return trace


class _Comparison:
    """A run on a text and a baseline, and the estimates of all edges between."""

    def __init__(
        self, model: Any, encoding: Encoding, compute: Any, run: Trace, output: Any, before: Trace, check: CancelCheck
    ) -> None:
        check()
        self.model, self.encoding, self.compute, self.check = model, encoding, compute, check
        self.run, self.before = run, EdgeRun(before)
        clean, written = EdgeRun(run).stream(model)[0], self.before.stream(model)[0]
        self.writers = clean.writers
        self.changes = (clean.values - written.values).astype(clean.dtype)  # N T E
        x, weights = np.polynomial.legendre.leggauss(_POINTS)
        embeddings, others = run["token_embeddings"], before["token_embeddings"]  # 1 T E
        points = others + (x[:, None, None] + 1) / 2 * (embeddings - others)
        check()
        by_reader = edge_gradients(model, encoding, compute, points, weights / 2, check)
        self.readers, self.gradients = tuple(by_reader), np.stack(list(by_reader.values()))  # R T E
        gradient_rows, change_rows = (each.reshape(len(each), -1) for each in (self.gradients, self.changes))
        scores = np.asarray(F.linear(gradient_rows, np.ascontiguousarray(change_rows).T), np.float64)
        scores[:, [not writer.is_node for writer in self.writers]] = 0
        for row, reader in zip(scores, self.readers, strict=True):
            row[self.before.counts.get((reader.kind, reader.layer), len(row)) :] = 0
        self.scores = scores  # R N
        self.value = _number(compute(output))  # which is one number, as its gradients are known

    @cached_property
    def baseline_value(self) -> float:
        value = self.number(set())
        if abs(self.value - value) <= 1e-6 * max(abs(self.value), abs(value), 1e-6):
            raise RegardError(
                f"the number is {self.value:.4g} for the text and for its baseline: there is nothing to explain"
            )
        return value

    def choose(self, count: int) -> tuple[Edges, float]:
        """Return the edges of the graph, and the number with all others cut."""
        places = {writer: i for i, writer in enumerate(self.writers)}
        nodes = np.array([-1 if reader.node is None else places[reader.node] for reader in self.readers])
        sources = {i for writer, i in places.items() if writer.kind == "token_embeddings"}
        difference = self.value - self.baseline_value
        shares = self.scores / difference
        search = PathSearch(np.where(np.abs(shares) > _ROUNDING, shares, 0), nodes, sources)
        share = search.grow(count, lambda edges: (self.number(edges) - self.baseline_value) / difference)
        return search.edges, self.baseline_value + share * difference

    def number(self, edges: Edges, *, cut: bool = False) -> float:
        """Return the number of a run in which some edges alone are kept, or, with `cut`, all others."""
        self.check()
        kept = {reader: np.full(len(self.writers), float(cut)) for reader in self.readers} if cut else {}
        for reader, writer in edges:
            kept.setdefault(self.readers[reader], np.zeros(len(self.writers)))[writer] = not cut
        hidden = self.before.with_edges(self.run, kept).vectors(self.model)
        return _number(self.compute(self.model.output(hidden, (self.encoding,))))

    def edge(self, edge: tuple[int, int]) -> PathEdge:
        """Return an edge with its estimate and where it is largest."""
        reader, writer = edge
        position = int(np.abs((self.gradients[reader] * self.changes[writer]).sum(-1)).argmax())
        score, token = float(self.scores[edge]), numbered_labels(self.encoding)[position]
        return PathEdge(self.writers[writer], self.readers[reader], score, position, token)
