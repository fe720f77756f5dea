"""A run of an encoder–decoder as one sequence, a text and its target, in which each attention has its own block.

The encoder's has the rows and columns of the text, the decoder's those of the target, and cross-attention the rows of
the target and the columns of the text. The page shows the block alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer.run import ARROW, MAX_PAIR_TOKENS, Run, make_run
from regard.functional.biases.base import Bias
from regard.metrics.layer_maps import LayerMap, layer_numbers
from regard.text.encoding import Encoding
from regard.trace import AttentionMap, Trace


class Block(NamedTuple):
    """The tokens that are the rows of an attention, and those that are its columns."""

    rows: range
    cols: range

    @property
    def is_cross(self) -> bool:
        """Whether the rows are tokens of another sequence than the columns."""
        return self.rows != self.cols


@dataclass(frozen=True, eq=False)
class PairRun(Run):
    """One run of an encoder–decoder; `layers` are maps of all tokens, 0 outside of their blocks."""

    own_layers: tuple[LayerMap, ...] = ()  # as they were recorded
    encodings: tuple[Encoding, ...] = ()  # of the text and of the target
    own_trace: Trace | None = None
    own_batch: int = 0
    reader: Any = None

    @property
    def modes(self) -> tuple[str, ...]:
        """Weights alone: rollout and norms follow one sequence."""
        return ("raw",)

    def number(self, layer: int) -> int:
        """Return the place of a layer: the encoder and the decoder number theirs alike."""
        return layer

    def recorded_at(self, layer: int) -> tuple[Trace, int, range, range]:
        """Return the trace that a layer was recorded in, which text of it, and the tokens of its rows and columns."""
        return self.own_trace or self.trace, self.own_batch, *self.block(layer)

    def label(self, layer: int) -> str:
        """Return the name of a layer, with its number in the encoder or the decoder."""
        name = self.layers[layer].name
        number = layer_numbers([each.name for each in self.layers])[layer]
        return f"{'Cross' if 'cross_attn' in name else name.split('.')[0].capitalize()} {number}"

    def block(self, layer: int) -> Block:
        """Return the block of a layer."""
        return _block(self.layers[layer].name, *map(len, self.encodings))

    def bias_rule(self, layer: int) -> Bias | None:
        """Return the rule of the bias of a layer, which its map among all tokens holds as an array."""
        source = self.own_layers[layer].source
        return source.bias if isinstance(source, AttentionMap) else None

    def measured(self, layer: int) -> tuple[LayerMap, np.ndarray, Encoding | None]:
        """Return what the metrics of a layer are computed from: of self-attention, the sequence alone."""
        block = self.block(layer)
        if block.is_cross:
            return self.layers[layer], np.array(block.rows), self.encoding
        return self.own_layers[layer], np.arange(len(block.rows)), self.encodings[block.rows.start > 0]

    def telling_layers(self) -> list[int]:
        """Return the layers among which the page chooses one to open with: cross-attention, if it was recorded."""
        crosses = [layer for layer in range(len(self.layers)) if self.block(layer).is_cross]
        return crosses or super().telling_layers()

    def telling_tokens(self, most: int) -> np.ndarray:
        """Return the first tokens of both sequences, among which the page looks for a weight to open with."""
        text, target = map(len, self.encodings)
        return np.concatenate([np.arange(min(text, most // 2)), text + np.arange(min(target, most // 2))])


def run_of(trace: Trace, model: Any, batch: int) -> Run:
    """Return the run of one text of a trace: with its target, if the decoder read more than the start token."""
    longest = max(map(len, trace.target_encodings), default=0)
    if longest > 1 and any("cross_attn" in name for name in _weights(trace)):
        return make_pair_run(trace, model, batch)
    return make_run(trace, model, batch)


def make_pair_run(trace: Trace, model: Any, batch: int) -> PairRun:
    """Return the run of one text and its target.

    Raises
    ------
    RegardError
        There is no such text, or the two have too many tokens.
    """
    if not 0 <= batch < len(trace.encodings):
        raise RegardError(f"there is no text {batch} in a trace of {len(trace.encodings)}")
    encodings = trace.encodings[batch], trace.target_encodings[batch]
    text, target = map(len, encodings)
    if text + target > MAX_PAIR_TOKENS:
        raise RegardError(
            f"a text and its target are explored up to {MAX_PAIR_TOKENS:,} tokens together, these have "
            f"{text:,} and {target:,}"
        )
    whole = Trace()
    encoding = joined(*encodings)
    whole.set_metadata(trace.model, (encoding,))
    layers, own_layers = [], []
    for weights in _weights(trace):
        name = weights.rpartition(".")[0]
        block = _block(name, text, target)
        source = trace.map(name).select(batch) if trace.has_map(name) else trace[weights][batch]
        kv_heads = source.k.shape[-3] if isinstance(source, AttentionMap) else None
        own_layers.append(LayerMap(name, source, kv_heads, text if block.rows.start == 0 else target))
        layers.append(LayerMap(name, _spread_out(source, block, len(encoding)), kv_heads, len(encoding)))
        for step, axes, at in (("v", "G S Dv", block.cols), ("context", "H T Dv", block.rows)):
            if f"{name}.{step}" in trace:
                whole(f"{name}.{step}", _placed(trace[f"{name}.{step}"][batch], at, len(encoding)), axes)
    own = {"own_layers": tuple(own_layers), "own_trace": trace, "own_batch": batch, "reader": model}
    return PairRun(whole, layers, 0, encoding, None, encodings=encodings, **own)


def joined(text: Encoding, target: Encoding) -> Encoding:
    """Return a text and its target as one text."""
    before = f"{text.text} {ARROW} "
    shift, words = len(before), 1 + max((x for x in text.word_ids if x is not None), default=-1)
    after = replace(
        target,
        word_ids=tuple(None if word is None else word + words for word in target.word_ids),
        offsets=tuple(
            (0, 0) if special else (start + shift, end + shift)
            for (start, end), special in zip(target.offsets, target.special_tokens_mask, strict=True)
        ),
    )
    return Encoding(
        before + target.text,
        text.ids + after.ids,
        text.tokens + after.tokens,
        text.special_tokens_mask + after.special_tokens_mask,
        text.word_ids + after.word_ids,
        text.offsets + after.offsets,
    )


def _weights(trace: Trace) -> list[str]:
    return [name for name in trace.names() if name.rpartition(".")[2] == "weights"]


def _block(name: str, text: int, target: int) -> Block:
    of_text, of_target = range(text), range(text, text + target)
    if "cross_attn" in name:
        return Block(of_target, of_text)
    return Block(of_text, of_text) if name.startswith("encoder.") else Block(of_target, of_target)


def _spread_out(source: AttentionMap | np.ndarray, block: Block, length: int) -> AttentionMap | np.ndarray:
    """Return the map of all tokens whose block is `source`, ``H T S``, and whose other weights are 0."""
    rows, cols = slice(len(block.rows)), slice(len(block.cols))
    place = (slice(None), slice(block.rows.start, block.rows.stop), slice(block.cols.start, block.cols.stop))
    if not isinstance(source, AttentionMap):
        whole = np.zeros((len(source), length, length), source.dtype)
        whole[place] = source[:, rows, cols]
        return whole
    capped, biased = (np.asarray(source.tile(rows, cols, stage=stage)) for stage in ("capped", "biased"))
    visible = ~np.isneginf(biased)
    mask = np.zeros((len(visible), length, length), bool)
    mask[place] = visible
    added = np.subtract(biased, capped, where=visible, out=np.zeros_like(biased))
    bias = None
    if added.any():
        bias = np.zeros(mask.shape, added.dtype)
        bias[place] = added
    return AttentionMap(
        _placed(source.q, block.rows, length),
        _placed(source.k, block.cols, length),
        mask=mask,
        bias=bias,
        scale=source.scale,
        softcap=source.softcap,
        sinks=source.sinks,
    )


def _placed(vectors: Any, at: range, length: int) -> np.ndarray:
    """Return vectors ``H T D``, without padding, at their places among all tokens; those of other tokens are 0."""
    values = np.asarray(vectors)
    whole = np.zeros((len(values), length, values.shape[-1]), values.dtype)
    whole[:, at.start : at.stop] = values[:, : len(at)]
    return whole
