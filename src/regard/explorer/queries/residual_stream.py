"""The whole model at one position: what each part writes into the residual stream, and adds to a prediction."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.codec import short_number
from regard.explorer.queries.next_tokens import logits_at
from regard.explorer.query import query
from regard.explorer.run import Run
from regard.explorer.stages import MAX_MOVEMENT_TOKENS
from regard.explorer.validation import check_index
from regard.metrics.logit_attribution import STEPS, logit_attribution
from regard.models.decoder import Decoder
from regard.nn.decoder import require_maps, require_sums
from regard.nn.layer import before_residual
from regard.trace import Trace
from regard.views.next_tokens import token_name

_STEPS = ("attn.output", "attn_post_norm", "mlp.output", "mlp_post_norm", "output")


class Added(TypedDict):
    """What the parts of a layer add to a logit."""

    heads: answers.Numbers
    attn: float | None
    mlp: float | None


class StreamLayer(TypedDict):
    """Lengths of what a layer writes into the residual stream, and what it adds to the logit."""

    attn: float | None
    mlp: float | None
    output: float | None
    adds: NotRequired[Added]


class ResidualStream(TypedDict):
    """What each part writes into the residual stream; of a decoder also what it adds to the logit of a token."""

    position: int
    token: int | None
    text: str | None
    logit: NotRequired[float | None]
    embeddings: NotRequired[float | None]
    bias: NotRequired[float | None]
    layers: list[StreamLayer]


@query(slow=True)
def residual_stream(run: Run, *, position: int | None = None, token: int | None = None) -> ResidualStream:
    """Return what each part of the model writes into the residual stream at one position.

    For each layer the length of what attention (``attn``) and the feed-forward layer (``mlp``) write, and of the
    ``output``. For a decoder also what they and each head add to the logit of `token`, by default the likeliest:
    see `regard.metrics.logit_attribution`.

    An error if the run has no model, or is too long; or there is no such position or token.
    """
    check_whole_model(run.can_ablate, run.length, "the whole model")
    require_maps(run.model, "the whole model")
    position = run.position(position)
    if is_decoder := isinstance(run.model, Decoder):
        require_sums(run.model, "the whole model")
    prefixes = [layer.name.removesuffix("attn") for layer in run.layers]
    steps = (f"{prefix}{part}" for prefix in prefixes for part in _STEPS)
    only = ["embeddings", *steps, *(STEPS if is_decoder else ())]
    trace = Trace(optional=only, edit=run.edits or None)
    with np.errstate(all="ignore"):
        run.again(trace=trace)
    lengths: list[StreamLayer] = [
        {
            "attn": _added(trace, run.model, f"{prefix}attn", position),
            "mlp": _added(trace, run.model, f"{prefix}mlp", position),
            "output": _length(trace, f"{prefix}output", position),
        }
        for prefix in prefixes
    ]
    if not is_decoder:
        start = _length(trace, "embeddings", position)
        return {"position": position, "token": None, "text": None, "embeddings": start, "layers": lengths}
    token = int(logits_at(run, position).argmax()) if token is None else token
    check_index("token id", token, run.model.config.vocab_size)
    attribution = logit_attribution(run.model, trace, token)
    at = (0, position)
    for n, layer in enumerate(lengths):
        adds = attribution.heads[n][0, :, position]
        layer["adds"] = {
            "heads": [short_number(x) for x in adds],
            "attn": short_number(adds.sum() + attribution.attn_biases[n][at]),
            "mlp": short_number(attribution.mlps[n][at]),
        }
    return {
        "position": position,
        "token": token,
        "text": token_name(run.model.tokenizer, token),
        "logit": short_number(attribution.logit[at]),
        "embeddings": short_number(attribution.embeddings[at]),
        "bias": short_number(attribution.bias[at]),
        "layers": lengths,
    }


def check_whole_model(has_model: bool, length: int, what: str) -> None:
    """Raise `RegardError` if a run has no model, or is so long that the steps of its layers are not recorded."""
    if not has_model:
        raise RegardError(f"{what} needs a model: explore a text with one, not a saved trace")
    if length > MAX_MOVEMENT_TOKENS:
        raise RegardError(f"{what} is shown for up to {MAX_MOVEMENT_TOKENS:,} tokens, this text has {length:,}")


def _added(trace: Trace, model: Any, sublayer: str, position: int) -> float | None:
    """Return the length of what a sublayer adds: its output, normed or scaled where the model does that."""
    norm, factor = before_residual(model, sublayer)
    return _length(trace, f"{sublayer}.output" if norm is None else f"{sublayer}_post_norm", position, factor)


def _length(trace: Trace, name: str, position: int, factor: Any = 1.0) -> float | None:
    """Return the length of the vector of a step at a position, times a factor; None where it was not recorded."""
    if name not in trace:
        return None
    return short_number(float(np.linalg.norm(np.asarray(trace[name][0, position], np.float64) * factor)))
