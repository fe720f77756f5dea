"""Direct logit attribution: a logit as the sum of what embeddings, heads and feed-forward layers write."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.frames import Tabular, make_dataset
from regard.metrics.attribution_target import next_token_ids, token_texts
from regard.metrics.lens import streams
from regard.metrics.token_places import TokenPlaces
from regard.models.decoder import Decoder
from regard.nn import LayerNorm, Linear
from regard.nn.decoder import require_maps, require_sums
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.trace.notebook_html import page, sizes_picture, table, tokens_line

STEPS = (
    *("*embeddings", "blocks.*.attn.*context", "blocks.*.attn.output", "blocks.*.mlp.output", "blocks.*.output"),
    "final_norm",
)
"""What a trace must hold; ``final_norm`` only if an edit of the run changed it."""

_PARTS = {
    "embeddings": "B T",
    "heads": "L B H T",
    "attn_biases": "L B T",
    "mlps": "L B T",
    "edits": "N B T",
    "bias": "B T",
}
_ROWS = 10  # parts of the table in a notebook


@dataclass(frozen=True, eq=False)
class LogitAttribution(Tabular):
    """A logit, or a difference of two, as a sum over what was written into the residual stream.

    ``embeddings + heads + attn_biases + mlps + edits + bias``, summed over layers and heads, is `logit`.

    Parameters
    ----------
    logit : array, ``B T``
        Of the run, before the soft cap, if the model has one.
    embeddings : array, ``B T``
    heads : array, ``L B H T``
    attn_biases : array, ``L B T``
        What the biases of the output projections add.
    mlps : array, ``L B T``
    edits : array, ``N B T``
        What edits of the run wrote into the stream in each block, in addition to the parts above; the last of ``N`` =
        ``L`` + 1 is that of an edit of the final norm. Without edits it is what rounding leaves.
    bias : array, ``B T``
        What the biases of the final norm and of the head add.
    token, versus : integer array, ``B T``
        The token, and the one whose logit is subtracted, if any.
    token_text, versus_text : array of str, ``B T``
        Their texts.
    encodings : tuple of Encoding
    """

    logit: np.ndarray
    embeddings: np.ndarray
    heads: np.ndarray
    attn_biases: np.ndarray
    mlps: np.ndarray
    edits: np.ndarray
    bias: np.ndarray
    token: np.ndarray
    versus: np.ndarray | None
    token_text: np.ndarray
    versus_text: np.ndarray | None
    encodings: tuple[Encoding, ...]

    @property
    def total(self) -> np.ndarray:
        """The sum of all parts, ``B T``: `logit`, but for rounding."""
        layers = self.heads.sum((0, 2)) + self.attn_biases.sum(0) + self.mlps.sum(0) + self.edits.sum(0)
        return np.asarray(self.embeddings + layers + self.bias)

    def parts(self) -> Iterator[tuple[str, int, int, np.ndarray]]:
        """Yield each part of the sum: its name, layer and head, −1 where it has none, and what it adds, ``B T``."""
        yield "embeddings", -1, -1, self.embeddings
        for layer, heads in enumerate(self.heads):
            for head, values in enumerate(np.moveaxis(heads, 1, 0)):
                yield "head", layer, head, values
            yield "attn_bias", layer, -1, self.attn_biases[layer]
            yield "mlp", layer, -1, self.mlps[layer]
            yield "edits", layer, -1, self.edits[layer]
        yield "edits", -1, -1, self.edits[-1]
        yield "bias", -1, -1, self.bias

    def to_columns(self) -> dict[str, np.ndarray]:
        """Return a row for each part at each token: ``part``, ``layer`` and ``head`` (−1: none), ``contribution``."""
        places = TokenPlaces(self.encodings, self.logit.shape)
        names, layers, heads, values = zip(*self.parts(), strict=True)
        labels = {"part": np.array(names), "layer": np.array(layers), "head": np.array(heads)}
        columns = {name: np.repeat(each, places.count) for name, each in labels.items()}
        return columns | places.columns(len(names)) | {"contribution": places.rows(np.stack(values))}

    def to_xarray(self) -> Any:
        """Return all arrays as an ``xarray.Dataset``; of one text, ``token`` is a coordinate."""
        variables = {name: (axes, getattr(self, name)) for name, axes in _PARTS.items()}
        variables["logit"] = ("B T", self.logit)
        return make_dataset(variables, TokenPlaces(self.encodings, self.logit.shape).coordinates())

    def __repr__(self) -> str:
        layers, batch, heads, length = self.heads.shape
        return f"<LogitAttribution of {self._name()}: {layers} × {heads} heads, {batch} × {length} tokens>"

    def _name(self) -> str:
        targets = [each for each in (self.token_text, self.versus_text) if each is not None]
        names = [repr(str(each.flat[-1])) if len(set(each.flat)) == 1 else "a token each" for each in targets]
        return " minus ".join(names)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the heads at the last token of the first text, the largest parts."""
        tokens = TokenPlaces(self.encodings, self.logit.shape).first_text()
        at = (0, len(tokens) - 1)
        largest = sorted(self.parts(), key=lambda part: -abs(part[3][at]))[:_ROWS]
        rows = [
            (name, "" if layer < 0 else str(layer), "" if head < 0 else str(head), f"{values[at]:+.3f}")
            for name, layer, head, values in largest
        ]
        return page(
            repr(self)[1:-1],
            tokens_line(tokens),
            sizes_picture(self.heads[:, 0, :, at[1]], "heads at the last token: size, layers down"),
            table(("largest parts", "layer", "head", f"of {self.logit[at]:+.3f}"), rows),
            try_next=("parts.heads[:, 0, :, -1]", "parts.to_frame()"),
        )


