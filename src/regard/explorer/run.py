"""One explored run: a trace, and its description for the page."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.cache import LIMIT
from regard.explorer.display_modes import MAX_WHOLE_TOKENS, has_value_norms
from regard.explorer.stages import MAX_MOVEMENT_TOKENS, stages_of
from regard.explorer.validation import check_index
from regard.functional.biases.base import Bias
from regard.metrics import WHY_STEPS
from regard.metrics.layer_maps import LayerMap, layer_numbers, layers_of, missing_layer
from regard.models.batch import remove_padding
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.output import run_traced
from regard.text.encoding import Encoding
from regard.text.token_labels import token_labels
from regard.trace import AttentionMap, Trace
from regard.trace.edits import ablate
from regard.trace.step_names import matches

Head: TypeAlias = int | Literal["mean"]

_PICTURE = "picture"
STEPS = (_PICTURE, "*blocks.*.output", *WHY_STEPS)
"""Name patterns of the steps that the page shows."""

NUM_SAMPLED_ROWS = 512
"""Rows of a long text from which its metrics and thumbnails are computed; of a very long one fewer."""

ARROW = "→"
"""Stands between the text and the target of an encoder–decoder."""

MAX_PAIR_TOKENS = 1024
"""Tokens of a text and its target together."""

MAX_GENERATED = 64
"""Tokens that an encoder–decoder generates as the target, at most."""

_SAMPLED_WEIGHTS = 2**26  # at most

_BYTE = re.compile(r"\\x[0-9a-f]{2}")  # in a label, of an incomplete character
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_MAX_ROLLOUT_BYTES = LIMIT // 3  # of one run: the cache holds those of two and other maps beside them


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a model, as it was recorded."""

    trace: Trace
    layers: list[LayerMap]
    batch: int  # which text of the trace
    encoding: Encoding | None
    model: Any  # what ran, or None; needed for ablations
    title: str = ""  # "", or the ablated heads in words
    ablated: tuple[tuple[int, int], ...] = ()  # (layer, head) whose output is set to 0
    edited: Any = None  # the output of the model without them
    picture: np.ndarray | None = None  # what a model of pictures saw, ``Y X C``; of a text, or not recorded: None

    @property
    def length(self) -> int:
        """The number of tokens."""
        return self.layers[0].length

    @property
    def special(self) -> np.ndarray:
        """Which tokens are special, bool ``T``."""
        return np.array(self.encoding.special_tokens_mask if self.encoding else [False] * self.length, dtype=bool)

    @property
    def rollout_nbytes(self) -> int:
        """Bytes of the rollout maps of all layers."""
        return 4 * len(self.layers) * self.length**2

    @cached_property
    def modes(self) -> tuple[str, ...]:
        """Keys of the display modes that this run has."""
        modes = ["raw"]
        if self.is_long:
            return tuple(modes)
        has_every = missing_layer(self.layers, self.model) is None
        if len(self.layers) > 1 and has_every and self.rollout_nbytes <= _MAX_ROLLOUT_BYTES:
            modes.append("rollout")
        if has_value_norms(self.model, self.trace, self.layers):
            modes.append("norms")
        return tuple(modes)

    @cached_property
    def projection_key(self) -> str | None:
        """Stages and vector sizes: runs of one key are projected onto one plane.

        None where the vectors of the stages were not recorded, or are too many.
        """
        stages = stages_of(self.trace)
        if len(stages) < 2 or self.length > MAX_MOVEMENT_TOKENS:
            return None
        return " ".join(f"{name}:{self.trace[name].shape[-1]}" for name in stages)

    @property
    def reader(self) -> Any:
        """What runs other texts, or None."""
        return self.model

    @property
    def can_ablate(self) -> bool:
        """Whether the run can be repeated without some heads."""
        is_known = self.encoding is not None and (self.encoding.grid is None or self.picture is not None)
        return self.model is not None and is_known

    def again(self, count: int = 1, **options: Any) -> Any:
        """Return the output of the model for the text, or what was seen of the picture, `count` times in one batch."""
        if self.picture is None:
            return self.model([self.encoding] * count if count > 1 else self.encoding, **options)
        pixels = self.model.processor.normalize(np.repeat(self.picture[None], count, axis=0))
        return self.model({"pixel_values": pixels}, **options)

    @cached_property
    def unedited(self) -> Any:
        """The output of the model for the text, with which every ablation is compared."""
        with np.errstate(all="ignore"):
            return self.again()

    @property
    def output(self) -> Any:
        """The output of the model for the text, without the ablated heads."""
        return self.edited if self.ablated else self.unedited

    @property
    def edits(self) -> dict[str, Any]:
        """The edits of the ablated heads."""
        return ablate(*((self.layers[layer].name, head) for layer, head in self.ablated)) if self.ablated else {}

    def layer_map(self, layer: int, head: Head = "mean", *tokens: int) -> LayerMap:
        """Return a layer; an error if there is none, or if it has not this head and these tokens."""
        check_index("layer", layer, len(self.layers))
        layer_map = self.layers[layer]
        if head != "mean":
            check_index("head", head, len(layer_map.heads))
        for token in tokens:
            check_index("token", token, layer_map.length)
        return layer_map

    def position(self, position: int | None) -> int:
        """Return a position, by default the last; an error if there is none."""
        if position is None:
            return self.length - 1
        check_index("token", position, self.length)
        return position

    def number(self, layer: int) -> int:
        """Return the number of a layer in its model; a trace may hold only some layers."""
        return layer_numbers([each.name for each in self.layers])[layer]

    def recorded_at(self, layer: int) -> tuple[Trace, int, range, range]:  # noqa: ARG002
        """Return the trace that a layer was recorded in, which text of it, and the tokens of its rows and columns."""
        return self.trace, self.batch, range(self.length), range(self.length)

    def label(self, layer: int) -> int | str:
        """Return what the page calls a layer: its number."""
        return self.number(layer)

    def block(self, layer: int) -> tuple[range, range] | None:  # noqa: ARG002
        """Return the rows and columns to which the map of a layer is limited; None: all."""
        return None

    def bias_rule(self, layer: int) -> Bias | None:
        """Return the rule by which a layer adds a bias to its scores; None where there is none, or none is recorded."""
        source = self.layers[layer].source
        return source.bias if isinstance(source, AttentionMap) else None

    def measured(self, layer: int) -> tuple[LayerMap, np.ndarray, Encoding | None]:
        """Return a map, rows of it, and its tokens, from which the metrics of a layer are computed."""
        return self.layers[layer], self.sampled_rows(), self.encoding

    def telling_layers(self) -> list[int]:
        """Return the layers among which the page chooses one to open with."""
        return list(range(len(self.layers)))

    def telling_tokens(self, most: int) -> np.ndarray:
        """Return the tokens among which the page looks for a weight to open with."""
        return np.arange(min(self.length, most))

    @cached_property
    def layer_descriptions(self) -> list[answers.Layer]:
        """Each layer as plain data for the page."""
        return [_describe_layer(self.label(n), layer, self.block(n)) for n, layer in enumerate(self.layers)]

    @cached_property
    def token_descriptions(self) -> list[answers.Token]:
        """Each token as plain data for the page; start and end count UTF-16 code units, as JavaScript does."""
        encoding = self.encoding
        if encoding is None:
            numbered = range(self.length)
            return [{"text": str(i), "special": False, "word": i, "start": 0, "end": 0} for i in numbered]
        labels, special_tokens = _readable_labels(encoding), encoding.special_tokens_mask
        units = np.cumsum([0, *(1 + (ord(letter) > 0xFFFF) for letter in encoding.text)])
        return [
            {"text": text, "special": special, "word": word, "start": int(units[start]), "end": int(units[end])}
            for text, special, word, (start, end) in zip(
                labels,
                special_tokens,
                encoding.word_ids,
                encoding.offsets,
                strict=True,
            )
        ]

    @cached_property
    def picture_description(self) -> answers.Picture | None:
        """What a model of pictures saw, as plain data for the page: its pixels, and its patches; None for a text."""
        if self.encoding is None or self.encoding.grid is None or self.picture is None:
            return None
        pixels = np.asarray(self.picture).round().clip(0, 255).astype(np.uint8)  # Y X C
        height, width = pixels.shape[:2]
        rows, cols = self.encoding.grid
        data = base64.b64encode(pixels.tobytes()).decode("ascii")
        return {"rows": rows, "cols": cols, "height": height, "width": width, "pixels": data}

    @property
    def is_long(self) -> bool:
        """Whether the text is too long for whole maps."""
        return self.length > MAX_WHOLE_TOKENS

    def sampled_rows(self) -> np.ndarray:
        """Return the rows from which thumbnails and metrics are computed: all, for a long text some."""
        count = min(NUM_SAMPLED_ROWS, max(16, _SAMPLED_WEIGHTS // self.length))
        return _spread(self.length, count) if self.is_long else np.arange(self.length)


def shown_steps(length: int, layer: int | None = None) -> tuple[str, ...]:
    """Return the names to record of a text of this length; of a long one only the maps, or those of one layer."""
    if length <= MAX_MOVEMENT_TOKENS:
        return STEPS
    here = "*" if layer is None else f"*blocks.{layer}."
    return f"{here}attn.weights", f"{here}attn.v"


def shown_steps_of(trace: Trace) -> tuple[str, ...]:
    """Return the names in a trace that the page shows: a second run that records these has the same layers."""
    return tuple(name for name in trace.names() if matches(name, *STEPS) and name != _PICTURE)


def make_run(trace: Trace, model: Any, batch: int) -> Run:
    """Return the run of one text of a trace.

    An error if the trace holds no attention of a text to itself, or has no such text.
    """
    encoding = trace.encodings[batch] if trace.encodings and 0 <= batch < len(trace.encodings) else None
    layers = layers_of(trace, batch)
    if batch and not any(trace.axes(layer.step("weights")).startswith("B ") for layer in layers):
        raise RegardError(f"there is no text {batch} in a trace of one")
    picture = np.asarray(trace[_PICTURE][batch]) if _PICTURE in trace else None
    return Run(trace, layers, batch, encoding, model, picture=picture)


def recorded(model: Any, text: str | Mapping[str, Any], layer: int | None = None) -> Trace:
    """Return the trace of a model on a text, with the steps that the page shows; of a long text, `layer` alone.

    An encoder–decoder reads what stands after the arrow of ``"text → target"`` as the target, else what it generates;
    for a long text its encoder alone is recorded.

    An error if the model cannot read the text, or if its vectors overflow.
    """
    target = ""
    if isinstance(model, EncoderDecoder) and isinstance(text, str):
        text, _, target = map(str.strip, text.partition(ARROW))
    encoding = model.tokenizer(text) if isinstance(text, str) else _one_encoding(model, text)
    if isinstance(model, EncoderDecoder) and (target or len(encoding) + MAX_GENERATED < MAX_PAIR_TOKENS):
        return _recorded_pair(model, encoding, target)
    return run_traced(model, encoding, Trace(maps=True, optional=shown_steps(len(encoding), layer)))


def _recorded_pair(model: EncoderDecoder, text: Encoding, target: str) -> Trace:
    trace = Trace(maps=True, optional=WHY_STEPS)
    with np.errstate(all="ignore"):
        if target:
            model(text, target, trace=trace)
        else:
            model.generate(text, max_new_tokens=MAX_GENERATED, trace=trace)
    return trace


def _one_encoding(model: Any, text: Mapping[str, Any]) -> Encoding:
    encodings = remove_padding(text, model.tokenizer)
    if len(encodings) != 1:
        raise RegardError(f"a mapping for the explorer must hold one text, got {len(encodings)}")
    return encodings[0]


def _readable_labels(encoding: Encoding) -> list[str]:
    r"""Return the label of each token; parts of one character are that character with the number of the part.

    A byte-level vocabulary may split a letter: the bytes of ``ם`` are ``ם₁`` and ``ם₂``, not ``\xd7`` and ``\x9d``.
    """
    labels, offsets, part = list(token_labels(encoding)), encoding.offsets, 0
    for n, (start, end) in enumerate(offsets):
        continues = n > 0 and start < offsets[n - 1][1]
        is_continued = n + 1 < len(offsets) and offsets[n + 1][0] < end
        part = part + 1 if continues else 1
        if _BYTE.search(labels[n]) and (continues or is_continued):
            labels[n] = encoding.text[start:end] + str(part).translate(_SUBSCRIPTS)
    return labels


def _describe_layer(number: int | str, layer: LayerMap, block: tuple[range, range] | None) -> answers.Layer:
    rows = _spread(layer.length, max(8, min(64, (1 << 20) // layer.length)))
    heads = range(len(layer.heads))
    sums = np.array([layer.tile(head, rows, None).sum(axis=-1, dtype=np.float64) for head in heads])
    finite = np.isfinite(sums)
    nonempty = finite & (sums != 0)  # a fully masked row sums to 0
    has_sinks = any(isinstance(source, AttentionMap) and source.sinks is not None for source in layer.heads)
    probed = [0, layer.length // 2]
    is_own = block is None or block[0] == block[1]  # else the columns are of another sequence
    causal = (
        is_own
        and layer.length > 1
        and all(not layer.tile(head, np.array([i]), None)[0, i + 1 :].any() for head in heads[:1] for i in probed)
    )
    return {
        "number": number,
        "block": None if block is None else [{"from": each.start, "to": each.stop} for each in block],
        "name": layer.name,
        "heads": len(layer.heads),
        "kv_heads": layer.kv_heads,
        "rows": layer.length,
        "cols": layer.length,
        "causal": causal,
        # With a sink a row sums to less than 1.
        "row_sum_error": None if has_sinks or not nonempty.any() else float(np.abs(sums[nonempty] - 1).max()),
        "num_nonfinite_rows": int(np.count_nonzero(~finite)),
    }


def _spread(length: int, count: int) -> np.ndarray:
    """Return at most `count` rows, evenly spread."""
    return np.arange(min(count, length)) * length // min(count, length)
