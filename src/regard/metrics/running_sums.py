"""Running sums over many texts, and the file from which an interrupted run continues."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._version import __version__
from regard.formats.safetensors import SafetensorsFile, write_safetensors
from regard.metrics.heads import HeadMetrics, head_metrics
from regard.metrics.registry import METRICS, MetricFunction
from regard.models.batch import OneText
from regard.models.corpus import check_texts, encode
from regard.models.output import run_traced
from regard.text.encoding import Encoding
from regard.text.words import join_names
from regard.trace import Trace

_FORMAT = "regard: head metrics of a corpus, running sums, 2"
_ARRAYS = ("count", "total", "squares")
_LIMBS = 3
_LOW_BITS = (1 << 32) - 1
_SECONDS = 5.0  # between two times that the file is written
_PROBE_TOKENS = 64


@dataclass(frozen=True, eq=False)
class RunningMean:
    """Running mean and variance of arrays in which NaN is not a value.

    Sums are exact, in whole numbers of 2⁻⁶⁴, to which each value and each square is rounded: the bits of the result
    depend neither on the order of the values nor on how they are divided among processes. A sum is less than 2⁶³.
    """

    count: np.ndarray = field(default_factory=lambda: np.zeros((), np.int64))
    total: np.ndarray = field(default_factory=lambda: np.zeros(_LIMBS, np.int64))  # ... 3: in units of 1, 2⁻³², 2⁻⁶⁴
    squares: np.ndarray = field(default_factory=lambda: np.zeros(_LIMBS, np.int64))

    def add(self, values: np.ndarray) -> RunningMean:
        """Return the running mean with one more array of values."""
        has_value = np.isfinite(values)
        present = np.where(has_value, values, 0).astype(np.float64)
        return self.merge(RunningMean(has_value.astype(np.int64), _fixed_point(present), _fixed_point(present**2)))

    def merge(self, other: RunningMean) -> RunningMean:
        """Return the running mean of the values of both."""
        sums = (_carried(getattr(self, name) + getattr(other, name)) for name in ("total", "squares"))
        return RunningMean(self.count + other.count, *sums)

    @property
    def mean(self) -> np.ndarray:
        """The mean, rounded once; 0 where there is no value."""
        return _each(lambda count, total, _: float(total / max(count, 1)), self)

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviation of a sample; NaN of fewer than two values."""

        def one(count: int, total: Fraction, squares: Fraction) -> float:
            if count < 2:
                return math.nan
            return math.sqrt(max(0.0, float((squares - total * total / count) / (count - 1))))

        return _each(one, self)


def _fixed_point(values: np.ndarray) -> np.ndarray:
    """Return floats, ``...``, as whole numbers of 1, 2⁻³² and 2⁻⁶⁴, ``... 3``."""
    whole = np.floor(values)
    middle = np.floor((values - whole) * 2**32)
    low = np.rint(((values - whole) * 2**32 - middle) * 2**32)
    return np.stack([whole, middle, low], axis=-1).astype(np.int64)


def _carried(limbs: np.ndarray) -> np.ndarray:
    """Return the same numbers with the lower limbs in 0 to 2³²."""
    whole, middle, low = np.moveaxis(limbs, -1, 0)
    middle = middle + (low >> 32)
    return np.stack([whole + (middle >> 32), middle & _LOW_BITS, low & _LOW_BITS], axis=-1)


def _each(function: Callable[[int, Fraction, Fraction], float], sums: RunningMean) -> np.ndarray:
    """Return a function of count, sum and sum of squares of each element, which are exact."""
    limbs = (np.broadcast_to(x, (*sums.count.shape, _LIMBS)).reshape(-1, _LIMBS) for x in (sums.total, sums.squares))
    totals, squares = ([_fraction(*map(int, each)) for each in x] for x in limbs)
    numbers = map(function, map(int, sums.count.reshape(-1)), totals, squares)
    return np.fromiter(numbers, np.float64, sums.count.size).reshape(sums.count.shape)


def _fraction(whole: int, middle: int, low: int) -> Fraction:
    return Fraction((whole << 64) + (middle << 32) + low, 1 << 64)


@dataclass(frozen=True, eq=False)
class Sums:
    """The running means of all metrics after some texts. Never changed in place: an interrupt leaves it whole."""

    done: int = 0  # texts
    layers: tuple[str, ...] = ()
    means: dict[str, RunningMean] = field(default_factory=lambda: {name: RunningMean() for name in METRICS})

    def add(self, text_metrics: HeadMetrics) -> Sums:
        """Return the sums with one more text."""
        before = self.means | dict.fromkeys(text_metrics.values.keys() - self.means.keys(), RunningMean())
        means = {name: before[name].add(values[0]) for name, values in text_metrics.values.items()}
        return Sums(self.done + 1, text_metrics.layers, means)

    def merge(self, other: Sums) -> Sums:
        """Return the sums of the texts of both."""
        means = {name: each.merge(other.means[name]) for name, each in self.means.items()}
        return Sums(self.done + other.done, self.layers or other.layers, means)


