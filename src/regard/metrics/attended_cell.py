"""A cell of an attention map of a recorded run: one head, a query and one or two keys, and what both are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import one_of, truncate, whole_number
from regard.functional.scores.stages import Stage
from regard.metrics.replay import Projected, Replay, edited_steps, layer_of, missing_step, project
from regard.metrics.writers import Values, Writer
from regard.nn import Layer
from regard.text.encoding import Encoding
from regard.text.token_labels import token_labels
from regard.text.words import join_names
from regard.trace.recorded_steps import RecordedSteps

_DECODER, _ENCODER, _CROSS = "decoder.", "encoder.", ".cross_attn"
INSIDE = ("projected_q", "projected_k", "q_norm", "k_norm", "kv_latent", "q", "k", "scores", "capped", "biased")
"""Steps between what an attention reads and its softmax: where one is edited, no sum of what was read is the score."""
By: TypeAlias = Literal["head", "token"]
"""Whether the output of a head is one part, or one for each token that it read."""
_NEAR = 0.01  # of the product of the lengths: a score that is farther from the sum is not that of the parts


@dataclass(frozen=True, eq=False)
class AttendedCell:
    """A query and one or two keys of a head in a text of a run.

    Parameters
    ----------
    trace : Trace
    model
        What it is of.
    name : str
        The name of the attention, ``blocks.3.attn``.
    head, query, batch : int
    keys : tuple of int
    """

    trace: RecordedSteps
    model: Any
    name: str
    head: int
    query: int
    keys: tuple[int, ...]
    batch: int

    @classmethod
    def find(
        cls,
        trace: RecordedSteps,
        layer: int | str,
        head: int,
        query: int | str,
        keys: Sequence[int | str],
        batch: int,
        model: Any,
    ) -> AttendedCell:
        """Return the cell that arguments name; an error if there is none."""
        model = model_of(trace, model)
        name = attention_name(model, layer)
        batch, head = whole_number("batch", batch, 0), whole_number("head", head, 0)
        if batch >= len(trace.encodings):
            raise RegardError(f"there is no text {batch} in a batch of {len(trace.encodings)}")
        of_query, of_keys = texts_of(trace, name, batch)
        positions = tuple(position_of("key", key, of_keys) for key in keys)
        if len(set(positions)) < len(positions):
            word = token_labels(of_keys)[positions[0]]
            raise RegardError(f"key and versus are one token, {word!r}: their difference is 0; give another versus")
        return cls(trace, model, name, head, position_of("query", query, of_query), positions, batch)

    @property
    def is_cross(self) -> bool:
        """Whether the keys are those of another text."""
        return self.name.endswith(_CROSS)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """The query and the keys as text."""
        of_query, of_keys = (token_labels(text) for text in texts_of(self.trace, self.name, self.batch))
        return (of_query[self.query], *(of_keys[key] for key in self.keys))

    @cached_property
    def columns(self) -> dict[str, tuple[int, ...]]:
        """The positions that are read, by the prefix of the steps."""
        both = tuple(dict.fromkeys((self.query, *self.keys)))
        if self.is_cross:
            return {_DECODER: (self.query,), _ENCODER: tuple(dict.fromkeys(self.keys))}
        return columns_at(self.name, both)

    @property
    def reader(self) -> Replay:
        """What reads the record at these positions."""
        return Replay(self.trace, self.batch, self.columns)

    def project(self, by: By = "head") -> Projected:
        """Return the queries, keys and values of what is read at these positions."""
        one_of("by", by, get_args(By))
        split = self._split_by_token if by == "token" else None
        recorder = Replay(self.trace, self.batch, self.columns, target=self.name, head=self.head, split=split)
        try:
            return project(self.model, recorder)
        except RegardError as error:
            if self.trace.model == self.model.name:
                raise
            raise RegardError(
                f"{error}; the trace is of {self.trace.model}, and model= is {self.model.name}"
            ) from error

    def query_parts(self, projected: Projected) -> Values:
        """Return the writers of the query, and its parts, ``N D``."""
        column = self.columns[self._prefix].index(self.query)
        return _parts(projected.q[:, column], projected.q_writers, self._bias("q"))

    def key_parts(self, projected: Projected, letter: Literal["k", "v"] = "k") -> Values:
        """Return the writers of the keys, and their parts, ``M K D`` for K keys; or those of the values, ``M K Dv``."""
        stacked = projected.k if letter == "k" else projected.v
        columns = self.columns[_ENCODER if self.is_cross else self._prefix]
        at = [columns.index(key) for key in self.keys]
        return _parts(stacked[:, at], projected.k_writers, self._bias(letter))

    def recorded(self, stage: Stage) -> np.ndarray | None:
        """Return a stage of the run from ``scores`` to ``weights`` at the keys, float64; None if it has none."""
        return stage_rows(self.trace, self.name, stage, self.batch, self.head, [self.query], self.keys)

    def output_gate(self, projected: Projected) -> np.ndarray | float:
        """Return by what the layer multiplies what the head has read for the query, ``Dv``; 1 without a gate."""
        if not projected.layer.has_output_gate:
            return 1.0
        return np.asarray(self.reader.array(f"{self.name}.output_gate")[self.head, self.query], np.float64)

    def require(self, stage: Stage) -> np.ndarray:
        """Return `recorded`, ``1 S``; an error if the trace does not have it."""
        values = self.recorded(stage)
        return missing_step(f"{self.name}.{stage}") if values is None else values

    def check_unedited(self, *steps: str) -> None:
        """Raise `RegardError` if the run edited a step of this attention, so that it is not that of what was read."""
        if edited := edited_steps(self.trace, *(f"{self.name}.{step}" for step in steps)):
            raise RegardError(f"the run edited {', '.join(edited)}, which is no longer what was written")

    def check_attended(self) -> None:
        """Raise `RegardError` if a mask hides a key."""
        for stage in ("capped", "biased"):
            rows = self.recorded(stage)
            for token, value in zip(self.tokens[1:], [] if rows is None else rows[0], strict=False):
                if value == -np.inf:
                    raise RegardError(f"{self.tokens[0]!r} does not attend to {token!r}: a mask hides it")

    def check_sum(self, what: str, total: np.ndarray, recorded: np.ndarray, size: float) -> None:
        """Raise `RegardError` where parts do not sum to what was recorded, by more than rounding, or are not finite."""
        if not (np.isfinite(total).all() and np.isfinite(recorded).all()):
            raise RegardError(
                f"the run has values that are not finite, in the {what} or before: there is no sum of parts"
            )
        if not np.abs(total - recorded).max() <= _NEAR * size:
            raise RegardError(
                f"the parts do not sum to the {what} of the run: the trace is of another model, or of a run with edits "
                "that was read from a file"
            )

    def _split_by_token(self, scope: str, head: int, context: np.ndarray) -> Values:
        """Split the context of a head, ``P Dv``, by the token that was read: a `Split`."""
        reader = self.reader
        weights = stage_rows(self.trace, scope, "weights", self.batch, head, reader.columns(scope).tolist())
        if weights is None:
            missing_step(f"{scope}.weights")
        v, count = reader.array(f"{scope}.v"), len(reader.array(f"{scope}.context"))
        read, layer = np.flatnonzero(weights.any(0)), layer_of(scope)
        labels = token_labels(texts_of(self.trace, scope, self.batch)[1])
        names = [labels[token] if token < len(labels) else "padding" for token in read.tolist()]
        detail = reader.detail_of(scope)
        writers = [Writer("head", layer, head, at, detail, name) for at, name in zip(read.tolist(), names, strict=True)]
        parts = weights.T[read, :, None] * v[head * len(v) // count].astype(np.float64)[read, None, :]
        if edited_steps(self.trace, f"{scope}.context"):
            writers.append(Writer("edit", detail=f"{scope}.context of head {head}"))
            parts = np.concatenate([parts, (context - parts.sum(0))[None]])
        return tuple(writers), parts

    def _bias(self, letter: str) -> Writer:
        return Writer("bias", layer_of(self.name), detail=f"{letter}_proj")

    @property
    def _prefix(self) -> str:
        """The beginning of the names of the query's stack."""
        return next(iter(self.columns))


