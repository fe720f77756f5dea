"""The forward pass of a recorded run once more on sums of parts, by the model's own code, without computing a layer.

In a copy of the model each attention and each feed-forward layer answers with what the trace has of it, split by
writer, and each norm divides by the scale that it had in the run. What is left of the code of a model is how its layers
are joined: that gives the residual stream at any place as the sum of its writers, for every family.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NoReturn

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard.functional.recorder import Recorder, RecordingPlan, Scoped
from regard.metrics.writers import Parts, Values, Writer
from regard.nn import CausalAttention, Embedding, Layer, LayerNorm, Linear, MultiHeadAttention, RMSNorm
from regard.nn.fast_paths import CACHES
from regard.nn.kv_cache import KVCache
from regard.text.words import join_names
from regard.trace.gradient_trace import GradientTrace
from regard.trace.recorded_steps import RecordedSteps

WHY_STEPS = (
    *("*embeddings", "*attn.context", "*attn.v", "*mlp.output", "*mlp.experts"),
    *("*attn.scores", "*attn.capped", "*attn.biased", "*attn.weights", "*attn.output_gate", "*linear_attn.output"),
    "*layer_input.output",
)
"""The steps that a trace must have for `why` and `carried`, ``Trace(optional=WHY_STEPS)``; all are by default."""

Replacement = Callable[[Any, str, bool], Any]
"""From a layer, the name of its field and whether it is that of a block to what stands for it in a copy."""
Split = Callable[[str, int, np.ndarray], Values]
"""From the name of an attention, a head and its context at some positions, ``P Dv``, to parts of it, ``n P Dv``."""


@dataclass(frozen=True)
class Projected:
    """The queries, keys and values of a head for parts of what it reads.

    Parameters
    ----------
    q, k, v : array, ``N P D``, ``M P D`` and ``M P Dv``
        Of the whole, of 0, and then of each part.
    q_writers, k_writers : tuple of Writer
        Of the parts: N − 2 and M − 2.
    scale : float
        Of the scores.
    layer : MultiHeadAttention
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    q_writers: tuple[Writer, ...]
    k_writers: tuple[Writer, ...]
    scale: float
    layer: MultiHeadAttention


class _Captured(Exception):
    """What ends a replay at its target."""

    def __init__(self, projected: Projected) -> None:
        self.projected = projected


