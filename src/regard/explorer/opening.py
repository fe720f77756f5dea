"""What the page opens with: a head, and a word of it whose attention tells something of this text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from regard.explorer import answers
from regard.explorer.queries.next_tokens import predicts_next_tokens
from regard.explorer.run import Run
from regard.explorer.validation import check_index
from regard.metrics.attribution_target import predicts_at_each_token
from regard.text.token_labels import token_labels
from regard.views.trace_access import resolve_index

MAX_TOKENS = 64
"""The first tokens of a text, in which a telling weight is looked for."""

MIN_EXCESS = 0.25
"""Below it no word is chosen."""

MAX_CELLS = 3
"""As many distinctive cells does the page name."""


class Opening(NamedTuple):
    """A layer and head by their places, and a query and a key token; these are None if no weight tells much."""

    layer: int
    head: int
    row: int | None = None
    col: int | None = None
    cells: tuple[answers.DistinctiveCell, ...] = ()  # of all heads, whichever was asked for

    def describe(self, run: Run) -> answers.Initial:
        """Return it as plain data, as far as a run has these heads and tokens."""
        layer = min(self.layer, len(run.layers) - 1)
        described: answers.Initial = {"layer": layer, "head": min(self.head, len(run.layers[layer].heads) - 1)}
        if self.row is not None and self.col is not None and max(self.row, self.col) < run.length:
            described |= {"row": self.row, "col": self.col}
        return described


def opening_of(run: Run, layer: int | None, head: int | None) -> Opening:
    """Return what the page opens with: the head asked for, or the one with the most telling weight."""
    return _opening_of(run, layer, head)._replace(cells=distinctive_cells(run))


def _opening_of(run: Run, layer: int | None, head: int | None) -> Opening:
    numbers = [run.number(place) for place in range(len(run.layers))]
    layers = run.telling_layers() if layer is None else [numbers.index(resolve_index("layer", layer, numbers))]
    if head is not None:
        layers = layers if layer is not None else layers[-1:]
        check_index("head", head, len(run.layers[layers[0]].heads))
    elif layer is not None:
        head = 0
    if run.is_long:
        return Opening(layers[-1], head or 0)
    last = _last_predicting(run)
    excess, opening = telling_weight(run, [(at, h) for at in layers for h in _heads(run, at, head)], last)
    if excess >= MIN_EXCESS:
        return opening
    place = (layers[-1], head) if head is not None else head_of_words(run)
    return Opening(*place) if last is None else Opening(*place, last, _strongest_key(run, *place, last))


def _last_predicting(run: Run) -> int | None:
    """Return the token after which the page says what comes next; None for a model that predicts none."""
    follows = predicts_next_tokens(run) and predicts_at_each_token(run.model)
    return run.length - 1 if follows else None


def distinctive_cells(run: Run) -> tuple[answers.DistinctiveCell, ...]:
    """Return the most telling weights of a run, one for each head and key; of a decoder those of its last token."""
    if run.is_long:
        return ()
    heads = [(at, head) for at in run.telling_layers() for head in _heads(run, at, None)]
    cells: dict[int | None, answers.DistinctiveCell] = {}
    for excess, (layer, head, row, col, _) in sorted(_telling_weights(run, heads, _last_predicting(run)), reverse=True):
        if row is None or col is None or excess < MIN_EXCESS or len(cells) == MAX_CELLS:
            break
        weight = float(run.layers[layer].tile(head, np.array([row]), np.array([col]))[0, 0])
        cells.setdefault(col, {"layer": layer, "head": head, "row": row, "col": col, "weight": weight})
    return tuple(cells.values())


def _strongest_key(run: Run, layer: int, head: int, row: int) -> int:
    """Return the earlier token to which a token attends most, the first one aside if there is another."""
    weights = run.layers[layer].tile(head, np.array([row]), None)[0, :row]
    return int(weights[1:].argmax()) + 1 if row > 1 else 0


def telling_weight(run: Run, heads: list[tuple[int, int]], query: int | None = None) -> tuple[float, Opening]:
    """Return the largest excess of a weight between two words in some heads, and where it is; of one token, if given.

    The excess is what the weight of a word to another, not beside it, has beyond the mean of what other tokens give to
    that word, and the mean at that distance: it is small where all attend to one token, and where a head attends by
    position. It is large for a verb and its object, or a pronoun and what it stands for.
    """
    return max(_telling_weights(run, heads, query), key=lambda each: each[0], default=(-np.inf, Opening(*heads[0])))


def _telling_weights(run: Run, heads: list[tuple[int, int]], query: int | None) -> Iterator[tuple[float, Opening]]:
    """Yield the largest excess in each of some heads, if they have pairs of words, and where it is."""
    tokens = run.telling_tokens(MAX_TOKENS) if query is None else np.arange(max(0, query + 1 - MAX_TOKENS), query + 1)
    is_pair = _pairs_of_words(run, tokens)
    if query is not None:
        is_pair[:-1] = False
    for layer, head in heads if is_pair.any() else ():
        weights = run.layers[layer].tile(head, tokens, tokens).astype(np.float64)
        excess = np.where(is_pair, weights - _mean_of_others(weights) - _mean_at_distance(weights), -np.inf)
        row, col = np.unravel_index(int(excess.argmax()), excess.shape)
        yield float(excess[row, col]), Opening(layer, head, int(tokens[row]), int(tokens[col]))


def strongest_cell(run: Run, layer: int, head: int) -> tuple[int, int]:
    """Return the query and key of the largest weight of a head; between two words, if there is one."""
    weights, special = run.layers[layer].tile(head, None, None), is_special(run)
    of_words = np.where(special[:, None] | special | np.eye(run.length, dtype=bool), 0, weights)
    row, col = np.unravel_index(int((of_words if of_words.any() else weights).argmax()), weights.shape)
    return int(row), int(col)


def head_of_words(run: Run) -> tuple[int, int]:
    """Return the layer and head with most attention to other words: least to itself, the first and special tokens."""
    words, layers = np.flatnonzero(~is_special(run)), run.telling_layers()
    if not len(words):
        return layers[-1], 0
    candidates = [
        (-_mean_to_others(run.layers[number].tile(head, words[:64], words)), number, head)
        for number in layers[len(layers) // 2 :]  # lower heads attend to positions more than to words
        for head in range(len(run.layers[number].heads))
    ]
    return min(candidates)[1:]


def _mean_to_others(weights: np.ndarray) -> float:
    """Return the mean attention of words, the first of the columns, to other words."""
    return float((weights.sum(axis=-1) - weights.diagonal()).mean())


def _heads(run: Run, layer: int, head: int | None) -> list[int]:
    return list(range(len(run.layers[layer].heads))) if head is None else [head]


def is_special(run: Run) -> np.ndarray:
    """Return which tokens are special, ``T``; the first one, which takes the attention that means nothing, too."""
    special = np.zeros(run.length, bool)
    special[0] = True
    if run.encoding is not None:
        special |= np.array(run.encoding.special_tokens_mask, bool)
    return special


def _pairs_of_words(run: Run, tokens: np.ndarray) -> np.ndarray:
    """Return which of some tokens are of two words that are not beside each other, ``n n``."""
    if run.encoding is None:
        return np.zeros((len(tokens), len(tokens)), bool)
    words = np.array([-1 if word is None else word for word in run.encoding.word_ids])[tokens]
    labels = token_labels(run.encoding)
    letters = [any(map(str.isalnum, labels[i])) for i in tokens]
    is_word = (words >= 0) & np.array(letters) & ~is_special(run)[tokens]
    is_pair: np.ndarray = (np.abs(words[:, None] - words) > 1) & is_word[:, None] & is_word
    return is_pair


def _mean_of_others(weights: np.ndarray) -> np.ndarray:
    """Return for each weight the mean of the others of its column that are not masked."""
    count = np.maximum(np.count_nonzero(weights, axis=0) - 1, 1)
    mean: np.ndarray = (weights.sum(0) - weights) / count
    return mean


def _mean_at_distance(weights: np.ndarray) -> np.ndarray:
    """Return for each weight the mean of the others at the same distance and side."""
    n = len(weights)
    distance = np.subtract.outer(np.arange(n), np.arange(n)) + n
    total = np.bincount(distance.ravel(), weights.ravel(), 2 * n)
    count = np.bincount(distance.ravel(), minlength=2 * n)
    mean: np.ndarray = (total[distance] - weights) / np.maximum(count[distance] - 1, 1)
    return mean
