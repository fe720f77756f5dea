"""Activation patching over many sites at once, and path patching between two heads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.frames import Tabular, make_dataset
from regard._utils.reprs import short_repr
from regard._utils.validation import boolean, function, truncate, whole_number
from regard.metrics.attribution_target import (
    AttributedMetric,
    Target,
    attributed_metric,
    encoding_of,
    next_token_pair,
    predicts_at_each_token,
)
from regard.models.base import PretrainedModel, TextModel
from regard.models.batch import OneText
from regard.models.decoder import Decoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.images.model import ImageModel, Pictures
from regard.models.images.patches import patch_encoding
from regard.models.images.read import label_of, pictures_of
from regard.models.output import Output
from regard.nn.decoder import layers_without_map, why_no_map
from regard.text.encoding import Encoding
from regard.text.token_labels import token_labels
from regard.trace import Edit, Trace
from regard.trace.edit_sites import pair_of
from regard.trace.edits import Head, freeze, patch
from regard.trace.notebook_html import page, picture, table, tokens_line

PatchMetric: TypeAlias = "Target | tuple[str | int, str | int]"
"""A next token as text or id: its logit; two: the difference of their logits; of an encoder a text: the similarity with
it; or a function from the output, for one text, to one number."""
Over: TypeAlias = Literal["head", "mlp", "attn"] | tuple[Literal["layer"], Literal["position"]]

_STEPS: dict[Any, str] = {
    ("layer", "position"): "output",
    "attn": "attn.output",
    "mlp": "mlp.output",
    "head": "attn.context",  # or `MultiHeadAttention.head_step`
}
_Rows: TypeAlias = Callable[[np.ndarray], np.ndarray]
_VECTORS = 128  # whose logits are computed at a time


@dataclass(frozen=True, eq=False)
class PatchGrid(Tabular):
    """What patching each of many sites does to a number.

    Parameters
    ----------
    metric : str
        The number in words.
    values : array, ``L T`` or ``L H``
        The number of the corrupted run in which one site has its value in the clean run.
    clean, corrupted : float
        The number of both runs.
    steps : tuple of str
        The step of each row: ``blocks.0.output``, …
    columns : tuple of str
        The token at each position, or the number of each head.
    axes : str
        ``"L T"`` or ``"L H"``.
    layers, sites : tuple of int
        The layer of each row; the position, or head, of each column.
    labels : tuple of str
        The columns as they are read: tokens without the signs of a vocabulary.
    """

    metric: str
    values: np.ndarray
    clean: float
    corrupted: float
    steps: tuple[str, ...]
    columns: tuple[str, ...]
    axes: str
    layers: tuple[int, ...]
    sites: tuple[int, ...]
    labels: tuple[str, ...]

    @property
    def recovered(self) -> np.ndarray:
        """What a patch recovers: 0 is the corrupted run, 1 the clean one; NaN where both have the same number."""
        return np.asarray((self.values - self.corrupted) / (np.float64(self.clean - self.corrupted) or np.nan))

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: what each site recovers, and where it is most."""
        best = np.unravel_index(np.nan_to_num(self.recovered, nan=-np.inf).argmax(), self.values.shape)
        most = f"most in {self.steps[best[0]]}, {self.labels[best[1]]}: {self.recovered[best]:.0%}"
        return page(
            repr(self)[1:-1],
            picture([np.nan_to_num(self.recovered)], f"recovered, layers down, {most}", cell=10),
            tokens_line(self.labels),
            try_next=("grid.recovered", "grid.to_frame()"),
        )

    def to_columns(self) -> dict[str, np.ndarray]:
        """Return a row for each site: ``layer``, ``position`` with ``token``, or ``head``; ``value``, ``recovered``."""
        rows, columns = (each.ravel() for each in np.indices(self.values.shape))
        site = "head" if self.axes == "L H" else "position"
        places = {"layer": np.array(self.layers)[rows], site: np.array(self.sites)[columns]}
        if self.axes == "L T":
            places["token"] = np.array(self.columns)[columns]
        return places | {"value": self.values.ravel(), "recovered": self.recovered.ravel()}

    def to_xarray(self) -> Any:
        """Return `values` and `recovered` as an ``xarray.Dataset`` over ``step`` and ``token``, or ``head``."""
        rows, column = self.axes.split()
        places = {"step": (rows, np.array(self.steps)), "layer": (rows, np.array(self.layers))}
        if column == "H":
            places["head"] = (column, np.array(self.sites))
        else:
            places |= {"position": (column, np.array(self.sites)), "token": (column, np.array(self.columns))}
        return make_dataset({name: (self.axes, getattr(self, name)) for name in ("values", "recovered")}, places)

    def __repr__(self) -> str:
        rows, columns = self.values.shape
        runs = f"corrupted {self.corrupted:.4g}, clean {self.clean:.4g}"
        return f"<PatchGrid {self.axes}, {rows} × {columns}: {self.metric}; {runs}>"


