"""The whole model at one position: what each part writes into the residual stream, and adds to a prediction."""

from __future__ import annotations

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.codec import short_number
from regard.explorer.movement import MAX_MOVEMENT_TOKENS
from regard.explorer.next_tokens import logits_at
from regard.explorer.run import Run
from regard.explorer.validation import check_index
from regard.metrics.logit_attribution import STEPS, logit_attribution
from regard.metrics.value_norms import residual_scale
from regard.models.decoder import Decoder
from regard.nn.decoder import require_maps
from regard.trace import Trace
from regard.trace.edits import ablate
from regard.views.next_tokens import token_name

_WRITTEN = {part: (f"{part}_post_norm", f"{part}_scaled", f"{part}.output") for part in ("attn", "mlp")}


def residual_stream(run: Run, position: int | None, token: int | None) -> answers.ResidualStream:
    """Return what each part of the model writes at a position; see `Exploration.residual_stream`."""
    check_whole_model(run.can_ablate, run.length, "the whole model")
    require_maps(run.model, "the whole model")
    position = run.length - 1 if position is None else position
    check_index("token", position, run.length)
    is_decoder = isinstance(run.model, Decoder)
    prefixes = [layer.name.removesuffix("attn") for layer in run.layers]
    parts = [*_WRITTEN["attn"], *_WRITTEN["mlp"], "output"]
    steps = (f"{prefix}{part}" for prefix in prefixes for part in parts)
    only = ["embeddings", *steps, *(STEPS if is_decoder else ())]
    edits = ablate(*((run.layers[layer].name, head) for layer, head in run.ablated)) if run.ablated else None
    trace = Trace(optional=only, edit=edits)
    with np.errstate(all="ignore"):
        run.again(trace=trace)
    lengths: list[answers.StreamLayer] = [
        {
            "attn": _written(trace, run.model, prefix, "attn", position),
            "mlp": _written(trace, run.model, prefix, "mlp", position),
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


def _written(trace: Trace, model: object, prefix: str, part: str, position: int) -> float | None:
    """Return the length of what a sublayer adds: its output, normed or scaled where the model does that."""
    name = next((name for each in _WRITTEN[part] if (name := f"{prefix}{each}") in trace), None)
    length = None if name is None else _length(trace, name, position)
    return None if length is None else short_number(length * residual_scale(model))


def _length(trace: Trace, name: str, position: int) -> float | None:
    """Return the length of the vector of a step at a position; None where it was not recorded."""
    if name not in trace:
        return None
    return short_number(float(np.linalg.norm(np.asarray(trace[name][0, position], np.float64))))
