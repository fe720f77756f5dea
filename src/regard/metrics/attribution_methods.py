"""Methods of attribution: each is one function with its entry. To add one, write its function here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard.functional.arrays import Array
from regard.functional.attnlrp import ATTNLRP
from regard.functional.variable import Rule, Vjp
from regard.metrics.attribution_target import AttributedMetric, predicts_tokens
from regard.metrics.layer_maps import CancelCheck
from regard.metrics.relevance import relevance_of_run
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.output import run_finite
from regard.nn.decoder import require_maps
from regard.nn.gradients import one_number
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.trace.gradient_trace import GradientTrace


@dataclass(frozen=True, eq=False)
class AttributionInputs:
    """What a method computes the contributions from."""

    model: Any
    encoding: Encoding
    metric: AttributedMetric
    baseline: Any
    steps: int
    batch_size: int
    check: CancelCheck

    @property
    def step(self) -> str:
        """The name of the token embeddings, to which the contributions of most methods go."""
        return "encoder.token_embeddings" if isinstance(self.model, EncoderDecoder) else "token_embeddings"


class Contributions(NamedTuple):
    """The number and the contribution of each token; the fields are those of `Attribution`, and the maps of the run."""

    value: float
    scores: np.ndarray
    baseline_value: float | None = None
    relevance: np.ndarray | None = None
    maps: Trace | None = None  # where the method has run the model on the text itself


MethodFunction: TypeAlias = Callable[[AttributionInputs], Contributions]


@dataclass(frozen=True)
class AttributionMethod:
    """The entry of a method.

    Parameters
    ----------
    name : str
        That of its function: the `method` of `attribute`, the choice of ``regard attribute --method``.
    title, description, caveat, paper : str
        For tables and pages. The caveat says what the scores do not show.
    function
    is_signed : bool
        Whether a score below 0 stands for what spoke against the number.
    has_steps : bool
        Whether it takes the gradient at each of `steps` points, `batch_size` together, from a `baseline`, instead of
        one gradient.
    holds_maps : bool
        Whether it holds the weights of all heads and their gradients.
    """

    name: str
    title: str
    description: str
    function: MethodFunction
    caveat: str
    paper: str
    is_signed: bool = True
    has_steps: bool = False
    holds_maps: bool = False


DEFAULT_STEPS = 32
"""For a method that has steps."""

ATTRIBUTION_METHODS: dict[str, AttributionMethod] = {}
"""Every method by its name, in the order in which pages show them."""


def attribution_method(title: str, description: str, **fields: Any) -> Callable[[MethodFunction], MethodFunction]:
    """Enter a function in `ATTRIBUTION_METHODS`, under its name; `fields` are others of `AttributionMethod`."""

    def enter(function: MethodFunction) -> MethodFunction:
        name = function.__name__
        ATTRIBUTION_METHODS[name] = AttributionMethod(name, title, description, function, **fields)
        return function

    return enter


def default_method(model: Any) -> str:
    """Return the method for a model: in a deep decoder the way from the baseline takes very many steps."""
    return "gradient" if predicts_tokens(model) else "integrated"


@attribution_method(
    "Gradient × input",
    "The gradient with respect to the token's embedding, times the embedding: what a little more of it would change.",
    caveat="Where the model is far from linear, a token that decided may have a gradient of almost 0.",
    paper="Shrikumar et al. 2016, arXiv:1605.01713",
)
def gradient(inputs: AttributionInputs) -> Contributions:
    """∂f/∂x · x of each embedding x."""
    _check_slope(inputs.metric)
    return _times_input(inputs)


@attribution_method(
    "Integrated gradients",
    "The mean of the gradient on the line from a baseline to the embedding, times their difference; the sum is the "
    "difference of the number.",
    caveat="It says what the text has and the baseline lacks, and needs many steps in a deep model.",
    paper="Sundararajan et al. 2017, arXiv:1703.01365",
    has_steps=True,
)
def integrated(inputs: AttributionInputs) -> Contributions:
    """The Gauss–Legendre quadrature of ∂f/∂x from the baseline to x, times x − baseline."""
    x = _embeddings(inputs, inputs.encoding)
    start = _baseline(inputs, x)
    nodes, weights = np.polynomial.legendre.leggauss(inputs.steps)
    mean = np.zeros(x.shape, np.float64)
    for at in range(0, inputs.steps, inputs.batch_size):
        inputs.check()
        part = slice(at, at + inputs.batch_size)
        points = start + (nodes[part, None, None] + 1) / 2 * (x - start)
        _, gradients, _ = _gradients_at(inputs, points)
        mean += np.tensordot(weights[part] / 2, gradients, 1)
    (value,), (baseline_value,) = (_values_at(inputs, each[None]) for each in (x, start))
    return Contributions(value, (mean * (x - start)).sum(-1), baseline_value=baseline_value)


@attribution_method(
    "Attention relevance",
    "The weights times their gradients where that is positive, the mean over heads, carried from layer to layer with "
    "the residual connection; the token itself, which that connection brings, is left out.",
    caveat="It has no sign, and follows attention only: feed-forward layers do not appear.",
    paper="Chefer et al. 2021, arXiv:2103.15679",
    is_signed=False,
    holds_maps=True,
)
def relevance(inputs: AttributionInputs) -> Contributions:
    """The row of the relevance of each token for the last vectors, see `relevance_of_run`."""
    _check_slope(inputs.metric)
    require_maps(inputs.model, "attention relevance")
    value, matrix = relevance_of_run(inputs.model, inputs.encoding, inputs.metric.compute)
    through_attention = matrix if isinstance(inputs.model, EncoderDecoder) else matrix - np.eye(len(matrix))
    row = inputs.metric.row
    scores = through_attention.mean(0) if row is None else through_attention[row]
    return Contributions(value, scores, relevance=matrix)


@attribution_method(
    "AttnLRP",
    "Relevance that flows back from the number: a product gives half to each factor, activations pass all of it, norms "
    "have a constant scale, and softmax is expanded to first order.",
    caveat="Biases, position embeddings and softmax absorb a part: the scores do not sum to the number.",
    paper="Achtibat et al. 2024, arXiv:2402.05602",
)
def attnlrp(inputs: AttributionInputs) -> Contributions:
    """Gradient × input with the pullbacks of `regard.functional.attnlrp`."""
    require_maps(inputs.model, "AttnLRP, which has no rule for linear attention,")
    return _times_input(inputs, ATTNLRP)


def _times_input(inputs: AttributionInputs, rules: Mapping[Vjp, Rule] | None = None) -> Contributions:
    x = _embeddings(inputs, inputs.encoding)
    (value,), (slope,), maps = _gradients_at(inputs, x[None], rules)
    return Contributions(value, (slope * x).sum(-1), maps=maps)


def _check_slope(metric: AttributedMetric) -> None:
    if metric.is_largest:
        raise RegardError(
            "a text is as similar to itself as can be, where every gradient is 0: give another text, or choose "
            "integrated gradients"
        )


class _EmbeddingsTrace(GradientTrace):
    """The recorder of a run on other embeddings, with respect to which its gradients are taken, and of its maps."""

    def __init__(self, step: str, embeddings: np.ndarray, rules: Mapping[Vjp, Rule] | None) -> None:
        super().__init__(step, only="*.weights", rules=rules, maps=True)
        self._step, self._embeddings = step, embeddings  # B T E

    def __call__(self, name: str, value: Array, axes: str, *, owned: bool = False) -> Array:
        if self._prefix + name == self._step:
            value = self._embeddings.astype(value.dtype)
        return super().__call__(name, value, axes, owned=owned)


def _embeddings(inputs: AttributionInputs, encoding: Encoding) -> np.ndarray:
    """Return the token embeddings of a text in float64, ``T E``."""
    trace = Trace(only=inputs.step, stop=inputs.step)
    inputs.model([encoding], trace=trace)
    return np.asarray(trace[inputs.step][0], np.float64)


def _baseline(inputs: AttributionInputs, x: np.ndarray) -> np.ndarray:
    """Return the embeddings from which the line begins, ``T E``."""
    baseline, tokenizer = inputs.baseline, inputs.model.tokenizer
    if isinstance(baseline, np.ndarray):
        if baseline.shape != x.shape:
            raise RegardError(f"the baseline must have the shape of the embeddings, {x.shape}, got {baseline.shape}")
        return baseline.astype(np.float64)
    if baseline == "zero":
        return np.zeros_like(x)
    if baseline == "pad" and getattr(tokenizer, "pad_id", None) is not None:
        baseline = tokenizer.pad_id
    elif baseline == "mask":
        encodings = [tokenizer(name) for name in ("[MASK]", "<mask>")]
        ids = [[i for i, name in zip(e.ids, e.tokens, strict=True) if name in ("[MASK]", "<mask>")] for e in encodings]
        baseline = next((each[0] for each in ids if each), None)
    if not isinstance(baseline, int | np.integer):
        raise RegardError(f"{inputs.model.name} has no such token for a baseline: choose zero or a token's id")
    special = inputs.encoding.special_tokens_mask
    tokens = [i if keep else int(baseline) for i, keep in zip(inputs.encoding.ids, special, strict=True)]
    return _embeddings(inputs, tokenizer.from_ids(tokens))


def _gradients_at(
    inputs: AttributionInputs, points: np.ndarray, rules: Mapping[Vjp, Rule] | None = None
) -> tuple[list[float], np.ndarray, Trace]:
    """Return the number at each of some embeddings, ``N T E``, its gradients there, float64 ``N T E``, and the maps."""
    trace = _EmbeddingsTrace(inputs.step, points, rules)
    output = run_finite(inputs.model, [inputs.encoding] * len(points), trace)
    each = numbers_of_batch(output, inputs.metric.compute)
    values = [one_number("the metric", value) for value in each]
    (gradients,) = F.gradients(sum(each[1:], each[0]), trace.leaves)
    return values, np.asarray(gradients, np.float64), trace


def _values_at(inputs: AttributionInputs, points: np.ndarray) -> list[float]:
    """Return the number at each of some embeddings, ``N T E``."""
    trace = Trace(only=(), edit={inputs.step: lambda before: points.astype(before.dtype)})
    output = inputs.model([inputs.encoding] * len(points), trace=trace)
    return [float(np.asarray(value).item()) for value in numbers_of_batch(output, inputs.metric.compute)]


def numbers_of_batch(output: Any, compute: Callable[[Any], Any]) -> Sequence[Any]:
    """Return the number of each entry of a batch, as that of an output of this entry alone."""
    return [compute(_entry(output, i)) for i in range(len(output.encodings))]


def _entry(output: Any, i: int) -> Any:
    part = slice(i, i + 1)
    fields = {name: getattr(output, name)[part] for name in ("memory", "memory_encodings") if hasattr(output, name)}
    return replace(output, hidden=output.hidden[part], encodings=output.encodings[part], **fields)
