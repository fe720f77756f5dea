"""The key/value caches of the tokens decoded so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard.nn.kv_cache import KVCache
from regard.trace.text_layout import TextLayout


@dataclass(frozen=True, eq=False)
class DecodingState:
    """What decoding keeps of the tokens so far. A value: each step returns another one.

    Parameters
    ----------
    caches : tuple of KVCache or LinearState
        The keys and values of each block's self-attention, up to the same position; a window keeps the last only. Of a
        block of linear attention its state.
    padding : integer array, ``B``, optional
        How many of the first positions of each sequence are padding; 0 by default.
    memory : tuple of KVCache
        For an encoder-decoder: the keys and values of each block's cross-attention.
    memory_mask : boolean array, ``B 1 1 S``, optional
        True where the encoder's input is text, False at padding.
    prompt_end : int
        The number of positions of the prompts, padding included.
    rows : integer array, ``B``, optional
        The index of each sequence in the batch that was given; all by default.
    """

    caches: tuple[Any, ...]
    padding: np.ndarray | None = None
    memory: tuple[KVCache, ...] = ()
    memory_mask: np.ndarray | None = None
    prompt_end: int = 0
    rows: np.ndarray | None = None

    @property
    def end(self) -> int:
        """The number of positions so far, padding included."""
        end: int = self.caches[0].end
        return end

    def layout(self, batch: int) -> TextLayout:
        """Return where the texts stand in the values of the next call."""
        padding = np.zeros(batch, int) if self.padding is None else self.padding
        rows = np.arange(batch) if self.rows is None else self.rows
        return TextLayout(padding - self.end, self.prompt_end - padding, rows, grows=True)

    def select_batch(self, indices: Sequence[int]) -> DecodingState:
        """Return the state of some sequences of the batch."""
        rows = list(indices)
        return replace(
            self,
            caches=tuple(cache.select(rows) for cache in self.caches),
            padding=None if self.padding is None else self.padding[rows],
            memory=tuple(cache.select(rows) for cache in self.memory),
            memory_mask=None if self.memory_mask is None else self.memory_mask[rows],
            rows=np.array(rows) if self.rows is None else self.rows[rows],
        )