def patch_grid(
    model: Any,
    clean: OneText | Pictures,
    corrupted: OneText | Pictures,
    metric: PatchMetric,
    *,
    over: Over = ("layer", "position"),
    layers: Iterable[int] | None = None,
    positions: Iterable[int] | None = None,
    batch_size: int = 64,
    progress: Callable[[int, int], None] | None = None,
) -> PatchGrid:
    """Return what each site does to a number: the run on `corrupted`, in which it has its value in the run on `clean`.

    The sites of a layer are texts of a batch. In a decoder a run starts at the layer that changes, from the residual
    stream that the corrupted run has there.

    Parameters
    ----------
    model : Model
    clean, corrupted : str, Encoding or ids, or picture
        Of the same number of tokens; two pictures, for a model of pictures.
    metric : str, int, pair of them, or function
        A next token, or a class of pictures: its logit. A pair: the difference of both logits. Or a function of the
        output for one text: ``lambda o: o.logits[0, -1, a] - o.logits[0, -1, b]``, which is slower where it computes
        the logits of all positions.
    over : ("layer", "position"), "attn", "mlp" or "head"
        The output of each block, of its attention, linear or not, or of its feed-forward layer, at each position; or
        the context of each head, times its output gate if it has one, at all positions.
    layers, positions : iterable of int, optional
        Those to patch, all by default; negative ones count from the end. `positions` is not for heads.
    batch_size : int
        How many sites run together.
    progress : function, optional
        Called with the number of layers done and the number of all.

    Raises
    ------
    RegardError
        The texts differ in their number of tokens, the metric is not one number, or there is no such layer or position.

    References
    ----------
    Meng et al. (2022), "Locating and editing factual associations in GPT", https://arxiv.org/abs/2202.05262; Zhang and
    Nanda (2023), "Towards best practices of activation patching", https://arxiv.org/abs/2309.16042.

    Examples
    --------
    >>> import regard
    >>> model = regard.load("induction")
    >>> grid = patch_grid(model, "qzkfqz", "qxkfqz", ("k", "f"), over="head")
    >>> grid.values.shape  # L H
    (2, 4)
    """
    over = tuple(over) if isinstance(over, list) else over
    function("progress", progress)
    if not isinstance(over, str | tuple) or all(over != choice for choice in _STEPS):
        raise RegardError(f"over must be one of {', '.join(map(repr, _STEPS))}, got {over!r}")
    batch_size = whole_number("batch_size", batch_size, 1)
    check_has_blocks(model)
    runs = [input_of(model, source, metric) for source in (clean, corrupted)]
    texts = _check_lengths(*(run.encoding for run in runs))
    by_head = over == "head"
    if by_head and positions is not None:
        raise RegardError("positions is not for heads: leave it out, or choose another over")
    if by_head and layers is None:
        layers = sorted(set(range(len(model.blocks))) - set(layers_without_map(model)))
    rows = _chosen("layer", layers, len(model.blocks))
    sites = _chosen("position", positions, model.config.num_heads if by_head else len(texts[0]))
    steps = tuple(_step(model, i, over) for i in rows)
    clean_run, clean_trace = recorded_run(model, runs[0], steps)
    corrupted_run, corrupted_trace = recorded_run(model, runs[1], "blocks.*.output")
    measured = measured_runs(model, runs[1], clean_run, corrupted_run, metric)
    read = []
    for done, (i, name) in enumerate(zip(rows, steps, strict=True)):
        for first in range(0, len(sites), batch_size):
            batch = sites[first : first + batch_size]
            read.append(measured.run(corrupted_trace, i, len(batch), {name: sites_from(clean_trace[name][0], batch)}))
        if progress is not None:
            progress(done + 1, len(rows))
    values = measured.compute(np.concatenate(read)).reshape(len(rows), len(sites))
    columns = tuple(map(str, sites)) if by_head else tuple(texts[0].tokens[i] for i in sites)
    axes = "L H" if by_head else "L T"
    labels = columns if by_head else tuple(token_labels(texts[0])[i] for i in sites)
    numbers = (tuple(rows.tolist()), tuple(sites.tolist()))
    return PatchGrid(measured.name, values, *measured.baselines, steps, columns, axes, *numbers, labels)