class Replay(Scoped, Recorder):
    """A recorder that returns what another run recorded, as `Parts`.

    Parameters
    ----------
    trace : Trace
        Of the run.
    batch : int
        The text.
    columns : mapping of str to sequence of int
        The positions that are read, by the prefix of the steps: ``""``, or ``"encoder."`` and ``"decoder."``.
    target : str
        The name of the attention at which it ends, ``blocks.3.attn``; "" for none.
    head : int
        That of the target.
    split : function, optional
        How the context of a head is split further.
    """

    def __init__(
        self,
        trace: RecordedSteps,
        batch: int,
        columns: Mapping[str, Sequence[int]],
        *,
        target: str = "",
        head: int = 0,
        split: Split | None = None,
    ) -> None:
        self.trace, self.batch, self._columns = trace, batch, columns
        self.target, self.head, self.split = target, head, split
        self.attentions: list[str] = []  # the names of those that were passed
        self.passed: dict[str, tuple[RecordedAttention, Any]] = {}  # by name, with what each read
        self.boxes: dict[str, str] = {}  # the classes of other layers that were passed, by name
        tables = [name for name in trace.names() if name.endswith("token_embeddings")]
        self.dtype = trace[tables[0]].dtype if tables else np.dtype(np.float64)  # of the run

    def __call__(self, name: str, value: Any, axes: str, *, owned: bool = False) -> Any:  # noqa: ARG002
        """Return the embeddings that the trace has, and any other `Parts` with what an edit changed."""
        full = self._prefix + name
        if name == "token_embeddings" and self.trace.encodings[self.batch].grid is not None:
            is_class = (self.columns(full) == 0)[:, None]
            writers = (Writer("class_embedding"), Writer("patch_embeddings"))
            return self.leaf(writers, lambda: self.recorded(full) * np.stack([is_class, ~is_class]))
        if name in ("token_embeddings", "position_embeddings", "type_embeddings"):
            return self.leaf((Writer(name, detail=self.stack_of(full)),), lambda: self.recorded(full)[None])
        return self.edited(full, value) if isinstance(value, Parts) else value

    @property
    def scope_name(self) -> str:
        """The scope, ``blocks.3.attn``."""
        return self._prefix.removesuffix(".")

    @property
    def layer(self) -> int:
        """The index of the block; −1 outside the blocks."""
        return layer_of(self._prefix)

    def stack_of(self, full: str) -> str:
        """Return what tells the writers of an encoder–decoder apart."""
        stack = full.partition(".")[0]
        return f" ({stack})" if stack in ("encoder", "decoder") else ""

    def detail_of(self, scope: str) -> str:
        """Return the detail of the heads of an attention."""
        last = scope.rpartition(".")[2]
        return ("" if last == "attn" else f" {last}") + self.stack_of(scope)

    def columns(self, full: str) -> np.ndarray:
        """Return the positions that are read of a step."""
        prefix = next((prefix for prefix in self._columns if prefix and full.startswith(prefix)), "")
        return np.asarray(self._columns[prefix], dtype=int)

    def recorded(self, full: str) -> np.ndarray:
        """Return a step of the run for the text at the positions that are read, float64 ``… P E``."""
        return np.asarray(self.array(full)[..., self.columns(full), :], np.float64)

    def array(self, full: str) -> np.ndarray:
        """Return a step of the run for the text, ``… T E`` as it is recorded.

        Raises
        ------
        RegardError
            The trace does not have it; it says what to record.
        """
        if full not in self.trace:
            missing_step(full)
        value = self.trace[full]
        return value[self.batch] if self.trace.axes(full).startswith("B ") else value

    def leaf(self, writers: tuple[Writer, ...], read: Callable[[], np.ndarray]) -> Parts:
        """Return what some writers wrote."""
        return Parts(lambda: (writers, read()), self.dtype)

    def replacement(self, layer: Any, name: str, in_block: bool) -> Any:
        """Return what stands for a layer of the model."""
        if isinstance(layer, LayerNorm | RMSNorm):
            return FrozenNorm(layer, name, self)
        if isinstance(layer, MultiHeadAttention):
            return RecordedAttention(layer, self)
        if isinstance(layer, Linear):
            return _PartsLinear(layer, name, self)
        return RecordedSublayer(layer, self) if in_block else None

    def plan(self, *names: str, optional: tuple[str, ...] = ()) -> RecordingPlan:  # noqa: ARG002
        """Ask for the optional steps that the run edited: what an edit wrote is a part of its own."""
        edited = [name for name in optional if edited_steps(self.trace, self._prefix + name)]
        if any(name.endswith((".scale", ".normalized")) for name in edited):
            raise RegardError(f"the run edited {self._prefix}{edited[0]}: a norm no longer divides by its own scale")
        return RecordingPlan(asked=frozenset(edited))

    def edited(self, full: str, parts: Parts, *inside: str) -> Parts:
        """Return parts of a step, with what an edit of it, or of one `inside` its layer, added to it as one more."""
        if not edited_steps(self.trace, full, *inside):
            return parts
        change = self.leaf((Writer("edit", detail=full),), lambda: (self.recorded(full) - parts.total)[None])
        return Parts.sum_of((parts, change))


def edited_steps(trace: RecordedSteps, *names: str) -> list[str]:
    """Return which of some steps the run edited, as far as the trace tells: one from a file does not."""
    plan = None if isinstance(trace, GradientTrace) else getattr(trace, "plan", None)  # whose taps change nothing
    return [] if plan is None else sorted(plan(*names).edited)


