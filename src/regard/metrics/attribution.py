"""What mattered: how much each token of a text contributed to a number that a model computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.functional.arrays import Array
from regard.metrics.attribution_target import AttributedMetric, Score, Target, attributed_metric
from regard.metrics.layer_maps import layers_of
from regard.metrics.relevance import relevance_of_run
from regard.models.base import run_traced
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.checkpoint import with_checkpoints
from regard.nn.gradients import one_number
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.trace.gradient_trace import GradientTrace

Method: TypeAlias = Literal["gradient", "integrated", "relevance"]
Baseline: TypeAlias = "Literal['zero', 'pad', 'mask'] | int | np.ndarray"


@dataclass(frozen=True, eq=False)
class Attribution:
    """How much each token of a text contributed to a number.

    Parameters
    ----------
    method : {"gradient", "integrated", "relevance"}
    metric : str
        The number in words: ``"logit of ' Paris'"``.
    value : float
        The number.
    encoding : Encoding
        The text as tokens.
    scores : array of float64, ``T``
        The contribution of each token, in the unit of the number; of relevance, without a unit and never negative.
    attended : array of float64, ``T``
        The weight that each token receives, in the mean over layers and heads: from the last token where the number is
        the logit of the next token of a decoder, otherwise in the mean over all tokens. The sum is 1.
    baseline_value : float, optional
        Of integrated gradients, the number at the baseline.
    relevance : array of float64, ``T T``, optional
        Of attention relevance: that of each token (columns) for the last vector of each (rows).
    """

    method: Method
    metric: str
    value: float
    encoding: Encoding
    scores: np.ndarray
    attended: np.ndarray
    baseline_value: float | None = None
    relevance: np.ndarray | None = None

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens, one for each score."""
        return self.encoding.tokens

    @property
    def completeness_gap(self) -> float | None:
        """Of integrated gradients: the sum of the scores minus the difference of the number; 0 with enough steps."""
        if self.baseline_value is None:
            return None
        return float(self.scores.sum() - (self.value - self.baseline_value))


def attribute(
    model: Any,
    text: str | Encoding,
    to: Target,
    *,
    versus: str | int | None = None,
    method: Method | None = None,
    score: Score = "logit",
    baseline: Baseline = "zero",
    steps: int = 32,
    batch_size: int = 4,
    checkpoint: bool = False,
) -> Attribution:
    """Return how much each token of a text contributed to a number that a model computes from it.

    Parameters
    ----------
    model : Model
    text : str or Encoding
        One text.
    to : str, int or function
        Of a language model, the next token: one token as it follows the text (``" Paris"``), or its id; of an
        encoder-decoder, the first of the target. Of an encoder, another text: the number is the cosine similarity of
        both sentence vectors (the mean over tokens where the model has no pooling of its own). Or any function from the
        `Output` to one number.
    versus : str or int, optional
        A second token or text, whose number is subtracted.
    method : {"integrated", "gradient", "relevance"}, optional
        By default integrated gradients for an encoder, and gradient × input for a language model: in a deep decoder
        the way from the baseline takes very many steps.

        Gradient × input: the gradient with respect to the token embedding, times the embedding. Integrated gradients:
        the mean of the gradient on the straight line from a baseline to the embedding, times their difference; the
        scores add up to the difference of the number. Attention relevance: the weights times their gradients where
        that is positive, the mean over heads, carried from layer to layer beside the residual connection; the token
        itself, which the residual connection brings, is left out of the scores.
    score : {"logit", "log_probability"}
        What is taken of a next token.
    baseline : {"zero", "pad", "mask"}, int or array, ``T E``
        Of integrated gradients: zero in place of all embeddings; the padding token, the mask token or a token's id in
        place of all tokens but special ones; or embeddings.
    steps : int
        Of integrated gradients, the points on the line (of the Gauss–Legendre quadrature). More make
        `completeness_gap` smaller.
    batch_size : int
        Of them, how many run together.
    checkpoint : bool
        As in `TextModel.gradients`: less memory, more time.

    Raises
    ------
    RegardError
        `to` is not one token; the model has no such baseline; or an argument is invalid.

    References
    ----------
    Gradient × input: Shrikumar et al. (2016), "Not just a black box", https://arxiv.org/abs/1605.01713.
    Integrated gradients: Sundararajan, Taly and Yan (2017), "Axiomatic attribution for deep networks",
    https://arxiv.org/abs/1703.01365.
    Attention relevance: Chefer, Gur and Wolf (2021), "Generic attention-model explainability for interpreting bi-modal
    and encoder-decoder transformers", https://arxiv.org/abs/2103.15679.

    Examples
    --------
    >>> from regard.models import toy
    >>> model = toy("the cat sat on the mat")
    >>> found = attribute(model, "the cat sat", lambda output: output.hidden[0, 2].sum(), method="gradient")
    >>> found.tokens, found.scores.shape
    (('the', 'cat', 'sat'), (3,))
    """
    if method is None:
        method = "integrated" if getattr(model, "head", None) is None else "gradient"
    if method not in get_args(Method):
        raise RegardError(f"method must be one of {', '.join(get_args(Method))}, got {method!r}")
    steps, batch_size = whole_number("steps", steps, 1), whole_number("batch_size", batch_size, 1)
    encoding = model.tokenizer(text) if isinstance(text, str) else text
    metric = attributed_metric(model, encoding, to, versus, score)
    attended = _attended(model, encoding, metric.row)
    run = with_checkpoints(model) if checkpoint else model
    if method == "relevance":
        value, relevance = relevance_of_run(run, encoding, metric.compute)
        through_attention = relevance if isinstance(model, EncoderDecoder) else relevance - np.eye(len(relevance))
        scores = through_attention.mean(0) if metric.row is None else through_attention[metric.row]
        return Attribution(method, metric.name, value, encoding, scores, attended, relevance=relevance)
    step = "encoder.token_embeddings" if isinstance(model, EncoderDecoder) else "token_embeddings"
    x = _embeddings(model, encoding, step)
    if method == "gradient":
        (value,), (gradient,) = _gradients_at(run, encoding, metric, step, x[None])
        return Attribution(method, metric.name, value, encoding, (gradient * x).sum(-1), attended)
    start = _baseline(model, encoding, step, baseline, x)
    (value,) = _values_at(model, encoding, metric, step, x[None])
    (baseline_value,) = _values_at(model, encoding, metric, step, start[None])
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    mean = np.zeros(x.shape, np.float64)
    for at in range(0, steps, batch_size):
        part = slice(at, at + batch_size)
        points = start + (nodes[part, None, None] + 1) / 2 * (x - start)
        _, gradients = _gradients_at(run, encoding, metric, step, points)
        mean += np.tensordot(weights[part] / 2, gradients, 1)
    scores = (mean * (x - start)).sum(-1)
    return Attribution(method, metric.name, value, encoding, scores, attended, baseline_value=baseline_value)


