"""What mattered: how much each token contributed to what the model computes from the text, for the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.run import Run
from regard.explorer.validation import check_index
from regard.metrics.attribution import Attribution, attribute
from regard.metrics.attribution_methods import ATTRIBUTION_METHODS, DEFAULT_STEPS, default_method
from regard.metrics.attribution_target import next_token_id, predicts_at_each_token, predicts_tokens
from regard.metrics.layer_maps import CancelCheck
from regard.text.encoding import Encoding
from regard.views.next_tokens import likely_tokens

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


class AttributionQuery(NamedTuple):
    """What the page asks for; None stands for the default. See `Exploration.attribution`."""

    method: str | None = None
    to: str | None = None
    token: int | None = None
    position: int | None = None


def attribute_run(run: Run, other_text: str | None, query: AttributionQuery, check: CancelCheck) -> answers.Attribution:
    """Return the attribution of a run as plain data; see `Exploration.attribution`."""
    if (blocked_by := _blocked_by(run)) is not None:
        raise RegardError(blocked_by)
    method = query.method or default_method(run.model)
    _check_memory(run, method)
    if query.position is not None:
        check_index("token", query.position, run.length)
    position = -1 if query.position is None else query.position
    check()
    with np.errstate(all="ignore"):
        likely = _likely_tokens(run, position) if predicts_tokens(run.model) else None
        target = _target_of(run, other_text, query, position, likely)
        is_text = likely is None and isinstance(target, str) and target.split()
        to = run.model.tokenizer(target) if is_text else target  # both texts as the page shows them
        attribution = attribute(run.model, _encoding(run), to, position=position, method=method, check=check)
    if not np.isfinite([attribution.value, *attribution.scores]).all():
        raise RegardError("contributions are NaN or infinite: the model overflows for this text")
    return {
        "method": attribution.method,
        "metric": attribution.metric,
        "value": attribution.value,
        "baseline_value": attribution.baseline_value,
        "note": _completeness_note(attribution),
        "scores": attribution.scores.tolist(),
        "attended": attribution.attended.tolist(),
        "to": target if likely is None else None,
        "token": None if likely is None else target,
        "likely": likely,
    }


def _completeness_note(attribution: Attribution) -> str:
    """Return that the contributions do not sum to what they should; empty where they do, or need not."""
    if attribution.is_complete is not False or attribution.baseline_value is None:
        return ""
    total, change = attribution.scores.sum(), attribution.value - attribution.baseline_value
    return (
        f"Not exact: the contributions sum to {total:.4g}, the number changes by {change:.4g}. Choose another method."
    )


def _target_of(
    run: Run,
    other_text: str | None,
    query: AttributionQuery,
    position: int,
    likely: list[answers.PredictedToken] | None,
) -> Any:
    """Return the id of a next token, or the text to compare with."""
    if query.to is not None and query.token is not None:
        raise RegardError("give a target as text or as a token's id, not both")
    target = query.token if query.to is None else query.to
    if likely is None:
        return _default_text(run, other_text) if target is None else target
    return likely[0]["token"] if target is None else next_token_id(run.model, _encoding(run), target, position)


def default_attributions(
    run: Run, other_text: str | None
) -> Iterator[tuple[str, answers.Attribution | answers.Failure]]:
    """Yield each method whose answer for the default target an exported page holds, with the answer.

    Numbers have six digits. A method that cannot answer has ``error``. Those that take a gradient at each of many
    steps are held only where they are the default, of a short text.
    """
    if _blocked_by(run) is not None:
        return
    for name, entry in ATTRIBUTION_METHODS.items():
        gradients = run.length * (DEFAULT_STEPS if entry.has_steps else 1)
        if gradients > _MAX_FILE_GRADIENTS or (entry.has_steps and name != default_method(run.model)):
            continue
        try:
            yield name, _rounded(attribute_run(run, other_text, AttributionQuery(name), lambda: None))
        except RegardError as error:
            yield name, {"error": str(error)}


def _blocked_by(run: Run) -> str | None:
    """Return why there is no attribution for a run; None if there is."""
    if run.model is None or run.encoding is None:
        return "What mattered takes the gradients of a model: explore a text with a model, not a saved trace."
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


def _likely_tokens(run: Run, position: int) -> list[answers.PredictedToken]:
    """Return the most likely next tokens after a position, the most likely first."""
    output = run.unedited
    logits = np.asarray(output.head(output.hidden[:, [position]]))[0, -1]
    tokens = likely_tokens(logits, run.model.tokenizer, top=_NUM_LIKELY)
    return [{"token": each.id, "text": each.text, "probability": round(each.probability, 6)} for each in tokens]


def _rounded(answer: answers.Attribution) -> answers.Attribution:
    def shorten(x: float) -> float:
        return float(f"{x:.6g}")

    return {
        **answer,
        "scores": [shorten(x) for x in answer["scores"]],
        "attended": [shorten(x) for x in answer["attended"]],
    }
