"""Why a token attends to another: a score as an exact sum over pairs of writers of the two residual streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard._utils.frames import Tabular
from regard._utils.validation import whole_number
from regard.functional.scores.stages import Stage
from regard.metrics.attended_cell import INSIDE, AttendedCell, By
from regard.metrics.writers import Writer
from regard.trace.notebook_html import page, sizes_picture, table
from regard.trace.recorded_steps import RecordedSteps

_TERMS: dict[str, Stage] = {"softcap": "capped", "bias": "biased"}
"""What is added to a score, by the stage after it."""
_ROWS = 10  # pairs of a table
_MOST_PAIRS = 1 << 26  # of the matrix
_BLOCK = 256  # queries of `top` at a time


class ScorePair(NamedTuple):
    """A term of a score: what a writer of the query and a writer of the key add to it together."""

    query: Writer
    key: Writer
    value: float

    def __str__(self) -> str:
        return f"{self.value:+9.3f}  {self.query.label} (query) · {self.key.label} (key)"


@dataclass(frozen=True, eq=False)
class ScoreAttribution(Tabular):
    """A score, or a difference of two, as a sum over pairs of writers of the two residual streams.

    ``pairs.sum()`` is `score`, with the scales of all norms between held at their values of this run (frozen), also
    those of queries and keys, as in `logit_attribution`. `score` and the numbers in `terms` sum to what the softmax
    reads.

    Parameters
    ----------
    attention : str
        The name of the attention, ``blocks.3.attn``.
    head, query, key : int
    versus : int or None
        Another key, whose score is subtracted.
    tokens : tuple of str
        Those of the query, the key and, if there is one, `versus`.
    query_writers, key_writers : tuple of Writer
        ``N`` and ``M``. Those of kind ``"bias"`` hold what does not depend on the text.
    q_parts, k_parts : array, ``N D`` and ``M D``
        What each writes into the query and the key after norm and rotary embedding: their sums are both vectors. With
        `versus`, `k_parts` are of the difference of two keys.
    scale : float
        Of the scores.
    score : float
        Of the run: q · k × scale, before a soft cap.
    terms : dict of str to float
        What is added to it: ``"softcap"``, the change by a soft cap, and ``"bias"``, a position bias such as ALiBi, or
        that of T5 and DeBERTa.
    weight : float
        That of the key in the run; with `versus` the difference.
    """

    attention: str
    head: int
    query: int
    key: int
    versus: int | None
    tokens: tuple[str, ...]
    query_writers: tuple[Writer, ...]
    key_writers: tuple[Writer, ...]
    q_parts: np.ndarray
    k_parts: np.ndarray
    scale: float
    score: float
    terms: Mapping[str, float]
    weight: float

    @cached_property
    def pairs(self) -> np.ndarray:
        """What each pair adds to the score, ``N M``.

        Raises
        ------
        RegardError
            There are more than 67 million: use `top`, `queries` and `keys`, which do not need the matrix.
        """
        if len(self.query_writers) * len(self.key_writers) > _MOST_PAIRS:
            raise RegardError(
                f"there are {len(self.query_writers):,} × {len(self.key_writers):,} pairs, too many for a matrix: read "
                "top(n), queries or keys"
            )
        return np.asarray(F.score_pairs(self.q_parts, self.k_parts, scale=self.scale))

    @cached_property
    def queries(self) -> np.ndarray:
        """What each writer of the query adds, summed over those of the key, ``N``."""
        return np.asarray(self.q_parts @ self.k_parts.sum(0) * self.scale)

    @cached_property
    def keys(self) -> np.ndarray:
        """What each writer of the key adds, summed over those of the query, ``M``."""
        return np.asarray(self.k_parts @ self.q_parts.sum(0) * self.scale)

    @property
    def constant(self) -> float:
        """What pairs of two biases add: the part of the score that depends on no token."""
        q, k = (
            parts[[writer.kind == "bias" for writer in writers]].sum(0)
            for parts, writers in ((self.q_parts, self.query_writers), (self.k_parts, self.key_writers))
        )
        return float(q @ k * self.scale)

    @property
    def total(self) -> float:
        """The sum of all pairs: `score`, but for rounding."""
        return float(self.q_parts.sum(0) @ self.k_parts.sum(0) * self.scale)

    def top(self, n: int = _ROWS) -> tuple[ScorePair, ...]:
        """Return the n pairs that add or take away most, the largest first."""
        n = min(whole_number("n", n, 1), len(self.query_writers) * len(self.key_writers))
        q_lengths, k_lengths = (np.linalg.norm(x, axis=1) for x in (self.q_parts, self.k_parts))
        q_order, k_order = (np.argsort(-lengths, kind="stable") for lengths in (q_lengths, k_lengths))
        rows, columns, values = (np.zeros(0, int), np.zeros(0, int), np.zeros(0))
        for start in range(0, len(q_order), _BLOCK):
            block, least = q_order[start : start + _BLOCK], 0.0
            if len(values) == n:  # |q · k| ≤ |q| |k|: those of shorter vectors are smaller
                least = float(np.abs(values).min())
            reach = q_lengths[block[0]] * k_lengths[k_order] * abs(self.scale) >= least
            near = k_order[: int(reach.sum())]
            block_values = F.score_pairs(self.q_parts[block], self.k_parts[near], scale=self.scale)
            rows = np.concatenate([rows, np.repeat(block, len(near))])
            columns = np.concatenate([columns, np.tile(near, len(block))])
            values = np.concatenate([values, block_values.ravel()])
            size, nth = np.abs(values), max(0, len(values) - n)
            largest = np.flatnonzero(size >= np.partition(size, nth)[nth])
            largest = largest[np.lexsort((columns[largest], rows[largest], -size[largest]))][:n]
            rows, columns, values = rows[largest], columns[largest], values[largest]
        return tuple(
            ScorePair(self.query_writers[row], self.key_writers[column], float(value))
            for row, column, value in zip(rows, columns, values, strict=True)
        )

    def to_columns(self) -> dict[str, np.ndarray]:
        """Return a row for each pair, the largest first: ``query_writer``, ``key_writer``, ``contribution``."""
        order = np.argsort(-np.abs(self.pairs), axis=None, kind="stable")
        rows, columns = np.unravel_index(order, self.pairs.shape)
        return {
            "query_writer": np.array([writer.label for writer in self.query_writers])[rows],
            "key_writer": np.array([writer.label for writer in self.key_writers])[columns],
            "contribution": self.pairs[rows, columns],
        }

    def __repr__(self) -> str:
        return "\n".join((f"<{self._summary()}>", *(f"  {pair}" for pair in self.top())))

    def _summary(self) -> str:
        query, key, *other = (repr(token[:40]) for token in self.tokens)
        than = f" rather than to {other[0]}" if other else ""
        more = "".join(f", {name} {value:+.4g}" for name, value in self.terms.items())
        size = f"{len(self.query_writers)} × {len(self.key_writers)} pairs"
        return (
            f"ScoreAttribution of {self.attention} head {self.head}: {query} attends to {key}{than}, score "
            f"{self.score:+.4g} = {size}{more}; norm scales frozen"
        )

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the largest pairs, and the matrix of the largest writers."""
        shown = [
            np.array(sorted(np.argsort(-np.abs(each), kind="stable")[:_ROWS])) for each in (self.queries, self.keys)
        ]
        part = F.score_pairs(self.q_parts[shown[0]], self.k_parts[shown[1]], scale=self.scale)
        caption = "size of pairs: the largest writers of the query down, of the key across"
        return page(
            self._summary(),
            table(
                ("writer of the query", "writer of the key", f"of {self.score:+.3f}"),
                [(pair.query.label, pair.key.label, f"{pair.value:+.3f}") for pair in self.top()],
            ),
            sizes_picture(part, caption),
            try_next=("why.top(20)", "why.queries", "why.keys", "why.to_frame()"),
        )


