"""The items along an axis: tokens or words, with or without special tokens."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard._utils.errors import RegardError
from regard.text.encoding import Encoding
from regard.text.token_labels import token_labels
from regard.views.labels import escape


@dataclass(frozen=True)
class Axis:
    """The items along an axis of ``T`` tokens, each made of one token or of the tokens of a word."""

    labels: tuple[str, ...]  # one for each item; see `escape` before printing them
    words: tuple[str, ...]  # the word that contains each item; the label itself where words are unknown
    starts: tuple[int, ...]  # the first token of each item; an item ends where the next begins
    special: tuple[bool, ...]  # whether each item is a special token
    length: int  # the number of tokens
    shown: tuple[int, ...]  # indices of the items that are shown
    omitted: tuple[int, ...]  # indices of the special tokens that are not

    def within(self, first: int, end: int) -> Axis:
        """Return the axis that shows only items which begin at a token from `first` to before `end`.

        An error if that is none.
        """
        shown = tuple(i for i in self.shown if first <= self.starts[i] < end)
        if not shown:
            raise RegardError(f"no token is shown from {first} to before {end}: there are {self.length}")
        return replace(self, shown=shown)

    def sum(self, values: np.ndarray, axis: int) -> np.ndarray:
        """Return the sum of each item's tokens along `axis`."""
        return np.add.reduceat(values, np.array(self.starts, dtype=np.intp), axis=axis)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the mean of each item's tokens along the first axis."""
        sizes = np.diff([*self.starts, self.length])
        return np.asarray(self.sum(values, 0) / sizes.reshape(-1, *[1] * (values.ndim - 1)))


def make_axis(
    tokens: Encoding | Sequence[str], *, show_special_tokens: bool = False, merge_subwords: bool = False
) -> Axis:
    """Return the axis of these tokens.

    Parameters
    ----------
    tokens : Encoding or sequence of str
        Strings have no special tokens.
    show_special_tokens : bool
        Show special tokens. If all tokens are special they are always shown.
    merge_subwords : bool
        Items are words; needs an encoding.

    Raises
    ------
    RegardError
        There are no tokens, or `merge_subwords` without an encoding.
    """
    if len(tokens) == 0:
        raise RegardError("no tokens to show: give a text of at least one word")
    if not isinstance(tokens, Encoding):
        if isinstance(tokens, str):
            raise RegardError(f"tokens must be a list of labels, got one string, {escape(tokens, 40)!r}")
        if merge_subwords:
            raise RegardError("merge_subwords=True needs an Encoding as tokens")
        labels, everything = tuple(tokens), tuple(range(len(tokens)))
        return Axis(labels, labels, everything, (False,) * len(tokens), len(tokens), everything, ())
    groups = tokens.word_groups()
    if merge_subwords:
        labels = whole = tuple(word for word, _ in groups)
        starts = tuple(positions[0] for _, positions in groups)
    else:
        labels, starts = token_labels(tokens), tuple(range(len(tokens)))
        whole = tuple(word for word, positions in groups for _ in positions)
    special = tuple(tokens.special_tokens_mask[start] for start in starts)
    show_all = show_special_tokens or all(special)
    shown = tuple(i for i, is_special in enumerate(special) if show_all or not is_special)
    omitted = tuple(i for i, is_special in enumerate(special) if is_special and not show_all)
    return Axis(labels, whole, starts, special, len(tokens), shown, omitted)


def rows_of_word(labels: Sequence[str], words: Sequence[str], word: str) -> tuple[int, ...]:
    """Return the rows of a word: all of its occurrences and sub-words, in any case; of ``to:2`` those of the second.

    An error if the text does not contain the word; it lists its words.
    """

    def rows_named(name: str) -> tuple[int, ...]:
        pairs = zip(labels, words, strict=True)
        return tuple(row for row, pair in enumerate(pairs) if _fold(name) in map(_fold, pair))

    rows = rows_named(word)
    base, colon, number = word.rpartition(":")
    if not rows and colon and number.isdecimal():
        places = rows_named(base)
        is_first = [row == 0 or row - 1 not in places or labels[row] == words[row] for row in places]
        rows = tuple(row for row, count in zip(places, np.cumsum(is_first), strict=True) if count == int(number))
    if not rows:
        listed = ", ".join(dict.fromkeys(escape(whole, 40) for whole in words if whole.strip()))
        raise RegardError(f"the text has no word {escape(word, 40)!r}; its words are {listed}")
    return rows


def _fold(word: str) -> str:
    return unicodedata.normalize("NFC", word.casefold())