class _EmbeddingsTrace(GradientTrace):
    """The recorder of a run on other embeddings, with respect to which its gradients are taken."""

    def __init__(self, step: str, embeddings: np.ndarray) -> None:
        super().__init__(step, only=())
        self._step, self._embeddings = step, embeddings  # B T E

    def _tap(self, name: str, value: Array, axes: str, *, is_shared: bool) -> Array:
        if self._prefix + name == self._step:
            value = self._embeddings.astype(value.dtype)
        return super()._tap(name, value, axes, is_shared=is_shared)


def _embeddings(model: Any, encoding: Encoding, step: str) -> np.ndarray:
    """Return the token embeddings of a text in float64, ``T E``."""
    trace = Trace(only=step, stop=step)
    model([encoding], trace=trace)
    return np.asarray(trace[step][0], np.float64)


def _baseline(model: Any, encoding: Encoding, step: str, baseline: Any, x: np.ndarray) -> np.ndarray:
    """Return the embeddings from which the line begins, ``T E``."""
    if isinstance(baseline, np.ndarray):
        if baseline.shape != x.shape:
            raise RegardError(f"the baseline must have the shape of the embeddings, {x.shape}, got {baseline.shape}")
        return baseline.astype(np.float64)
    if baseline == "zero":
        return np.zeros_like(x)
    if baseline == "pad" and getattr(model.tokenizer, "pad_id", None) is not None:
        baseline = model.tokenizer.pad_id
    elif baseline == "mask":
        found = [model.tokenizer(name) for name in ("[MASK]", "<mask>")]
        ids = [[i for i, name in zip(e.ids, e.tokens, strict=True) if name in ("[MASK]", "<mask>")] for e in found]
        baseline = next((each[0] for each in ids if each), None)
    if not isinstance(baseline, int | np.integer):
        raise RegardError(f"{model.name} has no such token for a baseline: choose zero or a token's id")
    special = encoding.special_tokens_mask
    tokens = [i if keep else int(baseline) for i, keep in zip(encoding.ids, special, strict=True)]
    return _embeddings(model, model.tokenizer.from_ids(tokens), step)


def _gradients_at(
    model: Any, encoding: Encoding, metric: AttributedMetric, step: str, points: np.ndarray
) -> tuple[list[float], np.ndarray]:
    """Return the number at each of some embeddings, ``N T E``, and its gradients there, float64 ``N T E``."""
    trace = _EmbeddingsTrace(step, points)
    each = _each(model([encoding] * len(points), trace=trace), metric.compute)
    (gradients,) = F.gradients(sum(each[1:], each[0]), trace.leaves)
    return [one_number("the metric", value) for value in each], np.asarray(gradients, np.float64)


def _values_at(model: Any, encoding: Encoding, metric: AttributedMetric, step: str, points: np.ndarray) -> list[float]:
    """Return the number at each of some embeddings, ``N T E``."""
    trace = Trace(only=(), edit={step: lambda before: points.astype(before.dtype)})
    return [float(value) for value in _each(model([encoding] * len(points), trace=trace), metric.compute)]


def _each(output: Any, compute: Callable[[Any], Any]) -> Sequence[Any]:
    """Return the number of each entry of a batch, as that of an output of this entry alone."""
    return [compute(_entry(output, i)) for i in range(len(output.encodings))]


def _entry(output: Any, i: int) -> Any:
    part = slice(i, i + 1)
    fields = {name: getattr(output, name)[part] for name in ("memory", "memory_encodings") if hasattr(output, name)}
    return replace(output, hidden=output.hidden[part], encodings=output.encodings[part], **fields)


def _attended(model: Any, encoding: Encoding, row: int | None) -> np.ndarray:
    """Return the weight that each token receives, in the mean over layers, heads and rows (of one row)."""
    layers = layers_of(run_traced(model, [encoding], Trace(only="*.weights", maps=True)), 0)
    rows = None if row is None else np.array([row % len(encoding)])
    total = np.zeros(len(encoding))
    for layer in layers:
        for _, block in layer.row_blocks(rows):
            total += block.mean(0).sum(0)
    mean: np.ndarray = total / total.sum()
    return mean
