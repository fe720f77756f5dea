"""Running sums over many texts, and the file from which an interrupted run continues."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._version import __version__
from regard.formats.safetensors import SafetensorsFile, write_safetensors
from regard.metrics.heads import HeadMetrics, head_metrics
from regard.metrics.registry import METRICS
from regard.models.base import run_traced, truncated
from regard.models.corpus import check_texts, encode
from regard.text.encoding import Encoding
from regard.text.words import join_names
from regard.trace import Trace

_FORMAT = "regard: head metrics of a corpus, running sums, 1"
_ARRAYS = ("count", "mean", "squares")
_SECONDS = 5.0  # between two times that the file is written
_PROBE_TOKENS = 64


@dataclass(frozen=True, eq=False)
class RunningMean:
    """Running mean and variance of arrays in which NaN is no value.

    Welford (1962), "Note on a method for calculating corrected sums of squares and products", Technometrics 4.
    """

    count: np.ndarray = field(default_factory=lambda: np.zeros((), np.int64))
    mean: np.ndarray = field(default_factory=lambda: np.zeros(()))
    squares: np.ndarray = field(default_factory=lambda: np.zeros(()))  # of the differences from the mean

    def add(self, values: np.ndarray) -> RunningMean:
        """Return the running mean with one more array of values."""
        has_value = np.isfinite(values)
        count = self.count + has_value
        change = np.where(has_value, values - self.mean, 0)
        mean = self.mean + change / np.maximum(count, 1)
        return RunningMean(count, mean, self.squares + change * np.where(has_value, values - mean, 0))

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviation of a sample."""
        found = np.sqrt(self.squares / np.maximum(self.count - 1, 1))
        return np.where(self.count > 1, found, np.nan)


@dataclass(frozen=True, eq=False)
class Sums:
    """The running means of all metrics after some texts. Never changed in place: an interrupt leaves it whole."""

    done: int = 0  # texts
    layers: tuple[str, ...] = ()
    means: Mapping[str, RunningMean] = field(default_factory=lambda: {name: RunningMean() for name in METRICS})

    def add(self, found: HeadMetrics) -> Sums:
        """Return the sums with one more text."""
        means = {name: each.add(found.values[name][0]) for name, each in self.means.items()}
        return Sums(self.done + 1, found.layers, means)


class SumsFile:
    """The file of the sums of one run.

    Parameters
    ----------
    path : path
    identity : mapping of str to str
        What the run is, as `run_identity` has it.
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, str]) -> None:
        self.path, self.identity = Path(path), dict(identity)
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
        file = SafetensorsFile(self.path)
        known = file.metadata
        names = {f"{name}.{kind}" for name in METRICS for kind in _ARRAYS}
        if known.get("format") != _FORMAT or not known.get("done", "").isdecimal():
            raise RegardError(f"{self.path} is not a file of running sums: move it away, or resume from another")
        if other := [name for name, value in self.identity.items() if known.get(name) != value]:
            if "texts" in other:  # by the first of which the model is known
                other = [name for name in other if name != "model"]
            raise RegardError(
                f"{self.path} is of an interrupted run with other {join_names(other)}: repeat that run as it was, or "
                "remove the file"
            )
        if set(file) != names or len({file[name].shape for name in names}) != 1:
            raise RegardError(f"{self.path} is damaged: remove it")
        means = {name: RunningMean(*(np.array(file[f"{name}.{kind}"]) for kind in _ARRAYS)) for name in METRICS}
        return Sums(int(known["done"]), tuple(json.loads(known["layers"])), means)


def remove_sums(path: str | os.PathLike[str]) -> None:
    """Remove the file of a run that has ended."""
    try:
        Path(path).unlink(missing_ok=True)
    except OSError as error:
        raise RegardError(f"cannot remove {path}: {error.strerror or error}") from error


def run_identity(model: Any, texts: Iterable[str | Encoding], options: Mapping[str, object]) -> dict[str, str]:
    """Return what decides the bits of a result, by the word that an error has for it.

    The model is known by the metrics of its heads on the first text: they have the bits of its weights, and of how
    this machine computes them.

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
        content = (text.ids, text.special_tokens_mask) if isinstance(text, Encoding) else text
        digest.update(f"{content!r}\n".encode("utf-8", "surrogatepass"))
    for text in texts:
        encoding = encode(model, 0, text, True)
        probe = truncated(encoding, _PROBE_TOKENS) if len(encoding) > _PROBE_TOKENS else encoding
        found = head_metrics(run_traced(model, [probe], Trace(only="*attn.weights", maps=True)))
        for values in found.values.values():
            model_digest.update(values.tobytes())
        break
    return {
        "texts": digest.hexdigest(),
        "model": f"{type(model).__name__} {model_digest.hexdigest()}",
        "options": json.dumps(options, sort_keys=True, default=int),
        "version of regard": __version__,
    }
