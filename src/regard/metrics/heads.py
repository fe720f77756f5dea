"""Head metrics: a few numbers for each head. To add one, write its function here."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.frames import Tabular, make_dataset
from regard._utils.validation import truncate
from regard.metrics.layer_maps import encoding_of, entries_of, layer_numbers, layers_of
from regard.metrics.registry import METRICS as METRICS, MetricFunction, RowBlock, Rows, listed_metrics, metric
from regard.text.encoding import Encoding
from regard.text.words import join_names
from regard.trace import Trace
from regard.trace.notebook_html import page, picture, wrapped_row


@metric(
    "Entropy",
    "nats",
    "How widely a token spreads its attention: 0 where it attends to one token.",
    caveat="A low entropy does not show that the attended token matters.",
    paper="Clark et al. 2019, arXiv:1906.04341",
)
def entropy(block: RowBlock) -> Rows:
    """−Σ w log w of a row."""
    return block.entropy, block.rows >= 0


@metric("Evenness", "share", "Entropy as a share of its maximum.", is_listed=False)
def evenness(block: RowBlock) -> Rows:
    """Entropy divided by the log of how many keys have weight; the first row of a causal map has no choice."""
    has_choice = (block.rows > 0) | (block.num_attended > 1).any(0)
    return block.entropy / np.log(np.maximum(block.num_attended, 2)), has_choice


@metric(
    "Distance",
    "tokens",
    "Mean attention distance, in tokens.",
    caveat="A sink at the start of the text makes it large, wherever the rest of the weight goes.",
    paper="Vig and Belinkov 2019, arXiv:1906.04284",
)
def distance(block: RowBlock) -> Rows:
    """``Σ w |i − j|`` of a row."""
    return block.weighted_sum(np.abs(block.keys - block.rows[:, None])), block.rows >= 0


@metric(
    "Sink",
    "share",
    "The share of first and special tokens and sinks, where spare attention goes.",
    caveat="It is not a sign of importance: the values of these tokens are close to zero.",
    paper="Xiao et al. 2023, arXiv:2309.17453; Clark et al. 2019",
    label_from=0.5,
)
def sink(block: RowBlock) -> Rows:
    """Σ w over sink tokens, and what a row lacks of 1 because of a sink logit; rows of sink tokens do not count."""
    # an empty row, all weights 0, lacks nothing
    lacking = np.where(block.num_attended > 0, np.maximum(1 - block.weights.sum(-1), 0), 0)
    return block.weights[..., block.is_sink].sum(-1) + lacking, ~block.is_sink[block.rows]


@metric(
    "Previous token",
    "share",
    "The share of the token just before.",
    caveat="Nearby tokens are often the relevant ones too: a high share may have another reason.",
    paper="Clark et al. 2019, arXiv:1906.04341",
    label_from=0.4,
)
def previous_token(block: RowBlock) -> Rows:
    """The weight at j = i − 1; the first row does not count."""
    return block.weights[:, np.arange(len(block.rows)), np.maximum(block.rows - 1, 0)], block.rows > 0


@metric(
    "Duplicate token",
    "share",
    "The share of earlier occurrences of the same token.",
    caveat="Empty where no token repeats; in a text with few repetitions it rests on few tokens.",
    paper="Wang et al. 2022, arXiv:2211.00593",
    label_from=0.4,
)
def duplicate_token(block: RowBlock) -> Rows:
    """Σ w over earlier occurrences of token i; rows without one do not count."""
    return block.weighted_sum(block.repeats), np.asarray(block.repeats.any(-1))


@metric(
    "Induction",
    "share",
    "The share of tokens that followed earlier occurrences of the same token.",
    caveat="In a text with few repetitions it rests on few tokens; repeated random tokens test it better.",
    paper="Olsson et al. 2022, arXiv:2209.11895",
    label_from=0.4,
)
def induction(block: RowBlock) -> Rows:
    """Σ w over the tokens after earlier occurrences of token i, token i excluded: the prefix-matching score."""
    after = np.zeros_like(block.repeats)
    after[:, 1:] = block.repeats[:, :-1]
    after[np.arange(len(block.rows)), block.rows] = False
    return block.weighted_sum(after), np.asarray(after.any(-1))


@metric(
    "Punctuation",
    "share",
    "The share of punctuation marks, of the attention of words.",
    caveat="As for special tokens, it is not a sign of importance: spare attention may go there.",
    paper="Clark et al. 2019, arXiv:1906.04341",
    is_listed=False,
)
def punctuation(block: RowBlock) -> Rows:
    """Σ w over punctuation marks; rows of marks and special tokens do not count, nor a text without marks."""
    marks = block.is_punctuation
    if marks is None or block.is_special is None or not marks.any():
        return np.zeros(block.weights.shape[:2]), np.zeros(len(block.rows), bool)
    return block.weights[..., marks].sum(-1), ~(marks | block.is_special)[block.rows]


@metric(
    "Current token",
    "share",
    "The share of the token itself.",
    paper="Clark et al. 2019, arXiv:1906.04341",
    is_listed=False,
)
def current_token(block: RowBlock) -> Rows:
    """The weight at j = i."""
    return block.weights[:, np.arange(len(block.rows)), block.rows], block.rows >= 0


@metric(
    "Next token",
    "share",
    "The share of the token just after; in a decoder 0.",
    paper="Clark et al. 2019, arXiv:1906.04341",
    is_listed=False,
)
def next_token(block: RowBlock) -> Rows:
    """The weight at j = i + 1; the last row does not count."""
    last = len(block.keys) - 1
    return block.weights[:, np.arange(len(block.rows)), np.minimum(block.rows + 1, last)], block.rows < last


@metric(
    "Separator",
    "share",
    "The share of special tokens after the first token: [SEP] of BERT.",
    caveat="It is not a sign of importance: a head attends to separators where it has nothing to do.",
    paper="Clark et al. 2019, arXiv:1906.04341",
    is_listed=False,
)
def separator(block: RowBlock) -> Rows:
    """Σ w over special tokens but the first token; rows of special tokens do not count, nor a text without any."""
    if block.is_special is None or not (separators := block.is_special & (block.keys > 0)).any():
        return np.zeros(block.weights.shape[:2]), np.zeros(len(block.rows), bool)
    return block.weights[..., separators].sum(-1), ~block.is_special[block.rows]


@dataclass(frozen=True, eq=False)
class HeadMetrics(Tabular):
    """The metrics of each head on each text: arrays of float64, ``B L H``, NaN where no row of a text counts.

    Parameters
    ----------
    layers : tuple of str, L
        ``blocks.3.attn``: those that have a map.
    values : mapping of str to array
        By name, as in `METRICS`, which has their papers; each is an attribute too: ``metrics.induction``.
    """

    layers: tuple[str, ...]
    values: Mapping[str, np.ndarray]

    def __repr__(self) -> str:
        """Return the number of texts, the sizes and the names of the metrics."""
        return f"<HeadMetrics of {count_texts(len(self.entropy))}, {described(self)}>"

    def __getattr__(self, name: str) -> np.ndarray:
        values = vars(self).get("values", {})  # none yet in a copy
        if name in values:
            return np.asarray(values[name])
        raise AttributeError(f"{type(self).__name__} has no {name!r}; the metrics are {', '.join(values)}")

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number of each layer in its model, ``L``: 3 of ``blocks.3.attn``."""
        return layer_numbers(self.layers)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: each metric of the first text as a map of layers and heads."""
        return metrics_html(self, f"HeadMetrics of {count_texts(len(self.entropy))}")

    def to_columns(self) -> dict[str, np.ndarray]:
        """Return a row for each head of each text: ``text``, ``layer``, ``head``, each metric, and ``label``."""
        shape = self.values["entropy"].shape
        places = dict(zip(("text", "layer", "head"), (each.ravel() for each in np.indices(shape)), strict=True))
        places["layer"] = np.array(self.numbers)[places["layer"]]
        labels = np.array([self.label(*at) for at in np.ndindex(shape)])
        return places | {name: value.ravel() for name, value in self.values.items()} | {"label": labels}

    def to_xarray(self) -> Any:
        """Return the metrics as an ``xarray.Dataset`` of ``B L H``; ``layer`` is a coordinate."""
        variables = {name: ("B L H", values) for name, values in self.values.items()}
        return make_dataset(variables, {"layer": ("L", np.array(self.layers))})

    def label(self, batch: int, layer: int, head: int) -> str:
        """Return what a head mostly does, "" where none applies: an aid for the reader, not a finding.

        The last metric in `METRICS` that reaches its `label_from`: ``induction``, ``duplicate_token`` or
        ``previous_token`` 0.4, ``sink`` 0.5. Otherwise ``broad`` from an evenness of 0.9, ``narrow`` below 0.25.
        """
        at = (batch, layer, head)
        for entry in reversed(METRICS.values()):
            if entry.label_from is not None and self.values[entry.name][at] >= entry.label_from:
                return entry.name
        if self.evenness[at] >= 0.9:
            return "broad"
        return "narrow" if self.evenness[at] < 0.25 else ""


def count_texts(number: int) -> str:
    """Return a number of texts in words."""
    return f"{number:,} text{'s' * (number != 1)}"


def described(metrics: HeadMetrics) -> str:
    """Return the sizes and the names of head metrics."""
    _, layers, heads = metrics.entropy.shape
    return f"{layers} × {heads} heads: {', '.join(metrics.values)}"


def metrics_html(metrics: HeadMetrics, title: str) -> str:
    """Return head metrics as HTML: the largest heads of each, and a map of layers (down) and heads (across)."""
    parts = []
    for entry in listed_metrics():
        values = metrics.values[entry.name][0]
        if not np.isfinite(values).any():
            continue
        largest = np.nanmax(values, initial=0)
        strongest = [(metrics.numbers[i], j, values[i, j]) for i, j in strongest_heads(entry.name, values)]
        heads = ", ".join(f"L{layer}H{head} {value:{entry.format}}" for layer, head, value in strongest)
        scaled = values / largest if largest else values
        parts.append(picture([np.nan_to_num(scaled)], f"{entry.title} ({entry.unit}): {heads}", cell=10))
    _, layers, heads = metrics.entropy.shape
    return page(
        f"{title}, {layers} layers (down) of {heads} heads (across), dark is large",
        wrapped_row(parts),
        try_next=("metrics.induction", "metrics.to_frame()"),
    )


def head_metrics(trace: Trace, *, own: Mapping[str, MetricFunction] | None = None) -> HeadMetrics:
    """Return the metrics of every head, from the trace of a run.

    Parameters
    ----------
    trace : Trace
        With the weights of every layer: ``Trace(maps=True)``, whose maps are computed in blocks of rows, or
        ``Trace(only="*attn.weights")``.
    own : mapping of str to function, optional
        Other metrics by name. A function takes a `RowBlock`, whose arrays are read-only, and returns a value for each
        head and row, ``H R``, and which rows count, ``R``; the metric is the mean of these.

    Raises
    ------
    RegardError
        The trace has no such weights; or a metric of `own` is not a function, is named as one of `METRICS` or as a
        column of a table beside them, or returns arrays of other shapes or no numbers.

    Examples
    --------
    >>> import regard
    >>> trace = regard.Trace(maps=True)
    >>> output = regard.load("induction")("qzkfqz", trace=trace)
    >>> def first_token(block):
    ...     return block.weights[..., 0], block.rows > 0
    >>> head_metrics(trace, own={"first_token": first_token}).values["first_token"].shape  # B L H
    (1, 2, 4)
    """
    functions = metric_functions(own)
    measured = []
    for batch in range(entries_of(trace)):
        encoding, layers = encoding_of(trace, batch), layers_of(trace, batch)
        measured.append([layer_metrics(layer.row_blocks(), encoding, functions) for layer in layers])
    if not measured:
        layers_of(trace, 0)  # raises: says what is missing
    values = {name: np.array([[of_layer[name] for of_layer in text] for text in measured]) for name in functions}
    return HeadMetrics(tuple(layer.name for layer in layers), values)


def metric_functions(own: Mapping[str, MetricFunction] | None) -> dict[str, MetricFunction]:
    """Return the function of each metric by its name: those of `METRICS`, then those of `own`."""
    functions = {name: entry.function for name, entry in METRICS.items()}
    if not isinstance(own, Mapping | None):
        raise RegardError(f"own= maps names to functions, {{'first_token': function}}, got {truncate(own)}")
    for name, each in ({} if own is None else own).items():
        if not isinstance(name, str) or name in (*functions, *_COLUMNS) or not callable(each):
            raise RegardError(
                f"own= has names that are no metric of regard, nor {join_names(_COLUMNS)}, each with a function, got "
                f"{name!r}: {each!r}"
            )
        functions[name] = _checked(name, each)
    return functions


def _checked(name: str, own: MetricFunction) -> MetricFunction:
    """Return a metric of a user, which says what it did not return."""

    def measure(block: RowBlock) -> Rows:
        shape = block.weights.shape[:2]
        try:
            values, counted = (np.asarray(each) for each in own(block))
        except (TypeError, ValueError) as error:
            raise RegardError(f"metric {name!r} returns values and which rows count, but: {error}") from error
        is_real = values.dtype.kind in "biuf"
        if values.shape != shape or not is_real or counted.shape != shape[1:] or counted.dtype != bool:
            raise RegardError(
                f"metric {name!r} returns real values {shape} and a boolean array {shape[1:]}, which rows count, got "
                f"{values.dtype} {values.shape} and {counted.dtype} {counted.shape}"
            )
        return values.astype(np.float64, copy=False), counted

    return measure


_COLUMNS = ("text", "layer", "head", "label")
"""The columns of `HeadMetrics.to_columns` beside the metrics."""

INDUCTION_CIRCUIT = ("previous_token", "induction")
"""The metrics of the two heads that together continue a repetition, the first in an earlier layer."""


def strongest_heads(name: str, values: np.ndarray, count: int = 3) -> list[tuple[int, int]]:
    """Return the layers and heads in which a metric is largest, the largest first, from its values ``L H``.

    The first one, and of the others those that reach its `label_from`; none where no head has a value.
    """
    order = np.argsort(-np.nan_to_num(values, nan=-np.inf), axis=None, kind="stable")[:count]
    places = [divmod(int(at), values.shape[1]) for at in order]
    least = METRICS[name].label_from
    return [
        at
        for n, at in enumerate(places)
        if np.isfinite(values[at]) and (n == 0 or (least is not None and values[at] >= least))
    ]


def layer_metrics(
    blocks: Iterable[tuple[np.ndarray, np.ndarray]],
    encoding: Encoding | None,
    functions: Mapping[str, MetricFunction] | None = None,
) -> dict[str, np.ndarray]:
    """Return each metric of one layer's heads, ``H``, from blocks of rows: all rows of a text, or some.

    Parameters
    ----------
    blocks : iterable of (``R``, ``H R S``)
        Query positions, and their weights in float64.
    encoding : Encoding or None
        The tokens of the text.
    functions : mapping of str to function, optional
        As `metric_functions` returns them; by default those of `METRICS`.
    """
    functions = metric_functions(None) if functions is None else functions
    ids = None if encoding is None else np.array(encoding.ids)
    is_special = None if encoding is None else np.array(encoding.special_tokens_mask, bool)
    marks = None if encoding is None else np.array([_is_punctuation(encoding, i) for i in range(len(encoding))], bool)
    sums = dict.fromkeys(functions, np.zeros(()))
    counts = dict.fromkeys(functions, 0)
    for rows, weights in blocks:
        block = RowBlock(*map(_read_only, (rows, weights, ids, is_special, marks)))  # the same for each metric
        for name, function in functions.items():
            values, counted = function(block)
            sums[name] = sums[name] + values[:, counted].sum(-1)
            counts[name] += int(counted.sum())
    with np.errstate(invalid="ignore"):
        return {name: np.asarray(sums[name] / np.float64(counts[name])) for name in functions}


def _read_only(x: Any) -> Any:
    if x is not None:
        x = x.view()
        x.flags.writeable = False
    return x


def _is_punctuation(encoding: Encoding, position: int) -> bool:
    """Tell whether the text of a token is punctuation marks alone (the categories P of Unicode)."""
    start, stop = encoding.offsets[position]
    categories = [unicodedata.category(character) for character in encoding.text[start:stop] if not character.isspace()]
    return bool(categories) and all(category.startswith("P") for category in categories)