def missing_step(full: str) -> NoReturn:
    """Raise `RegardError`, which says how to record a step."""
    raise RegardError(
        f"the trace has no {full}, which this needs: record everything, Trace(), or "
        "Trace(optional=regard.metrics.WHY_STEPS)"
    )


def layer_of(name: str) -> int:
    """Return the index of the block of a step; −1 outside the blocks."""
    match = re.search(r"blocks\.(\d+)\.", name)
    return int(match[1]) if match else -1


def replay(model: Any, recorder: Replay) -> Any:
    """Run a model on the texts of a recorded run with its recorder; return its output, whose ``hidden`` are `Parts`."""
    shadow = shadow_of(model, recorder.replacement)
    vars(shadow)["_unrecorded_taps"] = ()  # of an estimate of memory: nothing is computed
    trace = recorder.trace
    with np.errstate(all="ignore"):
        if hasattr(model, "embed_patches"):
            count, (height, width) = len(trace.encodings), model.config.image_size
            return shadow({"pixel_values": np.zeros((count, 3, height, width), recorder.dtype)}, trace=recorder)
        texts = [list(each) for each in (trace.encodings, trace.target_encodings) if each]
        return shadow(*texts, trace=recorder)


def project(model: Any, recorder: Replay) -> Projected:
    """Return the queries, keys and values of parts at the recorder's target.

    Raises
    ------
    RegardError
        The model has no such attention, or the trace lacks a step.
    """
    try:
        replay(model, recorder)
    except _Captured as captured:
        return captured.projected
    block = recorder.target.rpartition(".")[0]
    boxes = [
        f"; {name} is a {kind}, which has no scores between tokens"
        for name, kind in recorder.boxes.items()
        if name == recorder.target or (name.rpartition(".")[0] == block and not name.endswith(".mlp"))
    ]
    raise RegardError(
        f"{model.name} has no attention {recorder.target}: there are {join_names(recorder.attentions)}{''.join(boxes)}"
    )


class FrozenNorm:
    """A norm of `Parts` whose scale is held at that of their sum."""

    bias = None  # read by `norm_arrays`, which finds no norm of the kernel

    def __init__(self, norm: LayerNorm | RMSNorm, name: str, recorder: Replay) -> None:
        self._norm, self._name, self._recorder = norm, name, recorder

    def __call__(self, x: Any) -> Any:
        """Return the norm of x."""
        if not isinstance(x, Parts):
            return self._norm(x)
        norm, recorder = self._norm, self._recorder
        centered = isinstance(norm, LayerNorm)

        def normed(values: np.ndarray, total: np.ndarray) -> np.ndarray:
            _, scale = F.normalize(total, eps=norm.eps, centered=centered)
            return np.asarray(F.norm_parts(values, scale, norm.weight, centered=centered))

        bias = getattr(norm, "bias", None)
        writer = Writer("bias", recorder.layer, detail=self._name + recorder.stack_of(recorder.scope_name))
        parts = x.map(normed, None if bias is None else (writer, bias))
        parts.before_norm = x, norm
        return parts


class _RowNorm:
    """A norm inside an attention: of stacked vectors, whose scale is held at that of the first."""

    def __init__(self, norm: LayerNorm | RMSNorm) -> None:
        self._norm, self.weight, self.bias, self.eps = norm, norm.weight, None, norm.eps

    def __call__(self, x: np.ndarray) -> np.ndarray:
        centered, bias = isinstance(self._norm, LayerNorm), getattr(self._norm, "bias", None)
        _, scale = F.normalize(x[0], eps=self.eps, centered=centered)
        y = np.asarray(F.norm_parts(x, scale, self.weight, centered=centered))
        return y if bias is None else y + bias


