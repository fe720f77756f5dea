"""Head metrics over many texts: running means with confidence intervals."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.frames import Tabular, make_dataset
from regard._utils.validation import finite_number, one_of
from regard.metrics.heads import HeadMetrics, count_texts, described, head_metrics, metric_functions, metrics_html
from regard.metrics.layer_maps import layer_numbers
from regard.metrics.registry import MetricFunction
from regard.metrics.running_sums import Sums, SumsFile, remove_sums, run_identity
from regard.models.base import TextModel
from regard.models.batch import OneText
from regard.models.corpus import Progress
from regard.models.images.model import ImageModel


@dataclass(frozen=True, eq=False)
class CorpusHeadMetrics(Tabular):
    """The metrics of each head over many texts, each of which counts once: arrays ``L H``.

    Parameters
    ----------
    layers : tuple of str, L
    counts : mapping of str to array
        By metric: how many texts have it, those in which some row counts.
    means : mapping of str to array
        Their mean; NaN where there is none.
    deviations : mapping of str to array
        Their standard deviation; NaN where there are fewer than two.
    """

    layers: tuple[str, ...]
    counts: Mapping[str, np.ndarray]
    means: Mapping[str, np.ndarray]
    deviations: Mapping[str, np.ndarray]

    def __repr__(self) -> str:
        """Return the number of texts, the sizes and the names of the metrics."""
        return f"<CorpusHeadMetrics over {count_texts(self._texts)}, {described(self.as_head_metrics())}>"

    @classmethod
    def of_sums(cls, sums: Sums) -> CorpusHeadMetrics:
        """Return the metrics of the texts in running sums."""
        counts = {name: each.count for name, each in sums.means.items()}
        means = {name: np.where(counts[name] > 0, each.mean, np.nan) for name, each in sums.means.items()}
        return cls(sums.layers, counts, means, {name: each.deviation for name, each in sums.means.items()})

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: each mean as a map of layers and heads."""
        return metrics_html(self.as_head_metrics(), f"Means over {count_texts(self._texts)}")

    def interval(self, name: str, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the confidence interval of the mean of a metric, by the normal approximation: for 30 texts and more.

        It is about texts drawn as these were, and says nothing about others.
        """
        one_of("name", name, self.means)
        if not 0 < finite_number("level", level) < 1:
            raise RegardError(f"level must be between 0 and 1, got {level!r}")
        half = NormalDist().inv_cdf((1 + level) / 2) * self.deviations[name] / np.sqrt(np.maximum(self.counts[name], 1))
        return self.means[name] - half, self.means[name] + half

    def as_head_metrics(self) -> HeadMetrics:
        """Return the means as the metrics of one text, for tables and labels."""
        return HeadMetrics(self.layers, {name: mean[None] for name, mean in self.means.items()})

    def to_columns(self) -> dict[str, np.ndarray]:
        """Return a row for each head: ``layer``, ``head``, and of each metric mean, 95% interval, number of texts."""
        layers, heads = np.indices(self.means["entropy"].shape)
        columns = {"layer": np.array(layer_numbers(self.layers))[layers.ravel()], "head": heads.ravel()}
        for name, mean in self.means.items():
            low, high = self.interval(name)
            columns |= {name: mean.ravel(), f"{name}_low": low.ravel(), f"{name}_high": high.ravel()}
            columns[f"{name}_texts"] = self.counts[name].ravel()
        return columns

    def to_xarray(self) -> Any:
        """Return the columns of `to_columns` as an ``xarray.Dataset`` of ``L H``; ``layer`` is a coordinate."""
        columns, shape = self.to_columns(), self.means["entropy"].shape
        del columns["layer"], columns["head"]
        variables = {name: ("L H", values.reshape(shape)) for name, values in columns.items()}
        return make_dataset(variables, {"layer": ("L", np.array(self.layers))})

    @property
    def _texts(self) -> int:
        return max(int(count.max(initial=0)) for count in self.counts.values())


def corpus_head_metrics(
    model: Any,
    texts: Iterable[OneText],
    *,
    batch_size: int = 32,
    truncate: bool = False,
    progress: Progress | None = None,
    resume: str | os.PathLike[str] | None = None,
    own: Mapping[str, MetricFunction] | None = None,
) -> CorpusHeadMetrics:
    """Return the metrics of every head over many texts or pictures, in memory that does not grow with their number.

    Parameters
    ----------
    model : Model
    texts, batch_size, truncate, progress
        As `TextModel.iter_traces` takes them; of pictures, as `ImageModel.iter_traces` does.
    resume : path, optional
        A file that holds the running sums while this runs: written every few seconds and at an interrupt, removed at
        the end. A call with the same arguments after an interrupt, or a kill, continues from it, with the bits of a run
        that was not interrupted. It needs texts that can be read twice, such as a list.
    own : mapping of str to function, optional
        Other metrics by name, as `head_metrics` takes them.

    Raises
    ------
    RegardError
        There is no text, or one cannot be run; or `resume` is the file of other texts, options, or another model.

    Examples
    --------
    >>> import regard
    >>> found = corpus_head_metrics(regard.load("induction"), ["qzkfqz", "abcabc", "kqxkqx"])
    >>> found.means["induction"].shape, int(found.counts["induction"].max())
    ((2, 4), 3)
    """
    options: Any = {"batch_size": batch_size, "truncate": truncate, "progress": progress}
    metrics = measure_corpus(model, texts, resume=resume, own=own, **options)
    if resume is not None:
        remove_sums(resume)
    return metrics


def measure_corpus(
    model: Any,
    texts: Iterable[OneText],
    *,
    batch_size: int = 32,
    truncate: bool = False,
    progress: Progress | None = None,
    resume: str | os.PathLike[str] | None = None,
    own: Mapping[str, MetricFunction] | None = None,
) -> CorpusHeadMetrics:
    """Return what `corpus_head_metrics` does, and leave the file `resume`: for a caller that stores the result."""
    options: dict[str, Any] = {"batch_size": batch_size, "truncate": truncate}
    functions = metric_functions(own)
    if not isinstance(resume, str | os.PathLike | None):
        raise RegardError(f"resume= is the path of a file, got {resume!r}")
    if isinstance(model, ImageModel):
        if truncate or resume is not None:
            raise RegardError(f"{'truncate=' if truncate else 'resume='} is for texts: leave it out for pictures")
        del options["truncate"]
    elif not isinstance(model, TextModel):
        raise RegardError(
            "a corpus is run by a model of texts or of pictures; of a CLIP, by model.text or model.vision"
        )
    file = None if resume is None else SumsFile(resume, run_identity(model, texts, options, own), functions)
    sums = Sums() if file is None else file.read()
    arguments: Any = {**options, "progress": progress, "skip": sums.done}
    try:
        for _, trace in model.iter_traces(texts, only="*attn.weights", **arguments):
            sums = sums.add(head_metrics(trace, own=own))
            if file is not None and file.is_due():
                file.write(sums)
    finally:
        if file is not None and sums.done:
            file.write(sums)
    if not sums.done:
        raise RegardError(f"there is no {'picture' if isinstance(model, ImageModel) else 'text'}; give at least one")
    return CorpusHeadMetrics.of_sums(sums)
