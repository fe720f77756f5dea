"""The steps of one head, from the embeddings to the output of its layer, with their numbers and formulas."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from regard._utils.errors import RegardError
from regard.text.token_labels import token_labels
from regard.trace import Trace
from regard.trace.steps import formula
from regard.views.labels import format_number
from regard.views.trace_access import batch_entry, layers_with, resolve_head, resolve_index


class HeadStep(NamedTuple):
    """One step of a head."""

    name: str  # as in the trace
    head: str  # ", head 3" or " of kv head 1" where the step has heads and that is not said otherwise; or ""
    formula: str
    values: np.ndarray  # a row for each token, or one row; a map has a column for each token too
    is_map: bool = False


@dataclass(frozen=True, eq=False)
class HeadSteps:
    """The steps of one head of one layer, for one text of a trace."""

    layer: int
    head: int
    kv_head: int
    tokens: tuple[str, ...]  # as `token_labels` spells them; see `escape` before printing them
    inputs: tuple[tuple[str, np.ndarray], ...]
    hides_projected: bool  # whether queries and keys before norms and rotation are others, and were not recorded
    projected_q: np.ndarray | None  # None: not recorded, or q itself
    projected_k: np.ndarray | None
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    scores: np.ndarray
    later_scores: tuple[tuple[str, np.ndarray], ...]
    weights: np.ndarray
    context: np.ndarray
    output_gate: np.ndarray | None  # of the head
    output: np.ndarray

    @property
    def final_scores(self) -> np.ndarray:
        """The input of the softmax: −∞ for masked keys."""
        return self.later_scores[-1][1] if self.later_scores else self.scores

    @property
    def scale(self) -> float:
        """The factor of q · k."""
        products = self.q.astype(np.float64) @ self.k.astype(np.float64).T
        largest = np.unravel_index(np.argmax(np.abs(products)), products.shape)
        scale = float(self.scores[largest] / products[largest]) if products[largest] else 0.0
        default = 1 / math.sqrt(self.q.shape[-1])
        return default if not scale or abs(scale / default - 1) < 1e-3 else scale

    @property
    def scaling(self) -> str:
        """The factor in words: ``÷ √D``, or that of the model."""
        width = self.q.shape[-1]
        return f"÷ √{width}" if self.scale == 1 / math.sqrt(width) else f"× {short_number(self.scale)}"

    def product(self, row: int, key: int) -> float:
        """Return q · k of a query and a key."""
        return float(self.q[row].astype(np.float64) @ self.k[key].astype(np.float64))

    def allowed_keys(self, row: int) -> list[int]:
        """Return the keys that a query may attend to."""
        return [int(key) for key in np.flatnonzero(self.final_scores[row] > -math.inf)]

    def __iter__(self) -> Iterator[HeadStep]:
        """Yield the steps in the order in which they are computed."""
        for name, values in self.inputs:
            is_norm = name.endswith(".attn_norm")
            how = "norm(x): what attention reads, called x from here on" if is_norm else formula(name)
            yield HeadStep(name, "", how, values)
        at = f"blocks.{self.layer}.attn"
        shared = f" of kv head {self.kv_head}" if self.kv_head != self.head else ""
        for letter, head, what in (("q", f", head {self.head}", "query"), ("k", shared, "key")):
            projected, values = getattr(self, f"projected_{letter}"), getattr(self, letter)
            how, meaning = f"x · W_{letter} (+ b_{letter})", f"the {what} of each token"
            if self.hides_projected:
                how += " after norm or rotation"
            if projected is not None:
                yield HeadStep(f"{at}.projected_{letter}", head, f"{how}: before norm or rotation", projected)
                how = f"projected_{letter} after norm or rotation"
            yield HeadStep(f"{at}.{letter}", head, f"{how}: {meaning}", values)
        yield HeadStep(f"{at}.v", shared, "x · W_v (+ b_v): the value of each token", self.v)
        yield HeadStep(
            f"{at}.scores", "", f"q · kᵀ {self.scaling}: how well query and key match", self.scores, is_map=True
        )
        for name, values in self.later_scores:
            yield HeadStep(f"{at}.{name}", "", formula(name), values, is_map=True)
        last = self.later_scores[-1][0] if self.later_scores else "scores"
        minus = "" if np.allclose(self.weights.sum(-1), 1, atol=1e-3) else ", minus the weight of the sink"
        how = f"softmax({last}): each row sums to 1{minus}"
        yield HeadStep(f"{at}.weights", "", how, self.weights, is_map=True)
        yield HeadStep(f"{at}.context", "", "weights · v: the weighted sum of the values", self.context)
        if self.output_gate is not None:
            yield HeadStep(f"{at}.output_gate", "", formula(f"{at}.output_gate"), self.output_gate)
        yield HeadStep(f"{at}.output", "", formula(f"{at}.output"), self.output)


def head_steps(trace: Trace, *, layer: int | None = None, head: int | str = 0, batch: int = 0) -> HeadSteps:
    """Return the steps of one head of one layer, by default the first, for one text of a trace.

    A name, such as ``"L3H7"``, gives both.

    Raises
    ------
    RegardError
        There is no such layer, head or text, or a step was not recorded.
    """
    layers = layers_with("attn.weights", trace)
    if not layers:
        raise RegardError("the trace holds no blocks.N.attn.weights: record a run with Trace()")
    if not trace.encodings:
        raise RegardError("the trace has no text: record the run of a model on a text")
    layer, number = resolve_head(layer, head, layers)
    shown_layer = layers[0] if layer is None else layer
    batch = resolve_index("text", batch, range(len(trace.encodings)))
    encoding = trace.encodings[batch]
    length = len(encoding)

    def attn(name: str) -> np.ndarray:
        values: np.ndarray = trace[f"blocks.{shown_layer}.attn.{name}"][batch]
        return values

    def rows(name: str) -> np.ndarray:
        axes = trace.axes(name)
        return batch_entry(trace[name], axes, batch if axes.startswith("B ") else 0)[0][:length]

    def cells(name: str) -> np.ndarray:
        return attn(name)[head_index, :length, :length]

    heads = len(attn("weights"))
    head_index = resolve_index("head", number or 0, range(heads))
    kv_head = head_index // (heads // len(attn("k")))
    names = ("token_embeddings", "position_embeddings", "type_embeddings", "embeddings", "normed_embeddings")
    inputs = [(name, rows(name)) for name in names if name in trace]
    if shown_layer > 0:
        before = f"blocks.{shown_layer - 1}.output"
        inputs.append((before, rows(before)))
    recorded = trace.names()
    norm, q, gate = (f"blocks.{shown_layer}.{name}" for name in ("attn_norm", "attn.q", "attn.output_gate"))
    if norm in recorded and recorded.index(norm) < recorded.index(q):  # else it comes after attention
        inputs.append((norm, rows(norm)))

    def projected(letter: str, head: int) -> np.ndarray | None:
        name = f"blocks.{shown_layer}.attn.projected_{letter}"
        values = attn(f"projected_{letter}")[head, :length] if name in recorded else None
        return None if values is None or np.array_equal(values, attn(letter)[head, :length]) else values

    later_scores, previous = [], cells("scores")
    for name in ("capped", "biased"):
        is_recorded = f"blocks.{shown_layer}.attn.{name}" in trace or trace.has_map(f"blocks.{shown_layer}.attn")
        if is_recorded and not np.array_equal(cells(name), previous):
            previous = cells(name)
            later_scores.append((name, previous))
    return HeadSteps(
        layer=shown_layer,
        head=head_index,
        kv_head=kv_head,
        tokens=token_labels(encoding),
        inputs=tuple(inputs),
        hides_projected=f"blocks.{shown_layer}.attn.projected_q" in {*trace.optional_steps()} - {*recorded},
        projected_q=projected("q", head_index),
        projected_k=projected("k", kv_head),
        q=attn("q")[head_index, :length],
        k=attn("k")[kv_head, :length],
        v=attn("v")[kv_head, :length],
        scores=cells("scores"),
        later_scores=tuple(later_scores),
        weights=cells("weights"),
        context=attn("context")[head_index, :length],
        output_gate=attn("output_gate")[head_index, :length] if gate in recorded else None,
        output=attn("output")[:length],
    )


def short_number(x: float) -> str:
    """Return a number in at most 9 columns."""
    x = float(x)
    if x == 0 or not math.isfinite(x):
        return {math.inf: "∞", -math.inf: "−∞"}.get(x, "0" if x == 0 else "NaN")
    if 1e-3 <= abs(x) < 1e5:
        return format_number(x, ".3f")
    digits, _, exponent = format_number(x, ".2e").partition("e")
    return f"{digits}e{exponent[0].replace('+', '')}{exponent[1:].lstrip('0')}"  # e−4