class _PartsLinear:
    """A linear map of `Parts`; of an array that of the layer."""

    def __init__(self, linear: Linear, name: str, recorder: Replay) -> None:
        self._linear, self._name, self._recorder = linear, name, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._linear, name)

    def __call__(self, x: Any, **options: Any) -> Any:
        if not isinstance(x, Parts):
            return self._linear(x, **options)
        weight, bias = np.asarray(self._linear.weight, np.float64), self._linear.bias
        writer = Writer("bias", self._recorder.layer, detail=self._name)
        return x.map(lambda values, _: values @ weight, None if bias is None else (writer, bias))


class RecordedSublayer:
    """A feed-forward or another layer of a block, which answers with what it wrote: a closed box, or its experts."""

    shows_experts = True

    def __init__(self, layer: Any, recorder: Replay) -> None:
        self._layer, self._recorder = layer, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)

    def __call__(self, x: Any, **options: Any) -> Any:
        """Return what it wrote, with the cache if it is in the place of an attention."""
        written = self._written(x)
        return (written, options["cache"]) if "cache" in options else written

    def _written(self, x: Any) -> Parts:
        recorder, scope = self._recorder, self._recorder.scope_name
        full, layer, detail = f"{scope}.output", recorder.layer, recorder.stack_of(recorder.scope_name)
        recorder.boxes[scope] = type(self._layer).__name__
        if self.shows_experts and hasattr(self._layer, "experts_per_token"):
            parts = Parts(lambda: self._experts(x, f"{scope}.experts", layer), recorder.dtype)
            return recorder.edited(full, parts)
        writer = Writer(scope.rpartition(".")[2], layer, detail=detail)
        return recorder.leaf((writer,), lambda: recorder.recorded(full)[None])

    def _experts(self, x: Parts, full: str, layer: int) -> Values:
        """Return what each expert of a mixture wrote that any of the tokens chose, and the shared one."""
        routing = self._recorder.recorded(full)  # P X
        nobody = self._layer(x.total, trace=_Routing(np.zeros_like(routing)))  # the shared expert, or 0
        writers, values = [], []
        for expert in np.flatnonzero(routing.any(0)).tolist():
            alone = np.where(np.arange(routing.shape[1]) == expert, routing, 0)
            writers.append(Writer("expert", layer, expert))
            values.append(self._layer(x.total, trace=_Routing(alone)) - nobody)
        if nobody.any():
            writers.append(Writer("shared_expert", layer))
            values.append(nobody)
        return tuple(writers), np.stack(values).astype(np.float64)


class _Routing(Recorder):
    """A recorder that routes tokens to experts by given weights."""

    def __init__(self, weights: np.ndarray) -> None:
        self._weights = weights

    def __call__(self, name: str, value: Any, axes: str, *, owned: bool = False) -> Any:  # noqa: ARG002
        return self._weights if name == "experts" else value