def _step(model: Any, layer: int, over: Over) -> str:
    """Return the step of a layer that is patched."""
    if over == "attn":
        return f"{_scope(model, layer)}.output"
    return _heads_step(model, layer) if over == "head" else f"blocks.{layer}.{_STEPS[over]}"


def _heads_step(model: Any, layer: int) -> str:
    """Return the step of what the heads of a layer add, before the output projection."""
    attn = getattr(model.blocks[layer], "attn", None)
    return f"{_scope(model, layer)}.{'context' if attn is None else attn.head_step}"


def _scope(model: Any, layer: int) -> str:
    """Return the name of what mixes the tokens of a block: attention or linear attention; an error for none."""
    block = model.blocks[layer]
    for name in ("attn", "linear_attn"):
        if getattr(block, name, None) is not None:
            return f"blocks.{layer}.{name}"
    raise RegardError(f"attention is patched or held in each of these layers, but {why_no_map(model, layer)}")


def _feed_forwards(model: Any, layers: Iterable[int]) -> list[str]:
    """Return the names of what layers write that is no attention: of feed-forward layers, and inputs of layers."""
    parts = [(i, part) for i in layers for part in ("mlp", "layer_input")]
    return [f"blocks.{i}.{part}.output" for i, part in parts if getattr(model.blocks[i], part, None) is not None]


def _readers(model: Any, layer: int) -> list[int]:
    """Return the numbers of the layers that read the keys and values of another."""
    attentions = [getattr(block, "attn", None) for block in model.blocks]
    return [i for i, attn in enumerate(attentions) if getattr(attn, "kv_layer", None) == layer]


def check_has_blocks(model: Any) -> None:
    """Raise `RegardError` for what has no numbered layers of heads."""
    if not isinstance(model, PretrainedModel):
        raise RegardError(f"a pretrained model is needed, as regard.load returns it, got {truncate(model)}")
    if isinstance(model, EncoderDecoder):
        raise RegardError(f"{model.name} has an encoder and a decoder: patch its steps one by one, regard.edits.patch")
    if not isinstance(model, TextModel | ImageModel):
        raise RegardError(f"{model.name} has two halves: give model.text or model.vision")


def _chosen(what: str, numbers: Iterable[int] | None, count: int) -> np.ndarray:
    """Return the numbers of layers or positions, from 0; all of `count` for None."""
    if isinstance(numbers, str | bytes) or not isinstance(numbers, Iterable | None):
        raise RegardError(f"{what}s are several, such as [0, 2], got {numbers!r}")
    indices = list(range(count)) if numbers is None else list(numbers)
    is_number = [isinstance(i, int | np.integer) and not isinstance(i, bool) for i in indices]
    if wrong := [i for i, number in zip(indices, is_number, strict=True) if not number or not -count <= i < count]:
        raise RegardError(f"there is no {what} {wrong[0]!r}: there are {count}")
    if not indices:
        raise RegardError(f"no {what} is chosen: give at least one, or leave {what}s out")
    return np.array(indices) % count


