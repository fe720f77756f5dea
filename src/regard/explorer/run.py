"""One run that is explored: its trace as the page is told of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer.cache import LIMIT
from regard.explorer.display_modes import LONGEST, hands_over
from regard.explorer.movement import MOST_TOKENS, stages_of
from regard.metrics.layer_maps import LayerMap, layers_of
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.trace.attention_map import AttentionMap
from regard.views.labels import token_labels

STEPS = ("*embeddings", "*attn.weights", "*attn.v", "*attn.context", "*blocks.*.output")
"""What the page shows; the rest of a run need not be recorded."""

SAMPLED = 512
"""Rows of a text that is too long to go through all of them."""

_ROLLED = LIMIT // 3  # bytes of the maps of rollout of one run, so that those of two are kept, beside what else is seen


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a model, as it was recorded.

    Parameters
    ----------
    trace : Trace
    layers : list of LayerMap
    batch : int
        Which text of the trace.
    encoding : Encoding or None
    model : optional
        What ran; with it the run can be edited.
    title : str
        What the page calls it beside its letter: "" or what was edited.
    off : tuple of (layer, head)
        The heads that are switched off: they look, and hand nothing on.
    """

    trace: Trace
    layers: list[LayerMap]
    batch: int
    encoding: Encoding | None
    model: Any
    title: str = ""
    off: tuple[tuple[int, int], ...] = ()

    @property
    def length(self) -> int:
        """The number of tokens."""
        return self.layers[0].length

    @property
    def rolled(self) -> int:
        """The bytes of the maps of rollout."""
        return 4 * len(self.layers) * self.length**2

    @cached_property
    def ways(self) -> tuple[str, ...]:
        """The ways in which the maps can be looked at."""
        ways = ["raw"]
        if self.length <= LONGEST and len(self.layers) > 1 and self.rolled <= _ROLLED:
            ways.append("rollout")
        if self.length <= LONGEST and self.model is not None and hands_over(self.model, self.trace, self.layers):
            ways.append("norms")
        return tuple(ways)

    @cached_property
    def plane(self) -> str | None:
        """What a run must have in common with another so that the tokens of both move on one plane: stages and sizes.

        None where the vectors of the stages are not there, or are too many.
        """
        stages = stages_of(self.trace)
        if len(stages) < 2 or self.length > MOST_TOKENS:
            return None
        return " ".join(f"{name}:{self.trace[name].shape[-1]}" for name in stages)

    @property
    def rotates(self) -> bool | None:
        """Whether the model turns queries and keys by their positions; None where no model tells."""
        return None if self.model is None else getattr(self.model.config, "rope", None) is not None

    @cached_property
    def unedited(self) -> Any:
        """What the model returns for the text, which every edit is held against."""
        with np.errstate(all="ignore"):
            return self.model(self.encoding)

    def number(self, layer: int) -> int:
        """Return the number of a layer in its model, of which a trace may hold some layers alone."""
        named = re.search(r"(?:^|\.)blocks\.(\d+)\.", self.layers[layer].name)
        return int(named[1]) if named else layer

    @cached_property
    def described_layers(self) -> list[dict[str, Any]]:
        """What the page is told of each layer."""
        return [{"number": self.number(n), **_layer_entry(layer)} for n, layer in enumerate(self.layers)]

    @cached_property
    def described_tokens(self) -> list[dict[str, Any]]:
        """What the page is told of each token."""
        return _tokens(self)

    def sampled(self) -> np.ndarray:
        """Return all rows, of a long text some: those that small pictures and measures are worked out from."""
        return np.arange(self.length) if self.length <= LONGEST else _spread(self.length, SAMPLED)


def steps_shown(length: int, layer: int | None = None) -> tuple[str, ...]:
    """Return the names to record of a text of so many tokens; of a long one the maps, or those of one layer, alone."""
    if length <= MOST_TOKENS:
        return STEPS
    here = "*" if layer is None else f"*blocks.{layer}."
    return f"{here}attn.weights", f"{here}attn.v"


def steps_shown_of(trace: Trace) -> tuple[str, ...]:
    """Return the names in a trace of what the page shows: another run that records these has the same layers."""
    return tuple(name for name in trace.names() if any(fnmatchcase(name, step) for step in STEPS))


def run_of(trace: Trace, model: Any, batch: int) -> Run:
    """Return the run of one text of a trace.

    Raises
    ------
    RegardError
        The trace holds no attention of a text to itself, or has no such text.
    """
    encoding = trace.encodings[batch] if trace.encodings and 0 <= batch < len(trace.encodings) else None
    layers = layers_of(trace, batch)
    if batch and not any(trace.axes(layer.step("weights")).startswith("B ") for layer in layers):
        raise RegardError(f"there is no text {batch} in a trace of one")
    return Run(trace, layers, batch, encoding, model)


def worth_seeing(run: Run) -> tuple[int, int]:
    """Return the layer and head that gives most to words, and least to the first token, special ones and a sink."""
    special = np.zeros(run.length, dtype=bool)
    special[0] = True
    if run.encoding is not None:
        special |= np.array(run.encoding.special_tokens_mask, dtype=bool)
    if special.all():
        return len(run.layers) - 1, 0
    rows = np.flatnonzero(~special)[:64]
    upper = len(run.layers) // 2  # below that, heads look at places more than at words
    given = [
        (-float(layer.tile(head, rows, np.flatnonzero(~special)).sum(axis=-1).mean()), number, head)
        for number, layer in enumerate(run.layers)
        if number >= upper
        for head in range(len(layer.heads))
    ]
    return min(given)[1:]


def _tokens(run: Run) -> list[dict[str, Any]]:
    """Return each token of a run; start and end count UTF-16 code units, as JavaScript does."""
    encoding = run.encoding
    if encoding is None:
        numbered = range(run.length)
        return [{"text": str(i), "special": False, "word": i, "start": 0, "end": 0} for i in numbered]
    units = np.cumsum([0, *(1 + (ord(letter) > 0xFFFF) for letter in encoding.text)])
    return [
        {"text": text, "special": special, "word": word, "start": int(units[start]), "end": int(units[end])}
        for text, special, word, (start, end) in zip(
            token_labels(encoding), encoding.special_tokens_mask, encoding.word_ids, encoding.offsets, strict=True
        )
    ]


def _layer_entry(layer: LayerMap) -> dict[str, Any]:
    rows = _spread(layer.length, max(8, min(64, (1 << 20) // layer.length)))
    heads = range(len(layer.heads))
    sums = np.array([layer.tile(head, rows, None).sum(axis=-1, dtype=np.float64) for head in heads])
    numbers = np.isfinite(sums)
    seen = numbers & (sums != 0)  # a row with nothing to look at sums to 0
    sinks = any(isinstance(look, AttentionMap) and look.sinks is not None for look in layer.heads)
    ahead = [0, layer.length // 2]
    causal = layer.length > 1 and all(
        not layer.tile(head, np.array([i]), None)[0, i + 1 :].any() for head in heads[:1] for i in ahead
    )
    return {
        "name": layer.name,
        "heads": len(layer.heads),
        "kv_heads": layer.kv_heads,
        "rows": layer.length,
        "cols": layer.length,
        "causal": causal,
        # A sink takes its share, which is none of the row.
        "row_sum_error": None if sinks or not seen.any() else float(np.abs(sums[seen] - 1).max()),
        "rows_summed": len(rows),
        "not_numbers": int(np.count_nonzero(~numbers)),
    }


def _spread(length: int, count: int) -> np.ndarray:
    """Return at most `count` rows, evenly spread."""
    return np.arange(min(count, length)) * length // min(count, length)
