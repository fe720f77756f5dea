"""What every head does, in a few numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.metrics.layer_maps import encoding_of, entries_of, layers_of
from regard.text.encoding import Encoding
from regard.trace import Trace

MEASURES = ("entropy", "distance", "sink", "previous", "duplicate", "induction")
"""The names of the measures, in the order in which they are told."""


@dataclass(frozen=True, eq=False)
class HeadMetrics:
    """Measures of each head on each text: arrays of float64 with the axes ``B L H``, NaN where a text has no such case.

    Parameters
    ----------
    layers : tuple of str, L
        ``blocks.3.attn``.
    entropy
        −Σ w log w of a row in nats, the mean over rows: 0 where each token looks at one. (Clark et al. 2019.)
    evenness
        Entropy as a share of the most that there could be: the log of how many keys a row gives any weight to. A first
        token that sees itself alone does not count.
    distance
        How many positions away a token looks on average: ``Σ w |i − j|``. (Vig and Belinkov 2019.)
    sink
        The weight that goes to the first token and to special ones, and what a row lacks of 1 because a sink of the
        model's own takes it; the mean over the rows of the other tokens. (Xiao et al. 2023; Clark et al. 2019.)
    previous
        The weight on the token just before, the mean over all rows but the first.
    duplicate
        The weight on earlier occurrences of the same token, the mean over tokens that have one. (Wang et al. 2022.)
    induction
        The weight on tokens that came right after an earlier occurrence of the same token, the mean over tokens that
        have one: the prefix-matching score. (Olsson et al. 2022.)

    References
    ----------
    Clark et al. (2019), "What does BERT look at?", https://arxiv.org/abs/1906.04341. Vig and Belinkov (2019),
    "Analyzing the structure of attention in a transformer language model", https://arxiv.org/abs/1906.04284. Xiao et
    al. (2023), "Efficient streaming language models with attention sinks", https://arxiv.org/abs/2309.17453. Wang et
    al. (2022), "Interpretability in the wild", https://arxiv.org/abs/2211.00593. Olsson et al. (2022), "In-context
    learning and induction heads", https://arxiv.org/abs/2209.11895.
    """

    layers: tuple[str, ...]
    entropy: np.ndarray
    evenness: np.ndarray
    distance: np.ndarray
    sink: np.ndarray
    previous: np.ndarray
    duplicate: np.ndarray
    induction: np.ndarray

    def word(self, batch: int, layer: int, head: int) -> str:
        """Return a word for what a head mostly does, "" where none stands out: an aid to the eye, no finding.

        Of what takes the larger part of the weight, the rarer first: ``induction``, ``duplicate`` and ``previous``
        from 0.4 on, ``sink`` from 0.5; else ``broad`` from nine tenths of the largest entropy on, and
        ``narrow`` below a quarter.
        """
        at = (batch, layer, head)
        for name, least in (("induction", 0.4), ("duplicate", 0.4), ("previous", 0.4), ("sink", 0.5)):
            if getattr(self, name)[at] >= least:
                return name
        if self.evenness[at] >= 0.9:
            return "broad"
        return "narrow" if self.evenness[at] < 0.25 else ""


def head_metrics(trace: Trace) -> HeadMetrics:
    """Return the measures of every head, from the trace of a run.

    Parameters
    ----------
    trace : Trace
        With the weights of every layer: ``Trace(maps=True)``, where a map is gone through in strips and never held, or
        ``Trace(only="*attn.weights")``.

    Raises
    ------
    RegardError
        The trace has no such weights.
    """
    found = []
    for batch in range(entries_of(trace)):
        cases = Cases(encoding_of(trace, batch))
        layers = layers_of(trace, batch)
        found.append([measured(layer.strips(), layer.length, cases) for layer in layers])
    if not found:
        layers_of(trace, 0)  # says what is missing
    numbers = np.moveaxis(np.array(found), -2, 0)  # measure, B, L, H
    return HeadMetrics(tuple(layer.name for layer in layers), *numbers)


def repeated_tokens(model: Any, *, length: int = 64, seed: int = 0) -> HeadMetrics:
    """Return the measures of every head on random tokens that come twice: the sequence, and the same once more.

    Nothing but the repetition can be learned from such a text, so what a head does there it does by position or by
    looking for the same token. A language model's induction heads show in the last column.

    Parameters
    ----------
    model
        A model of regard.
    length : int
        Tokens of the sequence, which are drawn from the vocabulary without the special ones.
    seed : int

    References
    ----------
    Olsson et al. (2022), "In-context learning and induction heads", https://arxiv.org/abs/2209.11895.
    """
    rng = np.random.default_rng(whole_number("seed", seed, 0))
    size = getattr(model.config, "vocab_size", None)
    if size is None:
        raise RegardError(f"{model.name} has no vocabulary to draw from")
    drawn: list[int] = []
    wanted = whole_number("length", length, 1)
    for _ in range(100):
        ids = rng.integers(0, size, 2 * wanted).tolist()
        drawn += [i for i in ids if not _is_special(model.tokenizer, i)]
        if len(drawn) >= wanted:
            break
    else:
        raise RegardError(f"the vocabulary of {model.name} has hardly a token that is not special")
    around = model.tokenizer("")  # what the tokenizer puts before a text, and behind it where it puts several
    before, behind = around.ids[:1], around.ids[1:]
    trace = Trace(maps=True, only="*attn.weights")
    model(np.array([*before, *drawn[:wanted], *drawn[:wanted], *behind]), trace=trace)
    return head_metrics(trace)


def _is_special(tokenizer: Any, token: int) -> bool:
    try:
        return any(tokenizer.from_ids([token]).special)
    except RegardError:  # a row of the embeddings that no token has
        return True


class Cases:
    """Which keys are sinks, duplicates and what follows those, for the rows of one text."""

    def __init__(self, encoding: Encoding | None) -> None:
        self._ids = None if encoding is None else np.array(encoding.ids)
        self._special = None if encoding is None else np.array(encoding.special, dtype=bool)

    def sinks(self, length: int) -> np.ndarray:
        """Return where the first token and special ones are, ``S``."""
        sinks: np.ndarray = np.arange(length) == 0
        return sinks if self._special is None else np.asarray(sinks | self._special)

    def duplicates(self, rows: np.ndarray, length: int) -> np.ndarray:
        """Return which keys are earlier occurrences of each row's token, ``R S``; special tokens have none."""
        if self._ids is None or self._special is None:
            return np.zeros((len(rows), length), dtype=bool)
        queries = np.where(self._special, -1, self._ids)[rows, None]
        earlier = np.arange(length) < rows[:, None]
        return np.asarray((queries == self._ids) & earlier & ~self._special)


