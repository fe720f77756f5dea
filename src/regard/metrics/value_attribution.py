"""What a head moves from one token to another: a value as the sum of what was written, and what reads it later."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.frames import Tabular
from regard._utils.validation import one_of, whole_number
from regard.metrics.attended_cell import AttendedCell, By, attention_name, columns_at
from regard.metrics.attribution_target import next_token_pair, predicts_tokens
from regard.metrics.logit_attribution import unembedding_rows
from regard.metrics.replay import Replay, layer_of, project, replay
from regard.metrics.writers import Parts, Values, Writer
from regard.trace.notebook_html import page, table
from regard.trace.recorded_steps import RecordedSteps

_ROWS = 10  # writers of a table
_CARRIED = "carried"  # the kind of the writers of what is followed


@dataclass(frozen=True, eq=False)
class ValueAttribution(Tabular):
    """What a head adds to a query because it attends to a key, by who wrote the value of the key.

    ``values.sum(0)`` is the value vector of the run, and `outputs` are what the head writes into the residual stream of
    the query, with the scales of norms held as in `ScoreAttribution`.

    Parameters
    ----------
    attention : str
        The name of the attention, ``blocks.3.attn``.
    head, query, key : int
    tokens : tuple of str
        Those of the query and the key.
    writers : tuple of Writer
        ``N``; those of kind ``"bias"`` hold what does not depend on the text.
    values : array, ``N Dv``
        What each writes into the value of the key.
    weight : float
        The attention weight of the key.
    outputs : array, ``N E``
        weight × values · W_o: what the head adds to the query's stream, before a norm of its output.
    """

    attention: str
    head: int
    query: int
    key: int
    tokens: tuple[str, ...]
    writers: tuple[Writer, ...]
    values: np.ndarray
    weight: float
    outputs: np.ndarray
    _cell: AttendedCell = field(repr=False)

    @cached_property
    def shares(self) -> np.ndarray:
        """The share of each writer in the value, ``N``: its part along the value, over the value's length; sum 1."""
        value = self.values.sum(0)
        return np.asarray(self.values @ value / (value @ value or 1.0))

    def into_logit(self, token: str | int, versus: str | int | None = None) -> np.ndarray:
        """Return what each writer adds to the logit of the token after the query, directly, through this head, ``N``.

        The logit is that before a soft cap. With `versus` it is the difference of two logits.

        Raises
        ------
        RegardError
            The model has no logits at its vectors, or a token is not one.
        """
        cell, model = self._cell, self._cell.model
        if not predicts_tokens(model):
            raise RegardError(f"{model.name} predicts no token: follow the value into a head, into_head(layer, head)")
        ids = next_token_pair(model, cell.trace.encodings[cell.batch], token, versus)
        hidden = replay(model, self._recorder()).hidden
        assert isinstance(hidden, Parts)
        direction, *other = unembedding_rows(model, ids)
        parts = self._followed(hidden.writers, hidden.values, "the logits")[:, 0]
        return np.asarray(parts @ (direction - other[0] if other else direction))

    def into_head(self, layer: int | str, head: int, reads: Literal["q", "k", "v"] = "q") -> np.ndarray:
        """Return what each writer adds, through this head, to a vector of a later head at the query, ``N D``.

        Parameters
        ----------
        layer : int or str
            As `why` takes it.
        head : int
        reads : {"q", "k", "v"}
            To its query, after norm and rotary embedding, its key, or its value.

        Raises
        ------
        RegardError
            There is no such head, or it does not read this one directly: it is in the same layer or an earlier one.
        """
        one_of("reads", reads, ("q", "k", "v"))
        name = attention_name(self._cell.model, layer)
        projected = project(self._cell.model, self._recorder(name, whole_number("head", head, 0)))
        stacked: np.ndarray = getattr(projected, reads)[:, 0]
        writers = projected.q_writers if reads == "q" else projected.k_writers
        return self._followed(writers, stacked[2:] - stacked[1], f"{name}.{reads}")

    def _recorder(self, target: str = "", target_head: int = 0) -> Replay:
        """Return a recorder at the query that splits the output of the head by the writers of the value."""
        cell, columns = self._cell, columns_at(self.attention, (self.query,))
        carried = (self.weight * self.values)[:, None]  # N 1 Dv

        def split(scope: str, head: int, context: np.ndarray) -> Values:
            if (scope, head) != (self.attention, self.head):
                return (Writer("head", layer_of(scope), head),), context[None]
            rest = context - carried.sum(0)
            writers = (*(Writer(_CARRIED, index=i) for i in range(len(carried))), Writer("head", layer_of(scope), head))
            return writers, np.concatenate([carried, rest[None]])

        return Replay(cell.trace, cell.batch, columns, target=target, head=target_head, split=split)

    def _followed(self, writers: tuple[Writer, ...], values: np.ndarray, reader: str) -> np.ndarray:
        """Return the rows of the writers that are followed."""
        rows = [i for i, writer in enumerate(writers) if writer.kind == _CARRIED]
        if not rows:
            raise RegardError(f"{self.attention} writes nothing that {reader} reads directly")
        return np.asarray(values[rows])

    def to_columns(self) -> dict[str, np.ndarray]:
        """Return a row for each writer: ``writer``, its ``share`` in the value, and the ``length`` of its output."""
        return {
            "writer": np.array([writer.label for writer in self.writers]),
            "share": self.shares,
            "length": np.linalg.norm(self.outputs, axis=1),
        }

    def _largest(self) -> list[tuple[str, float]]:
        order = np.argsort(-np.abs(self.shares), kind="stable")[:_ROWS]
        return [(self.writers[i].label, float(self.shares[i])) for i in order.tolist()]

    def __repr__(self) -> str:
        return "\n".join((f"<{self._summary()}>", *(f"  {share:+7.1%}  {label}" for label, share in self._largest())))

    def _summary(self) -> str:
        query, key = (repr(token[:40]) for token in self.tokens)
        return (
            f"ValueAttribution of {self.attention} head {self.head}: what {query} reads from {key} with weight "
            f"{self.weight:.1%}, by {len(self.writers)} writers; norm scales frozen"
        )

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the largest writers."""
        return page(
            self._summary(),
            table(("writer", "share of the value"), [(label, f"{share:+.1%}") for label, share in self._largest()]),
            try_next=("carried.shares", "carried.into_logit(token)", "carried.to_frame()"),
        )


def carried(
    trace: RecordedSteps,
    layer: int | str,
    head: int,
    query: int | str,
    key: int | str,
    *,
    by: By = "head",
    batch: int = 0,
    model: Any = None,
) -> ValueAttribution:
    """Return what a head moves from a key to a query, as the sum over the writers of the key's residual stream.

    Arguments and errors are those of `why`, which also says what is held; the weight is that of the run.

    Examples
    --------
    >>> import regard
    >>> model, trace = regard.load("induction"), regard.Trace()
    >>> _ = model("qzkfqz", trace=trace)
    >>> moved = trace.carried(1, 0, query=5, key=2)  # from the first k to the second z
    >>> moved.writers[moved.shares.argmax()].label
    'token embedding'
    >>> bool(moved.into_logit("k").sum() > 0)
    True
    """
    cell = AttendedCell.find(trace, layer, head, query, [key], batch, model)
    projected = cell.project(by)
    cell.check_unedited("kv_latent", "v")
    cell.check_attended()
    weight = float(cell.require("weights")[0, 0])
    writers, values = cell.key_parts(projected, "v")
    values, projection = values[:, 0], projected.layer.o_proj
    count, width = projected.layer.num_heads, values.shape[1]
    if (name := f"{cell.name}.v") in trace:
        v = cell.reader.array(name).astype(np.float64)  # G S Dv
        value = v[cell.head * len(v) // count, cell.keys[0]]
        cell.check_sum("value", values.sum(0), value, float(np.linalg.norm(value)))
    weights = np.eye(count * width) if projection is None else np.asarray(projection.weight, np.float64)
    return ValueAttribution(
        attention=cell.name,
        head=cell.head,
        query=cell.query,
        key=cell.keys[0],
        tokens=cell.tokens,
        writers=writers,
        values=values,
        weight=weight,
        outputs=weight * values * cell.output_gate(projected) @ weights.reshape(count, width, -1)[cell.head],
        _cell=cell,
    )
