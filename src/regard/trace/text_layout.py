"""Where the texts of a batch stand in the values of a run, and edits that depend on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from regard.functional.arrays import Array


@dataclass(frozen=True, eq=False)
class TextLayout:
    """Where the texts of a batch stand in values ``B … T …``: padding is not part of them.

    Parameters
    ----------
    starts : integer array, ``B``
        The column of the first token of each; negative where an earlier call had it, whose keys a cache holds.
    lengths : integer array, ``B``
        The tokens of each; while it is generated, those of its prompt.
    rows : integer array, ``B``
        The index of each in the batch that was given, of which some may have ended.
    grows : bool
        Whether texts are generated: tokens follow the prompts.
    """

    starts: np.ndarray
    lengths: np.ndarray
    rows: np.ndarray
    grows: bool = False

    @classmethod
    def from_shape(cls, shape: Sequence[int], mask: np.ndarray | None = None) -> TextLayout:
        """Return that of a batch of shape ``B T``, with a mask ``B T`` that is True at text."""
        batch, length = shape
        starts, lengths = np.zeros(batch, int), np.full(batch, length)
        if mask is not None:
            starts, lengths = mask.argmax(-1), mask.sum(-1)
        return cls(starts, lengths, np.arange(batch))

    def after_prompts(self, lengths: Sequence[int]) -> TextLayout:
        """Return that of whole texts which were generated after prompts of some lengths."""
        return replace(self, lengths=np.array(lengths), grows=True)

    def select(self, rows: Sequence[int] | slice) -> TextLayout:
        """Return that of some texts, as a batch of their own."""
        starts, lengths = self.starts[rows], self.lengths[rows]
        return TextLayout(starts, lengths, np.arange(len(starts)), self.grows)


class Place(NamedTuple):
    """The texts of the run in which an edit gets a value, None for a layer called by itself, and the value's axes."""

    layout: TextLayout | None = None
    axes: str = ""


@dataclass(frozen=True)
class LocatedEdit:
    """An edit that depends on where the texts stand: a function of a value and its `Place`."""

    function: Callable[[Array, Place], Array]

    def __call__(self, value: Array) -> Array:
        """Return the edited value of a layer called by itself."""
        return self.function(value, Place())

    def at(self, place: Place) -> Callable[[Array], Array]:
        """Return the edit of a value at a place."""
        return lambda value: self.function(value, place)


def located(edit: Callable[[Array], Array], place: Place) -> Callable[[Array], Array]:
    """Return an edit of a value at a place."""
    return edit.at(place) if isinstance(edit, LocatedEdit) else edit
