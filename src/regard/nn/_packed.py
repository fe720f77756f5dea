"""Weights that cannot change, laid out once as the compiled kernel reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from regard.functional import _around

if TYPE_CHECKING:
    from regard.nn._layers import Linear


@dataclass(frozen=True, eq=False)
class Packed:
    """The maps x · W + b of the same x side by side.

    Parameters
    ----------
    panels : array
        The weights, as `regard.functional._around.pack` lays them out.
    bias : array, ``F``, or None
        Of all maps.
    ends : tuple of int
        How many columns there are up to the end of each map.
    """

    panels: np.ndarray
    bias: np.ndarray | None
    ends: tuple[int, ...]

    @classmethod
    def of(cls, maps: Sequence[Linear]) -> Packed | None:
        """Return the maps packed; None where that is not worth its memory, or would not be true for long.

        Weights in a file that is mapped read-only cannot change, and their pages are the system's to drop: packed they
        take the memory that reading them would. Arrays of a person's own could change behind our back.
        """
        weights = [linear.weight for linear in maps]
        biases = [linear.bias for linear in maps]
        if not all(_is_mapped(weight) for weight in weights):
            return None
        panels = _around.pack(weights)
        if panels is None:
            return None
        bias = None
        if any(b is not None for b in biases):
            parts = [np.zeros(w.shape[1], w.dtype) if b is None else b for w, b in zip(weights, biases, strict=True)]
            bias = np.concatenate(parts)
            if bias.dtype != panels.dtype or not all(b is None or _is_mapped(b) for b in biases):
                return None
        return cls(panels, bias, tuple(np.cumsum([weight.shape[1] for weight in weights]).tolist()))

    def __call__(self, x: np.ndarray, activation: str | None = None) -> list[np.ndarray] | None:
        """Return what each map makes of x, ``... E``; None where x is not for the kernel."""
        y = _around.packed_linear(x, self.panels, self.ends[-1], self.bias, activation)
        if y is None:
            return None
        return [y[..., start:end] for start, end in pairwise((0, *self.ends))] if len(self.ends) > 1 else [y]


def _is_mapped(x: np.ndarray) -> bool:
    """Tell whether an array is a view on memory that nobody can write to."""
    base: object = x
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    try:
        return base is not None and memoryview(base).readonly  # type: ignore[arg-type]
    except TypeError:
        return False