@dataclass(frozen=True)
class PathEffect(Tabular):
    """What the path from one head to another does to a number.

    Parameters
    ----------
    path : str
        Both heads: ``"L0H1 → L1H0 (q)"``.
    metric : str
        The number in words.
    value : float
        That of the corrupted run in which the receiver gets what the sender writes in the clean run.
    clean, corrupted : float
        The number of both runs.
    """

    path: str
    metric: str
    value: float
    clean: float
    corrupted: float

    @property
    def recovered(self) -> float:
        """What the path recovers: 0 is the corrupted run, 1 the clean one; NaN where both have the same number."""
        return (self.value - self.corrupted) / (self.clean - self.corrupted or np.nan)

    def to_columns(self) -> dict[str, np.ndarray]:
        """Return one row: ``path``, ``metric``, ``value``, ``clean``, ``corrupted`` and ``recovered``."""
        names = ("path", "metric", "value", "clean", "corrupted", "recovered")
        return {name: np.array([getattr(self, name)]) for name in names}

    def __repr__(self) -> str:
        runs = f"corrupted {self.corrupted:.4g}, with the path {self.value:.4g}, clean {self.clean:.4g}"
        return f"<PathEffect {self.path}: {self.metric}; {runs}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the number of the three runs, and what the path recovers."""
        runs = {"corrupted": self.corrupted, "corrupted with the path": self.value, "clean": self.clean}
        return page(
            f"PathEffect {self.path} recovers {self.recovered:.0%}",
            table(("run", self.metric), [(name, f"{value:.4g}") for name, value in runs.items()]),
            try_next=("effect.recovered", "effect.to_frame()"),
        )


def path_patching(
    model: Any,
    clean: OneText,
    corrupted: OneText,
    metric: PatchMetric,
    *,
    sender: Head,
    receiver: Head,
    into: Literal["q", "k", "v"] = "q",
    freeze_mlps: bool = False,
) -> PathEffect:
    """Return what the path from one head to another does to a number.

    The run on `corrupted` is run again, the sender with its context, times its output gate if it has one, in the run on
    `clean`, all other heads of the layers before the receiver frozen, those of linear attention too: so the receiver's
    query, key or value changes by what reaches it from the sender directly, or through feed-forward layers. In a last
    run only that input of that receiver is changed.

    Parameters
    ----------
    model : Decoder
    clean, corrupted : str, Encoding or ids
        Of the same number of tokens.
    metric
        As for `patch_grid`.
    sender, receiver : (layer, head) or str
        The receiver in a later layer.
    into : {"q", "k", "v"}
        Which input of the receiver changes. A key or a value that several heads share changes for the receiver alone.
    freeze_mlps : bool
        Freeze the feed-forward layers between too, and the inputs of layers: only the direct path is left.

    Raises
    ------
    RegardError
        The model is not a decoder; the texts differ in their number of tokens; a head does not exist, or the receiver
        is not in a later layer.

    References
    ----------
    Wang et al. (2022), "Interpretability in the wild: a circuit for indirect object identification in GPT-2 small",
    https://arxiv.org/abs/2211.00593; Goldowsky-Dill et al. (2023), "Localizing model behavior with path patching",
    https://arxiv.org/abs/2304.05969.
    """
    check_has_blocks(model)
    if not isinstance(model, Decoder):
        raise RegardError(f"{model.name} is not a decoder: path patching is for decoders")
    if not isinstance(into, str) or into not in ("q", "k", "v"):
        raise RegardError(f"into must be q, k or v, got {into!r}")
    freeze_mlps = boolean("freeze_mlps", freeze_mlps)
    (sends, head), (receives, to_head) = (_checked_head(model, each) for each in (sender, receiver))
    if sends >= receives:
        raise RegardError(f"the receiver must be in a later layer than the sender, got {sender!r} to {receiver!r}")
    runs = [input_of(model, source, metric) for source in (clean, corrupted)]
    _check_lengths(*(run.encoding for run in runs))
    frozen = [_heads_step(model, i) for i in range(sends, receives)]
    frozen += _feed_forwards(model, range(sends, receives)) if freeze_mlps else []
    context = _heads_step(model, receives)
    others = [] if into == "q" else [f"blocks.{i}.attn.{into}" for i in _readers(model, receives)]
    clean_run, clean_trace = recorded_run(model, runs[0], frozen[0])
    corrupted_run, corrupted_trace = recorded_run(model, runs[1], [*frozen, context, *others, "blocks.*.output"])
    edit = freeze(corrupted_trace, *frozen) | patch(clean_trace, frozen[0], heads=head)
    entering = f"blocks.{receives}.attn.{into}"
    reached = Trace(only=entering, edit=edit, start=_start(model, corrupted_trace, sends), stop=entering)
    model(runs[1].model_input, trace=reached)
    attn = model.blocks[receives].attn
    input_head = to_head if into == "q" else to_head * attn.num_kv_heads // attn.num_heads
    last = patch(reached, entering, heads=input_head) | freeze(corrupted_trace, context, but=[(receives, to_head)])
    last |= freeze(corrupted_trace, *others) if others else {}
    measured = measured_runs(model, runs[1], clean_run, corrupted_run, metric)
    (value,) = measured.compute(measured.run(corrupted_trace, receives, 1, last))
    path = f"L{sends}H{head} → L{receives}H{to_head} ({into})"
    return PathEffect(path, measured.name, float(value), *measured.baselines)