class RecordedAttention:
    """An attention that answers with what its heads wrote; at the target of a replay it projects what it reads."""

    def __init__(self, attn: MultiHeadAttention, recorder: Replay) -> None:
        self._attn, self._recorder = attn, recorder
        self._read: dict[str, Parts] = {}  # at the target: by the letter of what it makes of it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._attn, name)

    def __call__(self, x: Any, *, rotation: Any = None, cache: Any = None, **options: Any) -> Any:
        """Return what the heads wrote, with the cache if the attention is causal; at the target end the replay."""
        recorder = self._recorder
        if self._is_target():
            self._read = dict.fromkeys("qk", x)
            kept = {"scale": options["scale"]} if "scale" in options else {}
            kept |= {} if rotation is None else {"rotation": _at(rotation, recorder)}
            if (source := getattr(self._attn, "kv_layer", None)) is not None:
                kept["cache"] = self._keys_of(f"blocks.{source}.attn", kept)
            self._frozen()(_stacked(x), **kept)
        recorder.passed[recorder.scope_name] = self, x
        output = self._written()
        return (output, cache) if isinstance(self._attn, CausalAttention) else output

    def _keys_of(self, name: str, options: Any) -> KVCache:
        """Return the keys and values that another layer makes of the parts that it read."""
        other, read = self._recorder.passed[name]
        self._read["k"] = other._read["q"] = other._read["k"] = read
        try:
            other._frozen()(_stacked(read), **options)
        except _Captured as captured:
            return KVCache().append(captured.projected.k[:, None], captured.projected.v[:, None])
        raise AssertionError

    def project_q(self, x: Any, **_: Any) -> Any:
        """Return the queries, at the target those of its parts."""
        return self._project("project_q", x, "q")

    def project_kv(self, x: Any, **_: Any) -> Any:
        """Return the keys and values, at the target those of its parts."""
        return self._project("project_kv", x, "k")

    def project_qkv(self, x: Any, **_: Any) -> Any:
        """Return the queries, keys and values, at the target those of its parts."""
        return self._project("project_qkv", x, "qk")

    def attend(self, q: Any, k: Any, v: Any, **options: Any) -> Parts:
        """Return what the heads wrote; at the target end the replay with the arrays that its projections made."""
        if self._is_target():
            self._capture(q, k, v, **options)
        return self._written()

    def _is_target(self) -> bool:
        recorder, count = self._recorder, self._attn.num_heads
        if recorder.scope_name != recorder.target:
            return False
        if recorder.head >= count:
            raise RegardError(f"{recorder.target} has no head {recorder.head}: it has {count}")
        return True

    def _project(self, method: str, x: Any, letters: str) -> Any:
        if self._is_target():
            self._read.update(dict.fromkeys(letters, x))
            return getattr(self._frozen(), method)(_stacked(x))
        nothing = np.zeros((1, 1, 1, 1), self._recorder.dtype)
        return {"project_q": nothing, "project_kv": (nothing,) * 2, "project_qkv": (nothing,) * 3}[method]

    def _capture(self, q: Any, k: Any, v: Any, *, scale: float | None = None, **_: Any) -> NoReturn:
        scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        heads = self._attn.num_heads
        q, k, v = (x[:, self._recorder.head * x.shape[1] // heads if x.shape[1] > 1 else 0] for x in (q, k, v))
        raise _Captured(Projected(q, k, v, self._read["q"].writers, self._read["k"].writers, float(scale), self._attn))

    def _frozen(self) -> Any:
        """Return a copy of the layer in float64 whose norms hold their scales, and which ends where it attends.

        It has one head, that of the recorder, unless a norm is of all heads together.
        """
        attn, frozen, head = self._attn, copy.copy(self._attn), self._recorder.head
        norms = [getattr(attn, name, None) for name in ("q_norm", "k_norm")]
        heads = {"q_proj": attn.num_heads, "k_proj": attn.num_kv_heads, "v_proj": attn.num_kv_heads}
        is_alone = all(norm is None or norm.weight.shape == (attn.head_dim,) for norm in norms)
        for each in fields(frozen):
            value = getattr(frozen, each.name)
            if isinstance(value, LayerNorm | RMSNorm):
                value = _RowNorm(value)
            elif isinstance(value, Linear) and each.name != "o_proj":
                count = heads.get(each.name, 1) if is_alone else 1
                value = _of_head(value, head * count // attn.num_heads, count)
            object.__setattr__(frozen, each.name, value)
        if is_alone:
            object.__setattr__(frozen, "num_heads", 1)
        vars(frozen).update(dict.fromkeys(CACHES), attend=self._capture)
        return frozen

    def _written(self) -> Parts:
        """Return what each head wrote, and the bias of the output projection."""
        recorder, scope, projection = self._recorder, self._recorder.scope_name, self._attn.o_proj
        recorder.attentions.append(scope)
        layer, detail = recorder.layer, recorder.detail_of(scope)

        def read() -> Values:
            context = recorder.recorded(f"{scope}.context")  # H P Dv
            gate: Any = 1  # of what a head has read, H P Dv
            if self._attn.has_output_gate:
                gate = np.broadcast_to(recorder.recorded(f"{scope}.output_gate"), context.shape)
            count, width = len(context), context.shape[-1]
            weight: Any = np.eye(count * width) if projection is None else np.asarray(projection.weight)
            work = np.float64 if weight.dtype == np.float64 else np.float32
            weight = weight.astype(work, copy=False).reshape(count, width, -1)  # H Dv E
            if recorder.split is None:
                writers = tuple(Writer("head", layer, head, detail=detail) for head in range(count))
                return writers, ((context * gate).astype(work) @ weight).astype(np.float64)
            parts = [recorder.split(scope, head, context[head]) for head in range(count)]
            gates = gate if isinstance(gate, np.ndarray) else [1] * count
            values = [
                ((values * gate).astype(work) @ rows)
                for (_, values), gate, rows in zip(parts, gates, weight, strict=True)
            ]
            return tuple(writer for writers, _ in parts for writer in writers), np.concatenate(values, dtype=np.float64)

        heads, terms = Parts(read, recorder.dtype), []
        if projection is not None and (bias := projection.bias) is not None:
            writer = Writer("bias", layer, detail=f"{scope.rpartition('.')[2]}{recorder.stack_of(scope)}")
            shape = (1, len(recorder.columns(scope)), len(bias))
            terms = [recorder.leaf((writer,), lambda: np.broadcast_to(np.asarray(bias, np.float64), shape))]
        return recorder.edited(f"{scope}.output", Parts.sum_of((heads, *terms)), f"{scope}.head_outputs")


def _of_head(linear: Linear, head: int, count: int) -> Linear:
    """Return the columns of one of `count` heads of a linear map, in float64."""
    width = linear.weight.shape[1] // count
    part = slice(head * width, (head + 1) * width)
    bias = None if linear.bias is None else linear.bias[part].astype(np.float64)
    return Linear(np.asarray(linear.weight[:, part], np.float64), bias)


def shadow_of(layer: Any, replacement: Replacement, *, is_block: bool = False) -> Any:
    """Return a copy of a model, or of a layer of it, in which other objects stand for its norms and sublayers.

    Parameters
    ----------
    layer : Layer
    replacement : function
        From such a layer, the name of its field and whether it is that of a block to what stands for it; None for one
        whose own fields are replaced.
    """

    def replaced(value: Any, name: str) -> Any:
        if isinstance(value, tuple) and all(isinstance(each, Layer) for each in value):
            return tuple(shadow_of(each, replacement, is_block=True) for each in value)
        if not isinstance(value, Layer) or isinstance(value, Embedding):
            return value
        other = replacement(value, name, is_block)
        return shadow_of(value, replacement) if other is None else other

    shadow = copy.copy(layer)
    for each in fields(layer):
        object.__setattr__(shadow, each.name, replaced(getattr(layer, each.name), each.name))
    vars(shadow).update(dict.fromkeys(CACHES))  # no fused call
    return shadow


def _stacked(x: Parts) -> np.ndarray:
    """Return the whole, 0, and each part, ``N P E``: what an affine map makes of 0 is its constant."""
    total = x.total
    return np.concatenate([total[None], np.zeros_like(total)[None], x.values])


def _at(rotation: Any, recorder: Replay) -> Any:
    """Return the rotation, ``T D/2`` or ``B 1 T D/2``, of the positions that are read."""
    columns = recorder.columns(recorder.scope_name)

    def select(angles: np.ndarray) -> np.ndarray:
        angles = angles[min(recorder.batch, len(angles) - 1)] if angles.ndim > 2 else angles
        return angles[..., columns, :]

    cos, sin = rotation
    return select(cos), select(sin)