def why(
    trace: RecordedSteps,
    layer: int | str,
    head: int,
    query: int | str,
    key: int | str,
    versus: int | str | None = None,
    *,
    by: By = "head",
    batch: int = 0,
    model: Any = None,
) -> ScoreAttribution:
    """Return a score as the sum over pairs of a writer of the query's residual stream and one of the key's.

    Writers are the embeddings, each head, each feed-forward layer (each expert of a mixture) and each bias of the
    layers before. A norm divides each vector by its own size, which depends on all writers; here the scale of every
    norm between is held at its value of this run, and with it queries and keys are linear in what was written. The
    sum is exact; what it says about the effect of a writer holds as far as the scales would stay as they are.

    Parameters
    ----------
    trace : Trace
        Of a run, with the steps `WHY_STEPS`; all are recorded by default. The run is not repeated.
    layer : int or str
        The layer, from 0; or the name of an attention, ``"decoder.blocks.1.cross_attn"``, as an encoder–decoder needs.
    head : int
        From 0; `layer` may name any attention, so there is no ``"L3H7"`` here.
    query, key : int or str
        Positions, negative ones from the end; or a token that the text has once, as text.
    versus : int or str, optional
        Another key: the result is of the difference of both scores, in which whatever both keys share cancels.
    by : {"head", "token"}
        With ``"token"`` a head is one writer for each token that it reads.
    batch : int
        The text.
    model : optional
        What the trace is of; that of the run by default, which a trace from a file does not have.

    Raises
    ------
    RegardError
        There is no such attention, head or token, or the query does not attend to the key; the attention has no scores;
        or the trace lacks a step or its model, or has values that are not finite.

    References
    ----------
    Elhage et al. (2021), "A mathematical framework for transformer circuits",
    https://transformer-circuits.pub/2021/framework.

    Examples
    --------
    >>> import regard
    >>> model, trace = regard.load("induction"), regard.Trace()
    >>> _ = model("qzkfqz", trace=trace)
    >>> score = trace.why(1, 0, query=5, key=2)  # the second z, and what follows the first
    >>> bool(abs(score.pairs.sum() - trace["blocks.1.attn.scores"][0, 0, 5, 2]) < 1e-4)
    True
    """
    keys = [key] if versus is None else [key, versus]
    cell = AttendedCell.find(trace, layer, head, query, keys, batch, model)
    projected = cell.project(by)
    cell.check_unedited(*INSIDE)
    scores = cell.require("scores")[0]
    cell.check_attended()
    terms = _terms(cell, scores)
    query_writers, q_parts = cell.query_parts(projected)
    key_writers, k_parts = cell.key_parts(projected)
    q, k = q_parts.sum(0), k_parts.sum(0)  # D and K D
    size = projected.scale * np.linalg.norm(q) * np.linalg.norm(k, axis=1).max()
    cell.check_sum("scores", k @ q * projected.scale, scores, max(size, np.abs(scores).max()))
    weights = cell.recorded("weights")
    return ScoreAttribution(
        attention=cell.name,
        head=cell.head,
        query=cell.query,
        key=cell.keys[0],
        versus=None if versus is None else cell.keys[1],
        tokens=cell.tokens,
        query_writers=query_writers,
        key_writers=key_writers,
        q_parts=q_parts,
        k_parts=_difference(k_parts.swapaxes(0, 1)),
        scale=projected.scale,
        score=float(_difference(scores)),
        terms=terms,
        weight=float("nan") if weights is None else float(_difference(weights[0])),
    )


def _terms(cell: AttendedCell, scores: np.ndarray) -> dict[str, float]:
    """Return what a soft cap and a position bias add to the scores."""
    terms = {}
    for name, stage in _TERMS.items():
        rows = cell.recorded(stage)
        if rows is None:
            continue
        change = float(_difference(rows[0] - scores))
        if change:
            terms[name] = change
        scores = rows[0]
    return terms


def _difference(values: Any) -> Any:
    """Return the only value, or the first less the second."""
    return values[0] if len(values) == 1 else values[0] - values[1]
