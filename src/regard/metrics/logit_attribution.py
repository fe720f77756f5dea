"""Direct logit attribution: a logit as the sum of what embeddings, heads and feed-forward layers write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.reprs import fields_repr
from regard.metrics.attribution_target import next_token_id
from regard.metrics.lens import streams
from regard.nn import LayerNorm
from regard.text.encoding import Encoding
from regard.trace import Trace

STEPS = ("*embeddings", "blocks.*.attn.context", "blocks.*.attn.output", "blocks.*.mlp.output", "blocks.*.output")
"""What a trace must hold."""


@dataclass(frozen=True, eq=False)
class LogitAttribution:
    """A logit, or a difference of two, as a sum over what was written into the residual stream.

    ``embeddings + heads + attn_biases + mlps + bias``, summed over layers and heads, is `logit`.

    Parameters
    ----------
    logit : array, ``B T``
        Before the soft cap, if the model has one.
    embeddings : array, ``B T``
    heads : array, ``L B H T``
    attn_biases : array, ``L B T``
        Of the biases of the output projections.
    mlps : array, ``L B T``
    bias : array, ``B T``
        Of the biases of the final norm and of the head.
    token, versus : int or None
    encodings : tuple of Encoding
    """

    logit: np.ndarray
    embeddings: np.ndarray
    heads: np.ndarray
    attn_biases: np.ndarray
    mlps: np.ndarray
    bias: np.ndarray
    token: int
    versus: int | None
    encodings: tuple[Encoding, ...]

    __repr__ = fields_repr

    @property
    def total(self) -> np.ndarray:
        """The sum of all parts, ``B T``: `logit`, but for rounding."""
        layers = self.heads.sum((0, 2)) + self.attn_biases.sum(0) + self.mlps.sum(0)
        return np.asarray(self.embeddings + layers + self.bias)


def logit_attribution(model: Any, trace: Trace, token: str | int, versus: str | int | None = None) -> LogitAttribution:
    """Return what each part of a decoder adds to the logit of a token, directly: not through later parts.

    The final norm divides each vector by its own size, which depends on all parts; here that size is a constant
    (frozen), and so is that of a norm after attention or feed-forward, so that the sum of the parts is the logit.

    Parameters
    ----------
    model : Decoder
        What the trace is of.
    trace : Trace
        With the steps `STEPS`; everything is recorded by default.
    token, versus : str or int
        The token, and one whose logit is subtracted, as text or ids.

    Raises
    ------
    RegardError
        The model is no decoder, or the trace lacks a step.

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
    streams(model, trace)
    ids = [next_token_id(model, trace.encodings[0], each) for each in (token, versus) if each is not None]
    signs = np.array([1.0, -1.0][: len(ids)])
    last = np.asarray(trace[f"blocks.{len(model.blocks) - 1}.output"], np.float64)
    direction, bias = _unembedding(model, ids, signs)
    norm = model.final_norm
    along = _through(norm, last, direction)  # B T E: its product with a part of the stream is what that part adds
    if isinstance(norm, LayerNorm) and norm.bias is not None:
        bias += float(norm.bias @ direction)
    embeddings = np.asarray(trace["embeddings"], np.float64)
    heads, attn_biases, mlps = [], [], []
    for i, block in enumerate(model.blocks):
        contexts = np.asarray(trace[f"blocks.{i}.attn.context"], np.float64)  # B H T D
        written = np.asarray(trace[f"blocks.{i}.attn.output"], np.float64)
        read = _through(block.attn_post_norm, written, along)
        projection = block.attn.o_proj
        weight = np.asarray(projection.weight, np.float64).reshape(contexts.shape[1], -1, written.shape[-1])
        heads.append(np.einsum("bhtd,hde,bte->bht", contexts, weight, read, optimize=True))
        zero = np.zeros(read.shape[:-1])
        attn_biases.append(zero if projection.bias is None else read @ projection.bias.astype(np.float64))
        written = np.asarray(trace[f"blocks.{i}.mlp.output"], np.float64)
        read = _through(block.mlp_post_norm, written, along)
        mlps.append((written * read).sum(-1))
    logit = (last * along).sum(-1) + bias
    return LogitAttribution(
        logit=logit,
        embeddings=(embeddings * along).sum(-1),
        heads=np.stack(heads),
        attn_biases=np.stack(attn_biases),
        mlps=np.stack(mlps),
        bias=np.full(logit.shape, bias),
        token=ids[0],
        versus=None if versus is None else ids[1],
        encodings=trace.encodings,
    )


def _unembedding(model: Any, ids: list[int], signs: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the direction in which the head reads a difference of logits, ``E``, and the bias it adds."""
    head = model.lm_head
    columns = model.token_embedding.weight[ids].T if head is None else head.weight[:, ids]
    bias = 0.0 if head is None or head.bias is None else float(head.bias[ids] @ signs)
    return np.asarray(columns, np.float64) @ signs, bias


def _through(norm: Any, x: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Return the direction before a norm of x, ``... E``, whose size is frozen, that is `direction` after it."""
    if norm is None:
        return direction
    scaled = direction * norm.weight
    centered = x
    if isinstance(norm, LayerNorm):
        centered, scaled = x - x.mean(-1, keepdims=True), scaled - scaled.mean(-1, keepdims=True)
    return np.asarray(scaled / np.sqrt((centered**2).mean(-1, keepdims=True) + norm.eps))
