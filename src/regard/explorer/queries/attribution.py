"""What mattered: how much each token contributed to what the model computes from the text, for the page."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np

from regard import metrics
from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.codec import short
from regard.explorer.queries.next_tokens import PredictedToken, next_tokens
from regard.explorer.query import Exploration, query
from regard.explorer.run import Run
from regard.metrics.attribution_methods import ATTRIBUTION_METHODS, DEFAULT_STEPS, default_method
from regard.metrics.attribution_target import next_token_id, predicts_at_each_token, predicts_tokens
from regard.metrics.layer_maps import CancelCheck
from regard.models.images.model import ImageModel
from regard.text.encoding import Encoding

MAX_ATTRIBUTED_TOKENS = 1024
"""Gradients of longer texts take minutes."""

EXPLANATIONS: tuple[answers.AttributionMethod, ...] = tuple(
    {
        "key": entry.name,
        "title": entry.title,
        "description": entry.description,
        "caveat": entry.caveat,
        "source": entry.paper,
        "is_signed": entry.is_signed,
    }
    for entry in ATTRIBUTION_METHODS.values()
)

_MAX_FILE_GRADIENTS = 2048  # of one token each, for each method of an exported page
_MAX_MAP_BYTES = 1_000_000_000
_BYTES_PER_WEIGHT = 44  # measured with SmolLM2: weights, their gradients, and what lies between them
_NUM_LIKELY = 8


class Attribution(TypedDict):
    """How much each token contributed to a number, ``metric``, and the weight that it receives."""

    method: str
    metric: str
    value: float
    baseline_value: float | None
    note: str  # that contributions do not add up yet; empty if they do
    scores: list[float]
    attended: list[float]
    to: str | None
    token: int | None
    likely: list[PredictedToken] | None


def describe_attribution(run: Run, other_text: str | None) -> answers.Attributable:
    """Return as plain data what can be attributed in a run; `other_text` is that of the run it is compared with.

    ``target`` is ``"token"`` where the model predicts a next token, ``"text"`` where texts are compared;
    ``default_text`` is the text to compare with by default.
    """
    blocked_by = _blocked_by(run)
    if blocked_by is not None:
        nothing: answers.Attributable = {
            "blocked_by": blocked_by, "method": "", "target": "text", "default_text": None, "has_positions": False,
        }  # fmt: skip
        return nothing
    has_tokens = predicts_tokens(run.model)
    return {
        "blocked_by": None,
        "method": default_method(run.model),
        "target": "token" if has_tokens else "text",
        "default_text": None if has_tokens else _default_text(run, other_text),
        "has_positions": predicts_at_each_token(run.model),
    }


@query(slow=True)
def attribution(
    exploration: Exploration,
    run: int,
    *,
    method: str | None = None,  # by default that of `attribute`
    to: str | None = None,  # a next token as text, or the text to compare with
    token: int | None = None,  # a next token by its id
    position: int | None = None,  # that the next token follows; by default the last
    check: CancelCheck = lambda: None,
) -> Attribution:
    """Return how much each token contributed to a number, and the weight that it receives.

    Of `regard.metrics.attribute`: ``method``, ``metric``, ``value``, ``baseline_value``, ``scores`` and
    ``attended``. In addition the target, ``to`` or ``token``, and ``likely``, the most likely next tokens.
    By default it is the first of these; of an encoder the text of the run that this one is compared with, else the text
    itself. `check` is called between runs of the model.

    An error if the run has no model, is an ablation or too long; or there is no such method, target or position.
    """
    recorded, other_text = exploration.run(run), exploration.other_text(run)
    if (blocked_by := _blocked_by(recorded)) is not None:
        raise RegardError(blocked_by)
    model, encoding = recorded.model, _encoding(recorded)
    method = method or default_method(model)
    _check_memory(recorded, method)
    at = -1 if position is None else recorded.position(position)
    check()
    with np.errstate(all="ignore"):
        likely = next_tokens(recorded, position=position)["tokens"][:_NUM_LIKELY] if predicts_tokens(model) else None
        if to is not None and token is not None:
            raise RegardError("give a target as text or as a token's id, not both")
        target: Any = token if to is None else to
        if likely is None:
            target = _default_text(recorded, other_text) if target is None else target
            is_text = isinstance(target, str) and target.split()
            compared = model.tokenizer(target) if is_text else target  # both texts as the page shows them
        else:
            target = likely[0]["token"] if target is None else next_token_id(model, encoding, target, at)
            compared = target
        attributed = metrics.attribute(model, encoding, compared, position=at, method=method, check=check)
    if not np.isfinite([attributed.value, *attributed.scores]).all():
        raise RegardError("contributions are NaN or infinite: the model overflows for this text")
    return {
        "method": attributed.method,
        "metric": attributed.metric,
        "value": attributed.value,
        "baseline_value": attributed.baseline_value,
        "note": _completeness_note(attributed),
        "scores": attributed.scores.tolist(),
        "attended": attributed.attended.tolist(),
        "to": target if likely is None else None,
        "token": None if likely is None else target,
        "likely": likely,
    }


def _completeness_note(attributed: metrics.Attribution) -> str:
    """Return that the contributions do not sum to what they should; empty where they do, or need not."""
    if attributed.is_complete is not False or attributed.baseline_value is None:
        return ""
    total, change = attributed.scores.sum(), attributed.value - attributed.baseline_value
    return (
        f"Not exact: the contributions sum to {total:.4g}, the number changes by {change:.4g}. Choose another method."
    )


def default_attributions(exploration: Exploration, number: int) -> dict[str, Attribution | dict[str, str]]:
    """Return the attributions of a run that an exported page holds, for the default target by method.

    Numbers have six digits. A method that cannot answer has ``error``. Those that take a gradient at each of many
    steps are held only where they are the default, of a short text.
    """
    run, held = exploration.run(number), dict[str, Attribution | dict[str, str]]()
    if _blocked_by(run) is not None:
        return held
    for name, entry in ATTRIBUTION_METHODS.items():
        gradients = run.length * (DEFAULT_STEPS if entry.has_steps else 1)
        if gradients > _MAX_FILE_GRADIENTS or (entry.has_steps and name != default_method(run.model)):
            continue
        try:
            held[name] = _rounded(attribution(exploration, number, method=name))
        except RegardError as error:
            held[name] = {"error": str(error)}
    return held


def _blocked_by(run: Run) -> str | None:
    """Return why there is no attribution for a run; None if there is."""
    if run.model is None or run.encoding is None:
        return "What mattered takes the gradients of a model: explore a text with a model, not a saved trace."
    if isinstance(run.model, ImageModel):
        return "What mattered is computed of texts, not of pictures."
    if run.ablated:
        return "What mattered is computed of the model with all its heads: choose A."
    if run.length > MAX_ATTRIBUTED_TOKENS:
        return f"What mattered is computed of at most {MAX_ATTRIBUTED_TOKENS:,} tokens; this text has {run.length:,}."
    return None


def _default_text(run: Run, other_text: str | None) -> str:
    """Return the text to compare with: the other one, or the text itself, for what makes its vector."""
    return other_text if other_text and other_text.split() else _encoding(run).text


def _encoding(run: Run) -> Encoding:
    assert run.encoding is not None  # otherwise it is blocked
    return run.encoding


def _check_memory(run: Run, method: str) -> None:
    if method not in ATTRIBUTION_METHODS or not ATTRIBUTION_METHODS[method].holds_maps:
        return
    needed = _BYTES_PER_WEIGHT * run.length**2 * sum(len(layer.heads) for layer in run.layers)
    if needed > _MAX_MAP_BYTES:
        title = ATTRIBUTION_METHODS[method].title
        raise RegardError(
            f"{title} holds the weights of all heads and their gradients: for this text {needed / 1e9:.1f} GB, more "
            f"than {_MAX_MAP_BYTES / 1e9:.1f} GB; choose another method, or a shorter text"
        )


def _rounded(answer: Attribution) -> Attribution:
    return {
        **answer,
        "scores": [short(x) for x in answer["scores"]],
        "attended": [short(x) for x in answer["attended"]],
    }
