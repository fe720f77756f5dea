"""What comes next: the distribution of the next token after a position, and after each block."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer.codec import short
from regard.explorer.query import query
from regard.explorer.run import Run
from regard.explorer.validation import check_index
from regard.functional import softmax
from regard.metrics.attribution_target import predicts_at_each_token, predicts_tokens
from regard.models.decoder import Decoder
from regard.models.generation.sampling import Sampling
from regard.views.next_tokens import likely_tokens, token_name

_TOP = 20
_TOP_OF_LAYER = 3
_MAX_FILE_PREDICTIONS = 256  # of a page in a file, one after each token


class PredictedToken(TypedDict):
    """A next token."""

    token: int
    text: str
    probability: float


class NextTokens(TypedDict):
    """The distribution of the next token."""

    position: int
    tokens: list[PredictedToken]
    rest: float
    entropy: float
    drawn: PredictedToken | None


class LensRow(TypedDict):
    """The likeliest tokens after a step."""

    step: str
    tokens: list[PredictedToken]
    probability: float
    rank: int


class Lens(TypedDict):
    """The logit lens of one position."""

    position: int
    token: int
    text: str
    layers: list[LensRow]


def predicts_next_tokens(run: Run) -> bool:
    """Tell whether a run has a model that predicts the next token."""
    return run.model is not None and run.encoding is not None and predicts_tokens(run.model)


@query()
def next_tokens(
    run: Run,
    *,
    position: int | None = None,  # that the next token follows; by default the last
    temperature: float = 1.0,  # above 0; the logits are divided by it
    seed: int | None = None,  # draw a token too, ``drawn``, the same for the same seed
) -> NextTokens:
    """Return the distribution of the next token: the 20 likeliest ``tokens``, the ``rest``, and its ``entropy``.

    An error if the run has no model that predicts a next token; or there is no such position, temperature or seed.
    """
    if not temperature > 0:
        raise RegardError(f"temperature must be above 0, got {temperature}")
    position = _position_of(run, position)
    logits = logits_at(run, position)
    likely = likely_tokens(logits / temperature, run.model.tokenizer, top=_TOP)
    shares = softmax(logits / temperature)
    drawn = None
    if seed is not None:
        token = Sampling(temperature=temperature, seed=seed).choose(logits, np.random.default_rng(seed))
        drawn = predicted_token(token, token_name(run.model.tokenizer, token), float(shares[token]))
    return {
        "position": position,
        "tokens": [predicted_token(each.id, each.text, each.probability) for each in likely],
        "rest": round(max(0.0, 1 - sum(each.probability for each in likely)), 6),
        "entropy": round(float(-np.sum(shares * np.log(np.maximum(shares, np.finfo(float).tiny)))), 6),
        "drawn": drawn,
    }


def all_next_tokens(run: Run) -> list[NextTokens]:
    """Return `next_tokens` after each token, for an exported page; none of a long text, or without predictions."""
    if run.length > _MAX_FILE_PREDICTIONS or not predicts_next_tokens(run):
        return []
    return [next_tokens(run, position=i) for i in range(run.length)]


@query()
def lens(run: Run, *, position: int | None = None, token: int | None = None) -> Lens:
    """Return the logit lens of one position: the likeliest tokens after the embeddings and after each block.

    Each has the ``probability`` and the ``rank`` of `token`, by default the one that is likeliest at the end; see
    `regard.metrics.logit_lens`.

    An error if the run has no decoder, or lacks the outputs of blocks; or there is no such position or token.
    """
    model, position = run.model, _position_of(run, position)
    if not isinstance(model, Decoder):
        raise RegardError(f"{getattr(model, 'name', 'a saved trace')} is not a decoder: the logit lens reads one")
    names = ["embeddings", *(f"blocks.{i}.output" for i in range(len(model.blocks)))]
    if any(name not in run.trace for name in names):
        raise RegardError(
            "the logit lens needs the outputs of blocks, which are recorded of texts of up to 4,096 tokens"
        )
    logits = _predictions(model, np.stack([np.asarray(run.trace[name][run.batch, position]) for name in names]))
    if not np.isfinite(logits).all():
        raise RegardError("predictions are NaN or infinite: the model overflows for this text")
    target = int(logits[-1].argmax()) if token is None else token
    check_index("token id", target, logits.shape[-1])
    rows: list[LensRow] = []
    for name, row in zip(names, logits, strict=True):
        likely = likely_tokens(row, model.tokenizer, top=_TOP_OF_LAYER)
        rows.append({
            "step": name,
            "tokens": [predicted_token(each.id, each.text, each.probability) for each in likely],
            "probability": short(softmax(row)[target]),
            "rank": int(np.count_nonzero(row > row[target])),
        })  # fmt: skip
    return {"position": position, "token": target, "text": token_name(model.tokenizer, target), "layers": rows}


def logits_at(run: Run, position: int) -> np.ndarray:
    """Return the logits of the token after a position, ``V`` in float64; an error if the model predicts none."""
    if run.model is None or run.encoding is None:
        raise RegardError("predictions need a model: explore a text with one, not a saved trace")
    if not predicts_tokens(run.model):
        raise RegardError(f"{run.model.name} predicts no next token: choose a language model")
    last = f"blocks.{run.model.config.num_layers - 1}.output"
    if isinstance(run.model, Decoder) and last in run.trace:  # so that a long text is not run again
        logits = _predictions(run.model, run.trace[last][run.batch, position])
    else:
        logits = logits_of(run, run.output, position)[0]
    if not np.isfinite(logits).all():
        raise RegardError("predictions are NaN or infinite: the model overflows for this text")
    return logits


def _predictions(model: Decoder, stream: np.ndarray) -> np.ndarray:
    """Return the logits of the next token for vectors of the residual stream, ``... E``: ``... V`` in float64."""
    with np.errstate(all="ignore"):
        return np.asarray(model.head(model.final_norm(stream)), np.float64)


def logits_of(run: Run, output: Any, position: int) -> np.ndarray:
    """Return the logits that an output has of the token after a position, ``B V`` in float64."""
    at = position if predicts_at_each_token(run.model) else -1
    with np.errstate(all="ignore"):
        return np.asarray(output.head(output.hidden[:, [at]]), np.float64)[:, -1]


def _position_of(run: Run, position: int | None) -> int:
    """Return the position that the next token follows: the last by default, and of an encoder-decoder always."""
    return run.position(position if predicts_at_each_token(run.model) else None)


def predicted_token(token: int, text: str, probability: float) -> PredictedToken:
    """Return a token as the page is told of it."""
    return {"token": token, "text": text, "probability": short(probability)}
