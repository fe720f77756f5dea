"""What mattered: how much each token of a text contributed to a number that a model computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.frames import Tabular, make_dataset
from regard._utils.reprs import fields_repr
from regard._utils.validation import one_of, whole_number
from regard.metrics.attribution_methods import (
    ATTRIBUTION_METHODS,
    DEFAULT_STEPS,
    AttributionInputs,
    AttributionMethod,
    default_method,
)
from regard.metrics.attribution_target import Score, Target, attributed_metric, encoding_of
from regard.metrics.layer_maps import CancelCheck, layers_of
from regard.models.batch import OneText
from regard.models.output import run_traced
from regard.nn.checkpoint import with_checkpoints
from regard.text.encoding import Encoding
from regard.text.token_labels import token_labels
from regard.trace import Trace
from regard.trace.notebook_html import page, sizes_picture, table, tokens_line

_ROWS = 10  # tokens of the table in a notebook
_MAX_GAP = 0.05  # of the difference of the number

Baseline: TypeAlias = "Literal['zero', 'pad', 'mask'] | int | np.ndarray"


@dataclass(frozen=True, eq=False)
class Attribution(Tabular):
    """How much each token of a text contributed to a number.

    Parameters
    ----------
    method : str
        A name in `ATTRIBUTION_METHODS`.
    metric : str
        The number in words: ``"logit of ' Paris'"``.
    value : float
        The number.
    encoding : Encoding
        The text as tokens.
    scores : array of float64, ``T``
        The contribution of each token, in the unit of the number; of relevance, without a unit and never negative.
    attended : array of float64, ``T``
        The weight that each token receives, averaged over layers and heads: where the number is the logit of the
        next token of a decoder, from the token that it follows; otherwise averaged over all tokens. The sum is 1.
    baseline_value : float, optional
        For integrated gradients, the number at the baseline.
    relevance : array of float64, ``T T``, optional
        Of attention relevance: that of each token (columns) for the last vector of each (rows).
    """

    method: str
    metric: str
    value: float
    encoding: Encoding
    scores: np.ndarray
    attended: np.ndarray
    baseline_value: float | None = None
    relevance: np.ndarray | None = None

    __repr__ = fields_repr

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens, one for each score."""
        return self.encoding.tokens

    @property
    def completeness_gap(self) -> float | None:
        """For integrated gradients: the sum of the scores minus the difference of the number; 0 with enough steps."""
        if self.baseline_value is None:
            return None
        return float(self.scores.sum() - (self.value - self.baseline_value))

    @property
    def is_complete(self) -> bool | None:
        """For integrated gradients: whether the gap is at most a twentieth of the difference of the number."""
        gap, start = self.completeness_gap, self.baseline_value
        return None if gap is None or start is None else abs(gap) <= _MAX_GAP * abs(self.value - start)

    def to_columns(self) -> dict[str, np.ndarray]:
        """Return a row for each token: ``position``, ``token``, ``score`` and ``attended``."""
        columns = {"position": np.arange(len(self.scores)), "token": np.array(self.tokens)}
        return columns | {"score": self.scores, "attended": self.attended}

    def to_xarray(self) -> Any:
        """Return `scores` and `attended` as an ``xarray.Dataset``; ``token`` is a coordinate."""
        variables = {name: ("T", getattr(self, name)) for name in ("scores", "attended")}
        return make_dataset(variables, {"token": ("T", np.array(self.tokens))})

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the size of each score, and the largest."""
        labels = token_labels(self.encoding)
        largest = np.argsort(-np.abs(self.scores), kind="stable")[:_ROWS].tolist()
        rows = [(labels[i], f"{self.scores[i]:+.4g}", f"{self.attended[i]:.1%}") for i in largest]
        gap = (
            f"; not exact: the sum of the scores is off by {self.completeness_gap:+.2g}"
            if self.is_complete is False
            else ""
        )
        return page(
            f"Attribution by {self.method}: {self.metric} is {self.value:.4g}{gap}",
            tokens_line(labels),
            sizes_picture(self.scores[None], "size of the score of each token"),
            table(("token", "largest scores", "attended"), rows),
            try_next=("found.scores", "found.to_frame()", "regard.plot.attribution(found)"),
        )


def attribute(
    model: Any,
    text: OneText,
    to: Target | None = None,
    *,
    versus: str | int | Encoding | None = None,
    position: int = -1,
    method: str | None = None,
    score: Score | None = None,
    baseline: Baseline | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    checkpoint: bool = False,
    check: CancelCheck = lambda: None,
) -> Attribution:
    """Return how much each token of a text contributed to a number that a model computes from it.

    Parameters
    ----------
    model : Model
    text : str, Encoding or ids
        One text.
    to : str, int, Encoding or function, optional
        For a language model, the next token: one token as it follows the text (``" Paris"``), or its id; of an
        encoder-decoder, the first of the target. By default the most probable one. For an encoder, another text: the
        number is the cosine similarity of both sentence vectors (the mean over tokens where the model has no pooling
        of its own). For it texts are read as `TextModel.embed` reads them, with the model's default prompt, its
        lower-casing and its limit; encodings are taken as they are. Or any function from the `Output` to one number.
    versus : str, int or Encoding, optional
        A second token or text, whose number is subtracted.
    position : int
        For a decoder, the token that the next token follows, by default the last.
    method : str, optional
        A name in `ATTRIBUTION_METHODS`: ``"gradient"``, ``"integrated"``, ``"relevance"`` or ``"attnlrp"``.
        By default integrated gradients for an encoder, and gradient × input for a language model: in a deep decoder
        the way from the baseline takes very many steps.

        Gradient × input: the gradient with respect to the token embedding, times the embedding. Integrated gradients:
        the mean of the gradient on the straight line from a baseline to the embedding, times their difference; the
        scores add up to the difference of the number. Attention relevance: the weights times their gradients where
        that is positive, the mean over heads, carried from layer to layer with the residual connection; the token
        itself, which the residual connection brings, is left out of the scores. AttnLRP: relevance flows back from the
        number by rules in place of gradients; half of what reaches a product goes to each factor, norms hold their
        scale, activations pass what reaches them. See `regard.functional.attnlrp`.
    score : {"logit", "log_probability"}, optional
        What is taken of a next token, by default the logit. Only for a next token.
    baseline : {"zero", "pad", "mask"}, int or array, ``T E``, optional
        Only for integrated gradients: zero in place of all embeddings, the default; the padding token, the mask token
        or a token's id in place of all tokens but special ones; or embeddings.
    steps : int, optional
        Only for integrated gradients, the points on the line (of the Gauss–Legendre quadrature), by default 32. More
        make `completeness_gap` smaller.
    batch_size : int, optional
        Of them, how many run together, by default 4.
    checkpoint : bool
        As in `TextModel.gradients`: less memory, more time.
    check : function
        Called between runs of the model; what it raises ends the computation.

    Raises
    ------
    RegardError
        `to` is not one token, or the same as `versus`; or it is the text itself, and the method needs a gradient there,
        which is 0; the model has no such baseline; an argument is given that the method or the number does not take; or
        one is invalid.

    References
    ----------
    Gradient × input: Shrikumar et al. (2016), "Not just a black box", https://arxiv.org/abs/1605.01713.
    Integrated gradients: Sundararajan, Taly and Yan (2017), "Axiomatic attribution for deep networks",
    https://arxiv.org/abs/1703.01365.
    Attention relevance: Chefer, Gur and Wolf (2021), "Generic attention-model explainability for interpreting bi-modal
    and encoder-decoder transformers", https://arxiv.org/abs/2103.15679.
    AttnLRP: Achtibat et al. (2024), "AttnLRP: attention-aware layer-wise relevance propagation for transformers",
    https://arxiv.org/abs/2402.05602.

    Examples
    --------
    >>> from regard.models import toy
    >>> model = toy("the cat sat on the mat")
    >>> found = attribute(model, "the cat sat", lambda output: output.hidden[0, 2].sum(), method="gradient")
    >>> found.tokens, found.scores.shape
    (('the', 'cat', 'sat'), (3,))
    """
    method = default_method(model) if method is None else method
    one_of("method", method, ATTRIBUTION_METHODS)
    entry = ATTRIBUTION_METHODS[method]
    _check_unused(entry, {"baseline": baseline, "steps": steps, "batch_size": batch_size})
    baseline = "zero" if baseline is None else baseline
    steps = whole_number("steps", DEFAULT_STEPS if steps is None else steps, 1)
    batch_size = whole_number("batch_size", 4 if batch_size is None else batch_size, 1)
    encoding = encoding_of(model, text, to)
    metric = attributed_metric(model, encoding, to, versus, score, position)
    check()
    run = with_checkpoints(model) if checkpoint else model
    inputs = AttributionInputs(run, encoding, metric, baseline, steps, batch_size, check)
    contributions = entry.function(inputs)
    check()
    maps = contributions.maps
    if maps is None:
        maps = run_traced(model, [encoding], Trace(only="*.weights", maps=True))
    return Attribution(
        method,
        metric.name,
        contributions.value,
        encoding,
        contributions.scores,
        _attended(maps, metric.row, check),
        contributions.baseline_value,
        contributions.relevance,
    )


def _check_unused(entry: AttributionMethod, options: dict[str, Any]) -> None:
    """Raise for options of methods with steps that are given to another method."""
    unused = [name for name, value in options.items() if value is not None]
    if unused and not entry.has_steps:
        takers = " or ".join(each.name for each in ATTRIBUTION_METHODS.values() if each.has_steps)
        raise RegardError(f"method {entry.name} takes no {' or '.join(unused)}: leave out, or choose {takers}")


def _attended(maps: Trace, row: int | None, check: CancelCheck) -> np.ndarray:
    """Return the weight that each token receives, averaged over layers, heads and rows (of one row)."""
    layers = layers_of(maps, 0)
    rows = None if row is None else np.array([row])
    total = np.zeros(layers[0].length)
    for layer in layers:
        for _, block in layer.row_blocks(rows, check):
            total += block.mean(0).sum(0)
    mean: np.ndarray = total / total.sum()
    return mean
