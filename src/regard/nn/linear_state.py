"""What a layer of linear attention keeps of the tokens so far, for decoding without computing them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False, repr=False)
class LinearState:
    """The state of a layer of linear attention, of the same size after any number of tokens.

    Parameters
    ----------
    end : int
        The position of the next token.
    state : array, ``B H D Dv``, optional
        What `regard.linear_attention` returns; none before the first token.
    inputs : array, ``B K−1 C``, optional
        What the short convolution of K taps read of the last tokens.
    """

    end: int = 0
    state: np.ndarray | None = None
    inputs: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"<LinearState of positions 0 to {self.end}>"

    def select(self, rows: Sequence[int]) -> LinearState:
        """Return the state of some texts of the batch."""
        if self.state is None or self.inputs is None:
            return self
        return LinearState(self.end, self.state[list(rows)], self.inputs[list(rows)])
