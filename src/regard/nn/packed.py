"""Weights that cannot change, laid out once as the compiled kernel reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from regard.functional.native import ops

if TYPE_CHECKING:
    from regard.nn.layers import Linear

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Packed:
    """The maps x · W + b of the same x side by side.

    Parameters
    ----------
    panels : array
        The weights, as `regard.functional.native.ops.pack` lays them out.
    bias : array, ``F``, or None
        Of all maps.
    columns : int
        How many outputs all maps have together.
    """

    panels: np.ndarray
    bias: np.ndarray | None
    columns: int

    @classmethod
    def of(cls, maps: Sequence[Linear]) -> Packed | None:
        """Return the maps packed; None where that is not worth its memory, or would not be true for long.

        Weights in a file that is mapped read-only cannot change (nobody may write to the file in place), and their
        pages are the system's to drop: packed they take the memory that reading them would. Arrays of a person's own
        could change behind our back.
        """
        weights = [linear.weight for linear in maps]
        biases = [linear.bias for linear in maps]
        if not all(_is_mapped(x) for x in (*weights, *biases) if x is not None):
            return None
        panels = ops.pack(weights)
        if panels is None:
            return None
        bias = None
        if any(b is not None for b in biases):
            parts = [np.zeros(w.shape[1], w.dtype) if b is None else b for w, b in zip(weights, biases, strict=True)]
            bias = np.concatenate(parts)
            if bias.dtype != panels.dtype:
                return None
        return cls(panels, bias, sum(weight.shape[1] for weight in weights))

    def __call__(self, x: np.ndarray, activation: str | None = None) -> np.ndarray | None:
        """Return what the maps make of x, ``... E``, side by side; None where x is not for the kernel."""
        return ops.packed_linear(x, self.panels, self.columns, self.bias, activation)


def cached_pack(layer: object, maps: Sequence[Linear]) -> Packed | None:
    """Return `maps` packed, and keep them with `layer`."""
    return instance_cache(layer, "_packed", lambda: Packed.of(maps))


def instance_cache(layer: object, name: str, make: Callable[[], T]) -> T:
    """Return what `make` returns, which is kept with `layer` under a name that is no attribute of its kind.

    There is no lock: two threads may both make it, which does no harm, and a process that forks meanwhile goes on.
    """
    kept: dict[str, T] = vars(layer)
    if name not in kept:
        kept[name] = make()
    return kept[name]


def _is_mapped(x: np.ndarray) -> bool:
    """Tell whether an array is a view on a file that is mapped read-only, or on bytes."""
    base: object = x
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    while isinstance(base, memoryview):
        base = base.obj
    return isinstance(base, bytes) or (isinstance(base, mmap) and memoryview(base).readonly)
