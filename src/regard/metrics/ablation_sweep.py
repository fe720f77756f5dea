"""What each head of a model is needed for, over many texts: a run without it, for every head."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.frames import Tabular
from regard._utils.validation import function, one_of, whole_number
from regard.metrics.activation_patching import (
    PatchMetric,
    check_has_blocks,
    input_of,
    measured_runs,
    recorded_run,
    sites_from,
)
from regard.metrics.attribution_target import predicts_at_each_token
from regard.metrics.heads import count_texts
from regard.models.batch import OneText
from regard.models.corpus import check_texts
from regard.models.gradients import language_loss
from regard.nn.decoder import require_maps
from regard.trace.notebook_html import page, picture


@dataclass(frozen=True, eq=False)
class AblationSweep(Tabular):
    """A number of each text, with all heads and without each of them.

    Parameters
    ----------
    metric : str
        The number in words.
    values : array, ``N L H``
        That of each text without one head.
    baselines : array, ``N``
        That of each text with all heads.
    """

    metric: str
    values: np.ndarray
    baselines: np.ndarray

    @property
    def effects(self) -> np.ndarray:
        """What changes without each head, ``N L H``: `values` minus `baselines`."""
        return np.asarray(self.values - self.baselines[:, None, None])

    def to_columns(self) -> dict[str, np.ndarray]:
        """Return a row for each head of each text: ``text``, ``layer``, ``head``, ``value`` and ``effect``."""
        places = dict(zip(("text", "layer", "head"), (x.ravel() for x in np.indices(self.values.shape)), strict=True))
        return places | {"value": self.values.ravel(), "effect": self.effects.ravel()}

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the mean size of the effect of each head, and where it is largest."""
        sizes = np.abs(self.effects).mean(0)
        layer, head = np.unravel_index(sizes.argmax(), sizes.shape)
        most = f"most without L{layer}H{head}: {sizes[layer, head]:.3g}"
        return page(
            repr(self)[1:-1],
            picture([sizes / (sizes.max() or 1)], f"mean size of the effect, layers down, {most}", cell=10),
            try_next=("sweep.effects.mean(0)", "sweep.to_frame()"),
        )

    def __repr__(self) -> str:
        count, layers, heads = self.values.shape
        return f"<AblationSweep of {count_texts(count)}, {layers} × {heads} heads: {self.metric}>"


def ablation_sweep(
    model: Any,
    texts: Iterable[OneText],
    metric: PatchMetric | Literal["loss"] = "loss",
    *,
    by: Literal["zero", "mean"] = "zero",
    batch_size: int = 64,
    progress: Callable[[int, int], None] | None = None,
) -> AblationSweep:
    """Return a number of each text without each head: all heads of all layers, each ablated alone.

    The heads of a layer are texts of a batch. In a decoder a run starts at the layer that changes, from the residual
    stream of the run with all heads, so that no layer before it is computed again.

    Parameters
    ----------
    model : Model
    texts : iterable of str, encodings or ids
    metric
        ``"loss"``, of a decoder: the mean cross-entropy of each next token, in nats. Or as for `patch_grid`.
    by : {"zero", "mean"}
        Replace the context of a head by 0, or by its mean over the tokens of the text, as `ablate` does.
    batch_size : int
        How many heads run together.
    progress : function, optional
        Called with how many texts are done and how many there are.

    Raises
    ------
    RegardError
        There is no text, the metric is not one number, or it is the loss of a model that predicts no next token.

    References
    ----------
    Michel et al. (2019), "Are sixteen heads really better than one?", https://arxiv.org/abs/1905.10650.

    Examples
    --------
    >>> import regard
    >>> sweep = ablation_sweep(regard.load("induction"), ["qzkfqzk", "abcabc"])
    >>> sweep.effects.mean(0).shape  # L H
    (2, 4)
    """
    check_has_blocks(model)
    require_maps(model, "an ablation of all heads")
    one_of("by", by, ("zero", "mean"))
    batch_size = whole_number("batch_size", batch_size, 1)
    check_texts(texts)
    function("progress", progress)
    is_loss = isinstance(metric, str) and metric == "loss"
    if is_loss and not predicts_at_each_token(model):
        raise RegardError(f"{model.name} predicts no next token, whose loss could be taken: give a metric")
    sources, layers, heads = list(texts), len(model.blocks), model.config.num_heads
    if not sources:
        raise RegardError("there is no text; give at least one")
    values, baselines, name = np.empty((len(sources), layers, heads)), np.empty(len(sources)), ""
    for n, source in enumerate(sources):
        try:
            text = input_of(model, source, metric)
            output, trace = recorded_run(model, text, ("blocks.*.output", "blocks.*.attn.context"))
            runs = measured_runs(model, text, output, output, language_loss if is_loss else metric)
        except RegardError as error:
            raise RegardError(f"text {n}: {error}") from error
        name, baselines[n] = "loss" if is_loss else runs.name, runs.baselines[1]
        for i in range(layers):
            step = f"blocks.{i}.attn.context"
            context = trace[step][0]  # H T Dv
            replacement = context.mean(-2, keepdims=True) if by == "mean" else np.zeros_like(context[:, :1])
            for first in range(0, heads, batch_size):
                batch = np.arange(first, min(first + batch_size, heads))
                read = runs.run(trace, i, len(batch), {step: sites_from(replacement, batch)})
                values[n, i, batch] = runs.compute(read)
        if progress is not None:
            progress(n + 1, len(sources))
    return AblationSweep(name, values, baselines)