class RunInput(NamedTuple):
    """One text or picture."""

    model_input: Any  # as the model takes it, a batch of one
    encoding: Encoding
    array: np.ndarray  # as `forward` takes it, ``1 …``


def input_of(model: Any, source: Any, metric: Any) -> RunInput:
    """Return one text or picture as a model takes it."""
    if not isinstance(model, ImageModel):
        to = metric[0] if isinstance(metric, tuple) and metric else metric
        encoding = encoding_of(model, source, to)
        return RunInput([encoding], encoding, np.array([encoding.ids]))
    pixels = model.pixel_values(source)
    if len(pixels) != 1:
        raise RegardError(f"give one picture, and one other, got {len(pixels)}")
    label = label_of(None if isinstance(source, Mapping) else pictures_of(source)[0], 0)
    return RunInput({"pixel_values": pixels}, patch_encoding(label, model.config.grid), pixels)


@dataclass(frozen=True)
class MeasuredRuns:
    """A number of runs of a model on the corrupted text or picture."""

    model: Any
    array: np.ndarray
    name: str
    read: _Rows  # from contextual vectors, ``B T E``, what the number is computed of
    compute: _Rows  # from what was read of some runs to the number of each
    baselines: tuple[float, float]  # of the clean and the corrupted run

    def run(self, corrupted: Trace, layer: int, count: int, edit: dict[str, Edit]) -> np.ndarray:
        """Return what is read of each of `count` runs from the input of a layer, with the edits of the batch."""
        trace = Trace(only=(), edit=edit, start=_start(self.model, corrupted, layer))
        with np.errstate(all="ignore"):
            hidden = self.model.forward(np.repeat(self.array, count, axis=0), trace=trace)
        trace.check_matched()
        return self.read(hidden)


def recorded_run(model: Any, text: RunInput, only: str | Iterable[str]) -> tuple[Output, Trace]:
    """Return the run on a text or picture, and its trace."""
    trace = Trace(only=only)
    with np.errstate(all="ignore"):
        output: Output = model(text.model_input, trace=trace)
    if not np.isfinite(output.hidden).all():
        raise RegardError(f"the vectors of {model.name} are not finite in {output.hidden.dtype}")
    return output, trace


def measured_runs(
    model: Any, corrupted_input: RunInput, clean_run: Output, corrupted_run: Output, metric: Any
) -> MeasuredRuns:
    """Return the number that a metric names, and that of both runs; `corrupted_input` is that of the corrupted one."""
    (clean,), corrupted = clean_run.encodings, corrupted_input.encoding
    pair = metric if isinstance(metric, tuple) else (metric, None)
    if len(pair) != 2 or pair[0] is None:
        raise RegardError(f"a metric is a token, two tokens, or a function of the output, got {metric!r}")
    is_of_classes = isinstance(model, ImageModel) and not callable(metric)
    named = _class_metric(model, pair) if is_of_classes else attributed_metric(model, clean, *pair)

    def read_number(hidden: np.ndarray) -> np.ndarray:
        return np.array([_number(named.compute(model.output(row[None], (corrupted,)))) for row in hidden])

    def logits(vectors: np.ndarray) -> np.ndarray:
        ids = next_token_pair(model, clean, *pair)
        batches = [model.head(vectors[i : i + _VECTORS])[:, ids] for i in range(0, len(vectors), _VECTORS)]
        each = np.concatenate(batches).astype(np.float64)
        return np.asarray(each[:, 0] - (each[:, 1] if len(ids) == 2 else 0))

    is_of_tokens = predicts_at_each_token(model) and not callable(metric)
    read: _Rows = (lambda hidden: hidden[:, -1]) if is_of_tokens else read_number
    compute: _Rows = logits if is_of_tokens else np.asarray  # the logits of many runs at once
    baselines = tuple(float(compute(read(run.hidden))[0]) for run in (clean_run, corrupted_run))
    for run, value in zip(("clean", "corrupted"), baselines, strict=True):
        if not np.isfinite(value):
            raise RegardError(f"the metric of the {run} text is {value}, so nothing can be recovered")
    return MeasuredRuns(model, corrupted_input.array, named.name, read, compute, baselines)  # type: ignore[arg-type]