def model_of(trace: RecordedSteps, model: Any) -> Any:
    """Return the model of a run; an error if it is not known, or if the run has no embeddings."""
    if not isinstance(trace, RecordedSteps):
        raise RegardError(f"a trace of a run is needed, regard.Trace(), got {truncate(trace)}")
    if getattr(trace, "has_start", False):
        raise RegardError("the run started from a block: what was written before is not known; run the whole model")
    model = trace.source if model is None else model
    if isinstance(model, Layer) and hasattr(model, "config"):
        return model
    if model is not None:
        raise RegardError(f"model is what the trace is of, model=regard.load(...), got {truncate(model)}")
    reason = (
        "has no model: it is from a file or another process, or a part of a run" if trace.model else "is of no model"
    )
    raise RegardError(f"the trace {reason}; give the model that it is of, model=regard.load(...)")


def attention_name(model: Any, layer: int | str) -> str:
    """Return the name of an attention."""
    if isinstance(layer, str):
        return layer
    layer = whole_number("layer", layer, 0)
    if hasattr(model, "decode"):
        raise RegardError(
            f"{model.name} has an encoder and a decoder: name the attention, such as 'encoder.blocks.{layer}.attn' or "
            f"'decoder.blocks.{layer}.cross_attn'"
        )
    return f"blocks.{layer}.attn"


