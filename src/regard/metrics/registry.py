"""The registry of head metrics: each is one function of some rows of weights, with its entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from regard.trace.map_statistics import row_entropy

Rows: TypeAlias = tuple[np.ndarray, np.ndarray]
"""A value for each head and row, ``H R``, and which rows count, ``R``. A metric is the mean over rows that count."""


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some rows of the self-attention of one layer."""

    rows: np.ndarray  # R, query positions
    weights: np.ndarray  # H R S, in float64
    ids: np.ndarray | None = None  # S, the vocabulary index of each token; None where the trace has no tokens
    is_special: np.ndarray | None = None  # S, whether a token is a special one; None as for `ids`
    is_punctuation: np.ndarray | None = None  # S, whether a token consists of punctuation marks; None as for `ids`

    @cached_property
    def keys(self) -> np.ndarray:
        """The positions of the keys, ``S``."""
        return np.arange(self.weights.shape[-1])

    @cached_property
    def num_attended(self) -> np.ndarray:
        """How many keys have a weight above 0, ``H R``."""
        return np.asarray(np.count_nonzero(self.weights, axis=-1))

    @cached_property
    def entropy(self) -> np.ndarray:
        """−Σ w log w of each row in nats, ``H R``."""
        return np.asarray(row_entropy(np, self.weights))

    @cached_property
    def is_sink(self) -> np.ndarray:
        """Where the first token and special tokens are, ``S``."""
        first = self.keys == 0
        return first if self.is_special is None else np.asarray(first | self.is_special)

    @cached_property
    def repeats(self) -> np.ndarray:
        """Which keys are earlier occurrences of the row's token, ``R S``; special tokens have none."""
        if self.ids is None or self.is_special is None:
            return np.zeros((len(self.rows), len(self.keys)), dtype=bool)
        queries = np.where(self.is_special, -1, self.ids)[self.rows, None]
        return np.asarray((queries == self.ids) & (self.keys < self.rows[:, None]) & ~self.is_special)

    def weighted_sum(self, values: np.ndarray) -> np.ndarray:
        """Return Σ w · value over the keys, ``H R``, for values ``R S``."""
        return np.asarray(np.einsum("hrs,rs->hr", self.weights, values.astype(np.float64)))


MetricFunction: TypeAlias = Callable[[RowBlock], Rows]


@dataclass(frozen=True)
class Metric:
    """The entry of a head metric.

    Parameters
    ----------
    name : str
        That of its function: the attribute of `HeadMetrics`, the key in JSON, the choice of ``regard heads --sort``.
    title, unit, description, caveat, paper : str
        For tables and pages. The caveat says what a high or low value does not show.
    function
        From a `RowBlock` to the values of its rows and which of them count.
    format : str
        Format specification of a value in a table.
    label_from : float or None
        The value from which a head is labelled with this metric, see `HeadMetrics.label`.
    is_listed : bool
        Whether tables and pages show it.
    """

    name: str
    title: str
    unit: str
    description: str
    function: MetricFunction
    caveat: str = ""
    paper: str = ""
    format: str = ".2f"
    label_from: float | None = None
    is_listed: bool = True


METRICS: dict[str, Metric] = {}
"""Every head metric by its name, in the order in which tables show them."""


def metric(title: str, unit: str, description: str, **fields: Any) -> Callable[[MetricFunction], MetricFunction]:
    """Enter a function in `METRICS`, under its name; `fields` are others of `Metric`: caveat, format, …."""

    def enter(function: MetricFunction) -> MetricFunction:
        METRICS[function.__name__] = Metric(function.__name__, title, unit, description, function, **fields)
        return function

    return enter


def listed_metrics() -> tuple[Metric, ...]:
    """Return the metrics that tables and pages show, in order."""
    return tuple(entry for entry in METRICS.values() if entry.is_listed)
