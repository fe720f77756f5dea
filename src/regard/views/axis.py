"""What stands along an axis: tokens, or the words they make; all of them, or without special tokens.

Knows encodings and labels; nothing of layers, heads or drawing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard._utils.errors import RegardError
from regard.text.encoding import Encoding
from regard.views.labels import pieces, readable


@dataclass(frozen=True)
class Axis:
    """The items along an axis of ``T`` tokens, each made of one token or of the tokens of a word.

    Parameters
    ----------
    labels : tuple of str
        One for each item; not yet safe to print, see `readable`.
    words : tuple of str
        The word that each item is a part of; the label itself where that is not known.
    starts : tuple of int
        The first token of each item; it ends where the next begins.
    length : int
        How many tokens there are.
    shown, hidden : tuple of int
        Indices of the items that are shown and of those that are not.
    """

    labels: tuple[str, ...]
    words: tuple[str, ...]
    starts: tuple[int, ...]
    length: int
    shown: tuple[int, ...]
    hidden: tuple[int, ...]

    def sum(self, values: np.ndarray, axis: int) -> np.ndarray:
        """Return the sum of each item's tokens along `axis`."""
        return np.add.reduceat(values, np.array(self.starts, dtype=np.intp), axis=axis)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the mean of each item's tokens along the first axis."""
        sizes = np.diff([*self.starts, self.length])
        return np.asarray(self.sum(values, 0) / sizes.reshape(-1, *[1] * (values.ndim - 1)))


def axis_of(tokens: Encoding | Sequence[str], *, keep_special: bool = False, words: bool = False) -> Axis:
    """Return what stands along an axis of these tokens.

    Parameters
    ----------
    tokens : Encoding or sequence of str
        Of mere strings nothing is known to be special.
    keep_special : bool
        Show special tokens too. When all tokens are special they are shown in any case.
    words : bool
        Items are words, which needs an encoding.

    Raises
    ------
    RegardError
        There are no tokens, or only strings where words are asked for.
    """
    if len(tokens) == 0:
        raise RegardError("there are no tokens to show: give a text of at least one word")
    if not isinstance(tokens, Encoding):
        if isinstance(tokens, str):
            raise RegardError(f"tokens is one string, {readable(tokens, 40)!r}: give a list of labels")
        if words:
            raise RegardError("words=True needs to know which tokens make a word: give an Encoding as tokens")
        labels, everything = tuple(tokens), tuple(range(len(tokens)))
        return Axis(labels, labels, everything, len(tokens), everything, ())
    groups = tokens.word_groups()
    if words:
        labels = whole = tuple(word for word, _ in groups)
        starts = tuple(positions[0] for _, positions in groups)
    else:
        labels, starts = pieces(tokens), tuple(range(len(tokens)))
        whole = tuple(word for word, positions in groups for _ in positions)
    special = [tokens.special_tokens_mask[start] for start in starts]
    hide = not keep_special and not all(special)
    hidden = tuple(i for i, is_special in enumerate(special) if is_special and hide)
    shown = tuple(i for i in range(len(labels)) if i not in hidden)
    return Axis(labels, whole, starts, len(tokens), shown, hidden)


def rows_of_word(labels: Sequence[str], words: Sequence[str], word: str) -> tuple[int, ...]:
    """Return where a word stands, all of its occurrences and sub-words, without regard to case.

    Raises
    ------
    RegardError
        The text does not have that word; the message lists those it has.
    """
    wanted = _folded(word)
    rows = tuple(
        row
        for row, (label, whole) in enumerate(zip(labels, words, strict=True))
        if wanted in (_folded(label), _folded(whole))
    )
    if not rows:
        known = ", ".join(dict.fromkeys(readable(whole, 40) for whole in words))
        raise RegardError(f"the text has no word {readable(word, 40)!r}; its words are {known}")
    return rows


def _folded(word: str) -> str:
    return unicodedata.normalize("NFC", word.casefold())