def columns_at(name: str, positions: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the positions that are read of the stack of a step, by the prefix of its steps."""
    prefix = next((prefix for prefix in (_DECODER, _ENCODER) if name.startswith(prefix)), "")
    others = {other: (0,) for other in (_DECODER, _ENCODER) if prefix and other != prefix}
    return {prefix: tuple(positions)} | others


def texts_of(trace: RecordedSteps, name: str, batch: int) -> tuple[Encoding, Encoding]:
    """Return the texts of the queries and of the keys of an attention."""
    of_query = (trace.target_encodings if name.startswith(_DECODER) else trace.encodings)[batch]
    return of_query, trace.encodings[batch] if name.endswith(_CROSS) else of_query


def position_of(what: str, token: int | str, text: Encoding) -> int:
    """Return the position of a token: a number, negative ones from the end, or the text of one that occurs once."""
    if not isinstance(token, str):
        if isinstance(token, bool) or not isinstance(token, int | np.integer) or not -len(text) <= token < len(text):
            raise RegardError(f"there is no token {token!r} for the {what}: the text has {len(text)}, from 0")
        return int(token) % len(text)
    labels = token_labels(text)
    word = " ".join(token.split())
    places = [i for i, label in enumerate(labels) if word and label == word]
    if len(places) == 1:
        return places[0]
    if places:
        raise RegardError(f"the {what} {truncate(token)} is at {', '.join(map(str, places))}: give its position")
    tokens = join_names([truncate(label) for label in dict.fromkeys(labels)])
    raise RegardError(f"the {what} {truncate(token)} is not a token of the text, which has {tokens}")


def stage_rows(
    trace: RecordedSteps,
    name: str,
    stage: Stage,
    batch: int,
    head: int,
    rows: Sequence[int],
    keys: Sequence[int] | None = None,
) -> np.ndarray | None:
    """Return some rows of a stage of an attention, ``R S`` in float64, from its map or its array; None if it has none.

    With `keys` these columns alone.
    """
    full, columns = f"{name}.{stage}", None if keys is None else np.array(keys)
    if trace.has_map(name):
        attention_map = trace.map(name).select(*((batch, head) if trace.map(name).ndim == 4 else (head,)))
        return np.asarray(attention_map.tile(np.array(rows), columns, stage=stage), np.float64)
    if full not in trace:
        return None
    values = trace[full]
    values = (values[batch] if trace.axes(full).startswith("B ") else values)[head][np.array(rows)]
    return np.asarray(values if columns is None else values[:, columns], np.float64)


def _parts(stacked: np.ndarray, writers: tuple[Writer, ...], bias: Writer) -> Values:
    """Return the parts of a vector from those of `Projected`: of the whole, of 0 and of each part, ``N D``."""
    constant, parts = stacked[1], stacked[2:] - stacked[1]
    return ((*writers, bias), np.concatenate([parts, constant[None]])) if constant.any() else (writers, parts)