def _class_metric(model: Any, pair: tuple[Any, Any]) -> AttributedMetric:
    """Return the logit of a class of pictures, by its name or number, or the difference of two."""
    labels = list(getattr(model, "labels", ()))
    if not labels:
        raise RegardError(f"{model.name} has no classes: give a function of the output, lambda o: o.pooled[0] @ vector")
    classes = []
    for label in pair if pair[1] is not None else pair[:1]:
        if isinstance(label, str) and label in labels:
            classes.append(labels.index(label))
        elif isinstance(label, int | np.integer) and not isinstance(label, bool) and 0 <= label < len(labels):
            classes.append(int(label))
        else:
            raise RegardError(f"there is no class {label!r}: {model.name} has {len(labels)}, {short_repr(labels)}")

    def compute(output: Any) -> Any:
        logits = output.logits[0, classes].astype(np.float64)
        return logits[0] - logits[1] if len(classes) == 2 else logits[0]

    names = (repr(labels[i]) for i in classes)
    return AttributedMetric(f"logit of {' minus that of '.join(names)}", compute, None)


def _number(value: Any) -> float:
    try:
        number = np.asarray(value)
    except ValueError:
        raise RegardError(f"the metric must be one number, got {truncate(value)}") from None
    if number.size != 1 or number.dtype.kind not in "iuf":
        raise RegardError(f"the metric must be one number, got {number.dtype} of shape {number.shape}")
    return float(number.item())


def _start(model: Any, corrupted: Trace, layer: int) -> dict[str, np.ndarray] | None:
    """Return the state before a layer, or before the last one from which a decoder can start."""
    first = min(layer, model.last_start) if isinstance(model, Decoder) else 0
    name = f"blocks.{first - 1}.output"
    return {name: corrupted[name]} if first else None


def sites_from(clean: np.ndarray, indices: np.ndarray) -> Edit:
    """Return the edit of a batch that puts into each text another position, or head, of a clean value, ``N …``."""

    def edit(value: np.ndarray) -> np.ndarray:
        value[np.arange(len(indices)), indices] = clean[indices]
        return value

    return edit


def same_length(model: Any, clean: OneText, corrupted: OneText, to: Any = None) -> tuple[Encoding, Encoding]:
    """Return two texts as tokens, see `encoding_of`; an error if they have not the same number of them."""
    return _check_lengths(*(encoding_of(model, each, to) for each in (clean, corrupted)))


def _check_lengths(one: Encoding, other: Encoding) -> tuple[Encoding, Encoding]:
    if len(one) != len(other):
        raise RegardError(
            f"both texts must have the same number of tokens, got {len(one)} and {len(other)}: exchange a word for one "
            "of as many tokens"
        )
    return one, other


def _checked_head(model: Any, head: Any) -> tuple[int, int]:
    layer, number = (whole_number("a layer or head", each, 0) for each in pair_of(head))
    if layer >= len(model.blocks) or number >= model.config.num_heads:
        raise RegardError(
            f"there is no head {head!r}: {model.name} has {len(model.blocks)} layers of {model.config.num_heads}"
        )
    if layer in layers_without_map(model):
        raise RegardError(f"there is no head {head!r}: {why_no_map(model, layer)}")
    return layer, number
