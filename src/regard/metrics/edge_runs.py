"""Runs of a decoder in which only some edges between its parts carry what the text made them carry.

A node is what writes into the residual stream: the token embeddings, a head, a feed-forward layer. An edge goes from a
node to what reads the stream: the query, the key or the value of a head, a feed-forward layer, or the logits. Where an
edge is cut, its reader gets what the writer wrote in a baseline run. The code of the model joins the nodes, as in
`regard.metrics.replay`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from regard import functional as F
from regard.functional.recorder import NULL_RECORDER
from regard.metrics.replay import RecordedAttention, RecordedSublayer, Replay, replay
from regard.metrics.writers import Parts, Writer
from regard.nn import MultiHeadAttention
from regard.nn.fast_paths import CACHES
from regard.trace import Trace

INPUTS = ("q", "k", "v")
"""The inputs of a head."""

_NAMES = {"q": "query", "k": "key", "v": "value"}


class Reader(NamedTuple):
    """What reads the residual stream.

    Parameters
    ----------
    kind : str
        ``"q"``, ``"k"`` or ``"v"``, of a head; ``"mlp"`` or the name of another sublayer; or ``"logits"``.
    layer, head : int
        −1 where it has none.
    """

    kind: str
    layer: int = -1
    head: int = -1

    @property
    def label(self) -> str:
        """Its name in tables: ``L3H2 query``, ``L3 MLP``, ``logits``."""
        if self.kind in INPUTS:
            return f"L{self.layer}H{self.head} {_NAMES[self.kind]}"
        return self.kind if self.layer < 0 else Writer(self.kind, self.layer).label

    @property
    def node(self) -> Writer | None:
        """The node of which it is an input; None for the logits."""
        if self.layer < 0:
            return None
        return Writer("head", self.layer, self.head) if self.kind in INPUTS else Writer(self.kind, self.layer)


class EdgeRun(Replay):
    """A replay of a run in which the nodes that chosen edges reach are computed from what these bring.

    Parameters
    ----------
    baseline : Trace
        The recorded run, of one text, which gives what the other nodes write.
    """

    def __init__(self, baseline: Trace) -> None:
        super().__init__(baseline, 0, {"": range(len(baseline.encodings[0]))})
        self._baseline = baseline
        self._computed: dict[str, np.ndarray] = {}
        self._start: _Start | None = None  # what was written in the baseline
        self._kept: Mapping[Reader, np.ndarray] = {}
        self.counts: dict[tuple[str, int], int] = {}  # of writers before a reader, by its kind and layer
        self._done = 0  # leaves of the stream of which the changes are known
        self._changed: list[int] = []  # the writers that do not write what they did in the baseline
        self._changes = np.empty((0, 0))  # by how much, n (T E)

    def stream(self, model: Any) -> tuple[Parts, Any]:
        """Return the residual stream after the last block as `Parts`, and the norm that reads it."""
        hidden = replay(model, self).hidden
        assert isinstance(hidden, Parts)
        parts, norm = source_of(hidden)
        if self._start is None:
            self._own = _Start.from_stream(parts)
        return parts, norm

    def vectors(self, model: Any) -> np.ndarray:
        """Return the contextual vectors of the run, ``1 T E``."""
        stream, norm = self.stream(model)
        mixed = self.read(stream, self.kept([Reader("logits")]))
        return mixed if norm is None else np.asarray(norm(mixed))

    def with_edges(self, text: Trace, kept: Mapping[Reader, np.ndarray]) -> EdgeRun:
        """Return the run in which some edges carry what the nodes write in a run on the text; after `stream`.

        Parameters
        ----------
        text : Trace
            Of the run whose token embeddings are those of the text.
        kept : mapping of Reader to array, ``N``
            For each reader 1 for the writers whose edges are kept and 0 for others, or the share of the change that an
            edge carries; all edges of other readers are cut.
        """
        other = EdgeRun(self._baseline)
        other._start, other._kept = self._own, kept
        other._changes = np.empty((len(self._own.is_node), self._own.sums[0].size), self.dtype)
        other.store("token_embeddings", text["token_embeddings"][0])
        return other

    def replacement(self, layer: Any, name: str, in_block: bool) -> Any:
        """Return what stands for a layer of the model: one that computes what the edges reach."""
        if isinstance(layer, MultiHeadAttention):
            return _Attention(layer, self)
        other = super().replacement(layer, name, in_block)
        return _Sublayer(layer, self) if isinstance(other, RecordedSublayer) else other

    def recorded(self, full: str) -> np.ndarray:
        """Return a step as it is computed in this run; of other nodes that of the baseline."""
        return np.asarray(self._computed[full], np.float64) if full in self._computed else super().recorded(full)

    def store(self, full: str, value: np.ndarray) -> None:
        """Take a value in place of that of the baseline."""
        self._computed[full] = value

    def count(self, kinds: Sequence[str], x: Any) -> None:
        """Count the writers of what readers of the layer read."""
        if isinstance(x, Parts) and self._start is None:
            count = sum(len(leaf.writers) for leaf in source_of(x)[0].leaves)
            self.counts.update({(kind, self.layer): count for kind in kinds})

    def kept(self, readers: Sequence[Reader]) -> np.ndarray:
        """Return which edges to some readers are kept, ``R N``, 0 in a run without such."""
        if self._start is None:
            return np.zeros((len(readers), 0))
        cut = np.zeros(len(self._start.is_node))
        return np.stack([self._kept.get(reader, cut) for reader in readers])

    def read(self, x: Parts, kept: np.ndarray) -> np.ndarray:
        """Return what reads a stream if some edges are kept, ``R N``: the norm of it, if there is one, ``R T E``."""
        parts, norm = source_of(x)
        start = self._start
        assert start is not None
        leaves, ends = parts.leaves, start.ends
        for leaf, first, end in zip(leaves[self._done :], ends[self._done :], ends[self._done + 1 :], strict=False):
            if leaf.is_changed:
                done, total = len(self._changed), len(self._changed) + end - first
                self._changes[done:total] = (leaf.values - start.written[first:end]).reshape(end - first, -1)
                self._changed += range(first, end)
        self._done = len(leaves)
        changed = self._changed
        carried = np.where(start.is_node[changed], kept[:, changed], 1)  # edges of biases and positions are not cut
        change = np.asarray(F.linear(carried.astype(self.dtype), self._changes[: len(changed)]))
        total = start.sums[ends[len(leaves)]]
        mixed = (total + change.reshape(-1, *total.shape)).astype(x.dtype)
        return mixed if norm is None else np.asarray(norm(mixed))


class _Start(NamedTuple):
    """What was written in a baseline."""

    written: np.ndarray  # by each writer, N T E
    sums: np.ndarray  # of what the first writers wrote, (N + 1) T E
    ends: tuple[int, ...]  # the number of writers of the first leaves, from none on
    is_node: np.ndarray  # N

    @classmethod
    def from_stream(cls, stream: Parts) -> _Start:
        values, counts = stream.values, [len(leaf.writers) for leaf in stream.leaves]
        sums = np.concatenate([np.zeros_like(values[:1]), values.cumsum(0)])
        is_node = np.array([writer.is_node for writer in stream.writers])
        return cls(values, sums, (0, *np.cumsum(counts).tolist()), is_node)


def source_of(x: Parts) -> tuple[Parts, Any]:
    """Return the stream that is read and the norm through which it is, None for none."""
    return (x, None) if x.before_norm is None else x.before_norm


class _Attention(RecordedAttention):
    """An attention whose heads are computed where edges reach them."""

    _recorder: EdgeRun

    def __call__(self, x: Any, *, rotation: Any = None, cache: Any = None, **options: Any) -> Any:
        recorder, attn = self._recorder, self._attn
        heads = np.arange(attn.num_heads)
        recorder.count(INPUTS, x)
        kept = recorder.kept([Reader(kind, recorder.layer, head) for kind in INPUTS for head in heads.tolist()])
        live = np.flatnonzero(kept.reshape(len(INPUTS), len(heads), -1).any((0, 2)))
        if len(live):
            places: dict[bytes, int] = {}  # readers of the same edges read the same
            index = np.array([places.setdefault(row.tobytes(), len(places)) for row in kept])
            rows = np.stack([np.frombuffer(row) for row in places])
            q_row, k_row, v_row = index.reshape(len(INPUTS), -1)[:, live]
            full = f"{recorder.scope_name}.context"
            contexts = recorder.recorded(full).copy()

            def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, **rules: Any) -> np.ndarray:
                del rules["trace"]
                rules.pop("gate", None)  # of a layer that has one there are no paths
                group = live * k.shape[1] // len(heads)
                if rules.get("sinks") is not None:
                    rules["sinks"] = rules["sinks"][live]
                contexts[live] = F.attention(q[q_row, live], k[k_row, group], v[v_row, group], **rules)
                return q  # which nothing reads

            computed: Any = copy.copy(attn)
            vars(computed).update(dict.fromkeys(CACHES), attend=attend)
            computed(recorder.read(x, rows), rotation=rotation, trace=NULL_RECORDER)
            recorder.store(full, contexts)
        output = super().__call__(x, rotation=rotation, cache=cache, **options)
        if not len(live):
            _mark_unchanged(output[0] if isinstance(output, tuple) else output)
        return output


class _Sublayer(RecordedSublayer):
    """A feed-forward layer that is computed where edges reach it; a mixture of experts is one node."""

    shows_experts = False
    _recorder: EdgeRun

    def __call__(self, x: Any, **options: Any) -> Parts:
        recorder, scope = self._recorder, self._recorder.scope_name
        kind = scope.rpartition(".")[2]
        recorder.count((kind,), x)
        kept = recorder.kept([Reader(kind, recorder.layer)])
        output: Parts = super().__call__(x, **options)
        if kept.any():
            recorder.store(f"{scope}.output", np.asarray(self._layer(recorder.read(x, kept), trace=NULL_RECORDER))[0])
        else:
            _mark_unchanged(output)
        return output


def _mark_unchanged(output: Parts) -> None:
    """Say that a sublayer which no edge reaches wrote what it did in the baseline."""
    for leaf in output.leaves:
        leaf.is_changed = False