def logit_attribution(model: Any, trace: Trace, token: Any, versus: Any = None) -> LogitAttribution:
    """Return what each part of a decoder adds to the logit of a token, directly: not through later parts.

    The final norm divides each vector by its own size, which depends on all parts; here that size is a constant
    (frozen), and so is that of a norm after attention or feed-forward, so that the sum of the parts is the logit. It
    is so for a run with edits too, of which `LogitAttribution.edits` holds what no other part explains.

    Parameters
    ----------
    model : Decoder
        What the trace is of.
    trace : Trace
        With the steps `STEPS`; everything is recorded by default.
    token, versus : str, int, or array of them
        The token, and one whose logit is subtracted, as text or ids: one, one for each text, or an array ``B T`` of one
        for each position, or what broadcasts to it (of a single text a list, ``T``).

    Raises
    ------
    RegardError
        The model is not a decoder, the trace lacks a step, or a token is not one.

    References
    ----------
    Elhage et al. (2021), "A mathematical framework for transformer circuits",
    https://transformer-circuits.pub/2021/framework.

    Examples
    --------
    >>> import regard
    >>> model, trace = regard.load("induction"), regard.Trace()
    >>> _ = model("qzkfqz", trace=trace)
    >>> found = regard.metrics.logit_attribution(model, trace, "k", versus="f")
    >>> heads = found.heads[1, 0, :, -1]  # the second layer, at the last token
    >>> bool(heads.sum() > 0.8 * found.logit[0, -1])
    True
    """
    names = streams(model, trace)
    require_maps(model, "logit attribution")
    require_sums(model, "logit attribution")
    states = [np.asarray(trace[name], np.float64) for name in names]
    shape = states[0].shape[:2]
    ids = [next_token_ids(model, trace.encodings, each, shape) for each in (token, versus)[: 1 + (versus is not None)]]
    direction, bias = _unembedding(model, ids)
    norm, last = model.final_norm, states[-1]
    along = _through((norm, 1.0), last, direction)  # B T E: times a part of the stream it is what that adds
    head_bias, bias = bias, bias + (direction @ norm.bias if getattr(norm, "bias", None) is not None else 0)
    heads, attn_biases, mlps, edits = [], [], [], []
    for i, block in enumerate(model.blocks):
        contexts = np.asarray(trace[f"blocks.{i}.attn.{block.attn.head_step}"], np.float64)  # B H T D
        written = np.asarray(trace[f"blocks.{i}.attn.output"], np.float64)
        read = _through(block.before_residual("attn"), written, along)
        projection = block.attn.o_proj
        weight = np.asarray(projection.weight, np.float64).reshape(contexts.shape[1], -1, written.shape[-1])
        heads.append(np.einsum("bhtd,hde,bte->bht", contexts, weight, read, optimize=True))
        zero = np.zeros(read.shape[:-1])
        attn_biases.append(zero if projection.bias is None else read @ projection.bias.astype(np.float64))
        written = np.asarray(trace[f"blocks.{i}.mlp.output"], np.float64)
        read = _through(block.before_residual("mlp"), written, along)
        mlps.append((written * read).sum(-1))
        change = ((states[i + 1] - states[i]) * along).sum(-1)
        edits.append(change - heads[i].sum(1) - attn_biases[i] - mlps[i])
    unedited = (last * along).sum(-1) + bias
    logit = _logit(trace, direction, head_bias, unedited)
    return LogitAttribution(
        logit=logit,
        embeddings=(states[0] * along).sum(-1),
        heads=np.stack(heads),
        attn_biases=np.stack(attn_biases),
        mlps=np.stack(mlps),
        edits=np.stack([*edits, logit - unedited]),
        bias=bias,
        token=ids[0],
        versus=None if versus is None else ids[1],
        token_text=token_texts(model, ids[0]),
        versus_text=None if versus is None else token_texts(model, ids[1]),
        encodings=trace.encodings,
    )


