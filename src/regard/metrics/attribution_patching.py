"""Attribution patching: an estimate of what activation patching would change, for every step from one gradient."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.frames import Tabular, make_dataset
from regard.metrics.activation_patching import same_length
from regard.metrics.attribution_target import Score, Target, attributed_metric
from regard.models.batch import OneText
from regard.models.output import run_traced
from regard.text.token_labels import token_labels
from regard.trace import Trace
from regard.trace.notebook_html import page, table, tokens_line

_ROWS = 10  # effects of the table in a notebook


@dataclass(frozen=True, eq=False)
class PatchingEffects(Tabular):
    """By how much a number would change if values of a run were replaced by those of another.

    Parameters
    ----------
    metric : str
        The number in words.
    value, corrupted_value : float
        The number of both runs.
    effects : Trace
        Under the name of each step the change for each position, and head: its axes without the last, the features.
    """

    metric: str
    value: float
    corrupted_value: float
    effects: Trace

    def heads(self) -> np.ndarray:
        """Return the change for each whole head, ``L H``: the sum over positions of ``blocks.*.attn.context``.

        Where heads have an output gate it is that of ``gated_context``.
        """
        steps = self._of(".attn.context", ".attn.gated_context")
        before_gates = {name.replace(".gated_", ".") for name in steps if ".gated_" in name}
        return np.stack([x[0].sum(-1) for name, x in steps.items() if name not in before_gates])

    def positions(self) -> np.ndarray:
        """Return the change for each position after each block, ``L T``: ``blocks.*.output``."""
        return np.stack([x[0] for x in self._of(".output").values() if x.ndim == 2])

    def to_columns(self) -> dict[str, np.ndarray]:
        """Return a row for each position, and head, of each step: ``step``, ``head`` (−1: none), ``token``, ``effect``.

        ``position`` is of the key where the step is ``k`` or ``v``, and of the query elsewhere.
        """
        rows = []
        for name, values in self.effects.items():
            places = dict(zip(self.effects.axes(name).split(), np.indices(values.shape), strict=True))
            none = np.full(values.shape, -1)
            head, position = places.get("H", places.get("G", none)), places.get("T", places.get("S", none))
            rows.append([each.ravel() for each in (np.full(values.shape, name), head, position, values)])
        steps, heads, positions, effects = (np.concatenate(each) for each in zip(*rows, strict=True))
        tokens = np.array(self.effects.encodings[0].tokens)[positions]
        return {"step": steps, "head": heads, "position": positions, "token": tokens, "effect": effects}

    def to_xarray(self) -> Any:
        """Return the effects as an ``xarray.Dataset``, a variable for each step; ``token`` is a coordinate."""
        variables = {name: (self.effects.axes(name), values) for name, values in self.effects.items()}
        return make_dataset(variables, {"token": ("T", np.array(self.effects.encodings[0].tokens))})

    def __repr__(self) -> str:
        runs = f"corrupted {self.corrupted_value:.4g}, clean {self.value:.4g}"
        return f"<PatchingEffects of {len(self.effects)} steps: {self.metric}; {runs}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the tokens, and the largest effects."""
        columns, labels = self.to_columns(), token_labels(self.effects.encodings[0])
        largest = np.argsort(-np.abs(columns["effect"]), kind="stable")[:_ROWS]
        head = ["" if h < 0 else str(h) for h in columns["head"][largest].tolist()]
        steps, places, effects = (columns[name][largest].tolist() for name in ("step", "position", "effect"))
        rows = zip(steps, head, [labels[i] for i in places], (f"{effect:+.4g}" for effect in effects), strict=True)
        return page(
            repr(self)[1:-1],
            tokens_line(labels),
            table(("step", "head", "token", "largest effects"), rows),
            try_next=("found.heads()", "found.positions()", "found.to_frame()"),
        )

    def _of(self, *suffixes: str) -> dict[str, np.ndarray]:
        names = [name for name in self.effects.names() if name.endswith(suffixes)]
        names = [name for name in names if suffixes != (".output",) or name.split(".")[-2].isdigit()]
        if not names:
            raise RegardError(f"no step that ends with {suffixes[0]} was asked for: give it in at=")
        return {name: self.effects[name] for name in names}


def attribution_patching(
    model: Any,
    text: OneText,
    corrupted: OneText,
    to: Target,
    *,
    versus: str | int | None = None,
    score: Score | None = None,
    at: str | Iterable[str] = ("blocks.*.attn.*context", "blocks.*.output"),
    checkpoint: bool = False,
) -> PatchingEffects:
    """Return by how much a number would change if values of a run were replaced by those of the run on another text.

    The estimate of first order for each position (and head) of each step: the gradient of the number at the run on
    `text`, times the difference of the values. `regard.trace.edits.patch` makes the exact change, one run for each.

    Parameters
    ----------
    model : Model
    text, corrupted : str, Encoding or ids
        Of the same number of tokens.
    to, versus, score
        The number, as in `attribute`.
    at : str or iterable of str
        Names of the steps; ``*`` as for `Trace`.
    checkpoint : bool
        As in `TextModel.gradients`.

    Raises
    ------
    RegardError
        The texts differ in their number of tokens; a name matches no step; or `to` is not one token.

    References
    ----------
    Nanda (2023), "Attribution patching", https://www.neelnanda.io/mechanistic-interpretability/attribution-patching.
    Syed, Rager and Conmy (2023), "Attribution patching outperforms automated circuit discovery",
    https://arxiv.org/abs/2310.10348.
    """
    clean, other = same_length(model, text, corrupted, to)
    metric = attributed_metric(model, clean, to, versus, score)
    gradient_run = model.gradients([clean], metric.compute, at=at, checkpoint=checkpoint)
    trace = Trace(only=at)
    run_traced(model, [other], trace)
    effects = Trace()
    effects.set_metadata(model.name, (clean,))
    for name in gradient_run.gradients.names():
        change = (trace[name].astype(np.float64) - gradient_run.values[name]) * gradient_run.gradients[name]
        effects(name, change.sum(-1), gradient_run.gradients.axes(name).rpartition(" ")[0])
    return PatchingEffects(metric.name, gradient_run.value, float(metric.compute(model([other]))), effects)
