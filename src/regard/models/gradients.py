"""Gradients of a number that is computed from a model's output, with respect to its steps and parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard.nn import parameters as parameters_of
from regard.nn.checkpoint import with_checkpoints
from regard.nn.gradients import RecordedParameters, one_number
from regard.trace import Trace
from regard.trace.gradient_trace import GradientTrace
from regard.trace.step_names import did_you_mean, matches
from regard.trace.trace import names_of

Metric: TypeAlias = str | Callable[[Any], Any]
"""A name in `METRICS`, or a function from the output of a model to one number."""


class ModelGradients(NamedTuple):
    """A metric of a run, and its gradients.

    Parameters
    ----------
    value : float
        The metric.
    values : Trace
        The values of the steps.
    gradients : Trace
        The gradient of the metric with respect to each step, under the same names.
    parameters : dict of str to array
        Its gradient with respect to each of the parameters asked for, by name.
    """

    value: float
    values: Trace
    gradients: Trace
    parameters: dict[str, np.ndarray]


def language_loss(output: Any) -> Any:
    """Return the mean cross-entropy of each next token of the texts (of an encoder-decoder: the targets), in nats."""
    return F.cross_entropy(output.logits[:, :-1], next_tokens(output))


def next_tokens(output: Any) -> np.ndarray:
    """Return the next token of each but the last, ``B T−1``; −100 where there is none."""
    lengths = [len(encoding) for encoding in output.encodings]
    if max(lengths) < 2:
        raise RegardError("the loss needs a next token: give a text of at least two tokens")
    targets = np.full((len(lengths), output.hidden.shape[1] - 1), -100)
    for row, encoding, length in zip(targets, output.encodings, lengths, strict=True):
        row[: length - 1] = encoding.ids[1:]
    return targets


METRICS: Mapping[str, Callable[[Any], Any]] = MappingProxyType({"loss": language_loss})
"""Functions from the output of a model to one number, by name."""


def gradients_of_run(
    model: Any,
    run: Callable[[Any, GradientTrace], Any],
    metric: Metric,
    at: str | Iterable[str],
    only: str | Iterable[str] | None,
    parameters: str | Iterable[str],
    checkpoint: bool,
) -> ModelGradients:
    """Return the gradients of `metric` of the output of `run`, a call of a model with a trace."""
    if isinstance(metric, str) and metric not in METRICS:
        raise RegardError(f"metric must be a function of the output, or one of {', '.join(METRICS)}, got {metric!r}")
    compute = METRICS[metric] if isinstance(metric, str) else metric
    at, patterns = names_of("at", at), names_of("parameters", parameters)
    if not at and not patterns:
        raise RegardError("nothing was asked for: name steps in at= or arrays in parameters=")
    names = list(parameters_of(model)) if patterns else []
    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            raise RegardError(f"parameters= matched no array: {pattern!r} ({did_you_mean(pattern, names)})")
    trace = GradientTrace(at, only=only)
    recorded = RecordedParameters(model, lambda name: matches(name, *patterns)) if patterns else None
    layer = model if recorded is None else recorded.layer
    value = compute(run(with_checkpoints(layer) if checkpoint else layer, trace))
    number = one_number("the metric", value)
    arrays = F.gradients(value, [*trace.leaves, *(() if recorded is None else recorded.leaves)])
    of_steps, of_parameters = arrays[: len(trace.leaves)], arrays[len(trace.leaves) :]
    by_name = {} if recorded is None else recorded.by_name(of_parameters)
    return ModelGradients(number, trace, trace.gradients(of_steps), by_name)