def _logit(trace: Trace, direction: np.ndarray, bias: np.ndarray, unedited: np.ndarray) -> np.ndarray:
    """Return the logit of the run, which differs from that of its last stream where the final norm was edited."""
    if "final_norm" in trace:
        return np.asarray((trace["final_norm"] * direction).sum(-1) + bias)
    if trace.plan("final_norm").edited:
        raise RegardError("the run edited final_norm, which the trace lacks: record it too, only=(…, 'final_norm')")
    return unedited


def _unembedding(model: Any, ids: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the direction in which the head reads a logit, or a difference, ``B T E``, and the bias it adds."""
    head, total, bias = model.lm_head, [], []
    for each in ids:
        tokens, index = np.unique(each, return_inverse=True)
        total.append(unembedding_rows(model, tokens)[index.reshape(each.shape)])
        has_bias = head is not None and head.bias is not None
        bias.append(head.bias[each].astype(np.float64) if has_bias else np.zeros(each.shape))
    return (total[0], bias[0]) if len(ids) == 1 else (total[0] - total[1], bias[0] - bias[1])


def unembedding_rows(model: Any, tokens: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the directions of contextual vectors in which the head of a model reads the logits of tokens, ``N E``."""
    head = getattr(model, "lm_head", None)
    rows = (model.token_embedding.weight if head is None else head.weight.T)[np.asarray(tokens)]
    of_one = copy.copy(model)  # with one feature and one logit, which is the factor by which it multiplies logits
    object.__setattr__(of_one, "lm_head", Linear(np.ones((1, 1))))
    read = Decoder.head if isinstance(model, Decoder) else type(model).head  # of a decoder before a soft cap
    return np.asarray(rows, np.float64) * float(read(of_one, np.ones((1, 1)))[0, 0])


def _through(way: tuple[Any, Any], x: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Return the direction of x, ``... E``, that is `direction` after a norm, of a frozen size, and a factor."""
    norm, factor = way
    direction = direction * factor
    if norm is None:
        return direction
    scaled = direction * norm.weight
    centered = x
    if isinstance(norm, LayerNorm):
        centered, scaled = x - x.mean(-1, keepdims=True), scaled - scaled.mean(-1, keepdims=True)
    return np.asarray(scaled / np.sqrt((centered**2).mean(-1, keepdims=True) + norm.eps))