class SumsFile:
    """The file of the sums of one run.

    Parameters
    ----------
    path : path
    identity : mapping of str to str
        What the run is, as `run_identity` has it.
    metrics : iterable of str
        The names of its metrics.
    """

    def __init__(
        self, path: str | os.PathLike[str], identity: Mapping[str, str], metrics: Iterable[str] = METRICS
    ) -> None:
        self.path, self.identity, self.metrics = Path(path), dict(identity), tuple(metrics)
        self._written = time.monotonic()

    def is_due(self) -> bool:
        """Tell whether it is time to write the file again."""
        return time.monotonic() - self._written >= _SECONDS

    def write(self, sums: Sums) -> None:
        """Replace the file."""
        arrays = {f"{name}.{kind}": getattr(each, kind) for name, each in sums.means.items() for kind in _ARRAYS}
        state = {"format": _FORMAT, "done": str(sums.done), "layers": json.dumps(sums.layers)}
        write_safetensors(self.path, arrays, state | self.identity)
        self._written = time.monotonic()

    def read(self) -> Sums:
        """Return the sums in the file; those of no text where there is none.

        Raises
        ------
        RegardError
            It is of another run, or damaged.
        """
        if not self.path.exists():
            return Sums()
        try:
            file = SafetensorsFile(self.path)
        except RegardError as error:
            if isinstance(error.__cause__, OSError):
                raise
            raise self._other_file() from error
        metadata = file.metadata
        names = {f"{name}.{kind}" for name in self.metrics for kind in _ARRAYS}
        if metadata.get("format") != _FORMAT or not metadata.get("done", "").isdecimal():
            raise self._other_file()
        if other := [name for name, value in self.identity.items() if metadata.get(name) != value]:
            if "texts" in other:  # by the first of which the model is known
                other = [name for name in other if name != "model"]
            raise RegardError(
                f"{self.path} is of an interrupted run with other {join_names(other)}: repeat that run as it was, or "
                "remove the file"
            )
        if set(file) != names or not _fit_together(file, self.metrics):
            raise RegardError(f"{self.path} is damaged: remove it")
        means = {name: RunningMean(*(np.array(file[f"{name}.{kind}"]) for kind in _ARRAYS)) for name in self.metrics}
        return Sums(int(metadata["done"]), tuple(json.loads(metadata["layers"])), means)

    def _other_file(self) -> RegardError:
        return RegardError(f"{self.path} is not a file of running sums: move it away, or resume from another")


def _fit_together(file: Mapping[str, Any], metrics: Iterable[str]) -> bool:
    """Tell whether all arrays are of the same heads."""
    shapes = {(*file[f"{name}.count"].shape, _LIMBS) for name in metrics}
    return {file[f"{name}.{kind}"].shape for name in metrics for kind in _ARRAYS[1:]} == shapes and len(shapes) == 1


def remove_sums(path: str | os.PathLike[str]) -> None:
    """Remove the file of a run that has ended."""
    try:
        Path(path).unlink(missing_ok=True)
    except OSError as error:
        raise RegardError(f"cannot remove {path}: {error.strerror or error}") from error


def run_identity(
    model: Any,
    texts: Iterable[OneText],
    options: Mapping[str, object],
    own: Mapping[str, MetricFunction] | None = None,
) -> dict[str, str]:
    """Return what decides the bits of a result, by the word that an error has for it.

    The model is known by the metrics of its heads on the first text, those of `own` among them: they have the bits of
    its weights, and of how this machine computes them.

    Raises
    ------
    RegardError
        The texts cannot be read twice, or the first one cannot be run.
    """
    check_texts(texts)
    if isinstance(texts, Iterator) or not isinstance(texts, Sized):
        raise RegardError("resume= needs texts that can be read twice, such as a list, got an iterator")
    digest, model_digest = hashlib.sha256(), hashlib.sha256()
    for text in texts:
        content: object = (text.ids, text.special_tokens_mask) if isinstance(text, Encoding) else text
        content = text.tolist() if isinstance(text, np.ndarray) else content
        digest.update(f"{content!r}\n".encode("utf-8", "surrogatepass"))
    for text in texts:
        encoding = encode(model, 0, text, True)
        probe = encoding.truncated(_PROBE_TOKENS) if len(encoding) > _PROBE_TOKENS else encoding
        metrics = head_metrics(run_traced(model, [probe], Trace(only="*attn.weights", maps=True)), own=own)
        for values in metrics.values.values():
            model_digest.update(values.tobytes())
        break
    return {
        "texts": digest.hexdigest(),
        "model": f"{type(model).__name__} {model_digest.hexdigest()}",
        "options": json.dumps(options, sort_keys=True, default=int),
        "version of regard": __version__,
    }
