"""The tokens of a batch as rows of a table: each text at each of its positions, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regard.text.encoding import Encoding
from regard.text.token_labels import token_labels


@dataclass(frozen=True)
class TokenPlaces:
    """The positions of texts in arrays ``... B T``; without encodings every position is one.

    Parameters
    ----------
    encodings : sequence of Encoding
    shape : (int, int)
        ``B T``.
    """

    encodings: Sequence[Encoding]
    shape: tuple[int, ...]

    @cached_property
    def is_text(self) -> np.ndarray:
        """Where there is text, ``B T``."""
        lengths = [len(encoding) for encoding in self.encodings] or [self.shape[1]] * self.shape[0]
        return np.asarray(np.arange(self.shape[1]) < np.array(lengths)[:, None])

    @property
    def count(self) -> int:
        """The number of tokens."""
        return int(self.is_text.sum())

    @property
    def tokens(self) -> np.ndarray:
        """The tokens of all texts, one after the other."""
        each = [token for encoding in self.encodings for token in encoding.tokens]
        return np.array(each if self.encodings else [""] * self.count, dtype=str)

    def columns(self, repeats: int) -> dict[str, np.ndarray]:
        """Return the columns ``text``, ``position`` and ``token`` of rows that `rows` returns."""
        texts, positions = np.nonzero(self.is_text)
        columns = {"text": texts, "position": positions, "token": self.tokens}
        return {name: np.tile(values, repeats) for name, values in columns.items()}

    def rows(self, values: np.ndarray) -> np.ndarray:
        """Return values ``... B T`` at the tokens as one column."""
        return np.asarray(values[..., self.is_text].reshape(-1))

    def coordinates(self) -> dict[str, tuple[str, np.ndarray]]:
        """Return the tokens of a single text as a coordinate ``token`` of the axis ``T``, as `Trace.to_xarray` does."""
        is_one = len(self.encodings) == 1 and self.count == self.shape[1]
        return {"token": ("T", self.tokens)} if is_one else {}

    def first_text(self) -> tuple[str, ...]:
        """Return the tokens of the first text, as they are read."""
        return token_labels(self.encodings[0]) if self.encodings else ("",) * self.shape[1]
