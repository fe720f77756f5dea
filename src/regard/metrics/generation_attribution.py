"""What mattered for a continuation: an attribution for each token that was generated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.frames import Tabular, make_dataset
from regard._utils.reprs import fields_repr
from regard.metrics.attribution import Attribution, attribute
from regard.metrics.attribution_target import Score, require_decoder
from regard.metrics.layer_maps import CancelCheck
from regard.models.batch import OneText
from regard.models.generation.detokenizer import append_tokens
from regard.models.generation.loop import Generated
from regard.models.generation.options import GenerationArguments
from regard.text.encoding import Encoding
from regard.text.token_labels import token_labels
from regard.trace.notebook_html import page, picture, table, tokens_line

_ROWS, _LARGEST = 10, 3  # of the table in a notebook: generated tokens, and the largest scores of each


@dataclass(frozen=True, eq=False)
class GenerationAttribution(Tabular):
    """How much each token before it contributed to each of N generated tokens.

    Parameters
    ----------
    method : str
        A name in `ATTRIBUTION_METHODS`.
    score : {"logit", "log_probability"}
        What of each generated token was attributed.
    encoding : Encoding
        The prompt and the generated tokens, T in all.
    values : array of float64, ``N``
        The logit of each generated token, or its log-probability in nats, as `score` says.
    scores : array of float64, ``N T``
        The contribution of each token to each generated one (rows), in the unit of the method; 0 from that one on.
    attended : array of float64, ``N T``
        The weight that each receives from the token that each generated one follows, averaged over layers and heads.
    """

    method: str
    score: Score
    encoding: Encoding
    values: np.ndarray
    scores: np.ndarray
    attended: np.ndarray

    __repr__ = fields_repr

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens, one for each column of the scores; the last N are those of the rows."""
        return self.encoding.tokens

    def to_columns(self) -> dict[str, np.ndarray]:
        """Return a row for each pair of a generated token (``to_position``, ``to``) and one before it.

        The columns ``position``, ``token``, ``score`` and ``attended`` are those of the latter.
        """
        first, tokens = len(self.tokens) - len(self.values), np.array(self.tokens)
        outputs, inputs = np.tril_indices(len(self.values), first - 1, len(tokens))
        return {
            "to_position": outputs + first,
            "to": tokens[outputs + first],
            "position": inputs,
            "token": tokens[inputs],
            "score": self.scores[outputs, inputs],
            "attended": self.attended[outputs, inputs],
        }

    def to_xarray(self) -> Any:
        """Return `values`, `scores` and `attended` as an ``xarray.Dataset``; ``to`` and ``token`` are coordinates."""
        tokens = np.array(self.tokens)
        variables = {"values": ("N", self.values), "scores": ("N T", self.scores), "attended": ("N T", self.attended)}
        return make_dataset(variables, {"to": ("N", tokens[-len(self.values) :]), "token": ("T", tokens)})

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the size of each score, and the largest of each row."""
        labels = token_labels(self.encoding)
        sizes = np.abs(self.scores) / (np.abs(self.scores).max(-1, keepdims=True) + np.finfo(float).tiny)
        rows = []
        for label, scores in list(zip(labels[-len(self.values) :], self.scores, strict=True))[:_ROWS]:
            largest = np.argsort(-np.abs(scores), kind="stable")[:_LARGEST].tolist()
            rows.append((label, ", ".join(f"{labels[i]} {scores[i]:+.3g}" for i in largest)))
        return page(
            f"Attribution by {self.method} of {len(self.values)} generated tokens",
            tokens_line(labels),
            picture([sizes], "size of the score of each token (columns) for each generated one, of the largest"),
            table(("generated", "largest scores"), rows),
            try_next=("found.scores", "found.to_frame()"),
        )


def attribute_generation(
    model: Any,
    text: OneText | Generated,
    *,
    method: str | None = None,
    score: Score | None = None,
    checkpoint: bool = False,
    check: CancelCheck = lambda: None,
    **options: Unpack[GenerationArguments],
) -> GenerationAttribution:
    """Continue a text, and return how much each token contributed to each generated one: an `attribute` for each.

    Parameters
    ----------
    model : Decoder
    text : str, Encoding, ids or Generated
        One text to continue; or what `generate` returned for one.
    method, score, checkpoint, check
        As in `attribute`.
    **options
        As in `LanguageModel.generate`: ``max_new_tokens=20``. For a text alone.

    Raises
    ------
    RegardError
        The model is not a decoder; options are given for what is generated already; no token was generated; or as in
        `attribute`.

    Examples
    --------
    >>> import regard
    >>> found = attribute_generation(regard.load("induction"), "qzkfqz", method="attnlrp", max_new_tokens=2)
    >>> found.tokens[-2:], found.scores.shape
    (('k', 'f'), (2, 8))
    """
    require_decoder(model)
    if isinstance(text, Generated) and options:
        raise RegardError(f"the text is generated already: leave out {', '.join(options)}")
    generated = text if isinstance(text, Generated) else model.generate(text, **options)
    if not isinstance(generated, Generated) or not generated.ids:
        raise RegardError("give one text that the model continues by at least one token")
    each: list[Attribution] = []
    for i, token in enumerate(generated.ids):
        before = append_tokens(generated.prompt, generated.ids[:i], model.tokenizer)
        each.append(attribute(model, before, token, method=method, score=score, checkpoint=checkpoint, check=check))
    length = len(generated.encoding)
    scores, attended = (
        np.array([np.pad(x, (0, length - len(x))) for x in arrays])
        for arrays in ([one.scores for one in each], [one.attended for one in each])
    )
    values = np.array([one.value for one in each])
    return GenerationAttribution(each[0].method, score or "logit", generated.encoding, values, scores, attended)