def measured(strips: Iterable[tuple[np.ndarray, np.ndarray]], length: int, cases: Cases) -> np.ndarray:
    """Return the measures of one layer, as `HeadMetrics` lists them, ``7 H``.

    `strips` are which rows, ``R``, and their weights in float64, ``H R S``: all rows of a text, or some of them.
    """
    sinks = cases.sinks(length)
    sums: Any = [0.0] * 7
    counts = np.zeros(7)
    for at, weights in strips:
        entropy = -np.sum(weights * np.log(np.where(weights > 0, weights, 1)), axis=-1)
        seen = np.count_nonzero(weights, axis=-1)
        most = np.log(np.maximum(seen, 2))
        away = np.abs(np.arange(length) - at[:, None])
        distance = np.einsum("hrs,rs->hr", weights, away.astype(np.float64))
        lacking = np.where(seen > 0, np.maximum(1 - weights.sum(-1), 0), 0)  # a row that sees nothing gives nothing
        sink = weights[..., sinks].sum(-1) + lacking
        behind_first = at > 0
        previous = weights[:, np.arange(len(at)), np.maximum(at - 1, 0)]
        same = cases.duplicates(at, length)
        followed = np.zeros_like(same)
        followed[:, 1:] = same[:, :-1]  # right after an earlier occurrence …
        followed[np.arange(len(at)), at] = False  # … and not the token itself
        each = np.ones(len(at), dtype=bool)
        has_choice = (at > 0) | (seen > 1).any(0)  # the first token of a causal model sees itself alone
        told = (
            (entropy, each),
            (entropy / most, has_choice),
            (distance, each),
            (sink, ~sinks[at]),
            (previous, behind_first),
            (np.einsum("hrs,rs->hr", weights, same.astype(np.float64)), same.any(-1)),
            (np.einsum("hrs,rs->hr", weights, followed.astype(np.float64)), followed.any(-1)),
        )
        for number, (values, counted) in enumerate(told):
            sums[number] += values[:, counted].sum(-1)
            counts[number] += counted.sum()
    with np.errstate(invalid="ignore"):
        return np.asarray(np.stack(sums) / counts[:, None])
