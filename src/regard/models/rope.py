"""Rotary position embedding of a model: its configuration, and the angles at given positions (Su et al. 2021).

https://arxiv.org/abs/2104.09864
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard.models.checkpoint.config import ConfigReader
from regard.nn import CosSin

MAX_HEAD_DIM = 2**16
MAX_POSITIONS = 2**29


@dataclass(frozen=True)
class Rope:
    """How queries and keys are rotated by their position."""

    dim: int  # the features of a head, rotated in pairs
    base: float
    scaling: Mapping[str, Any] | None = None  # as `regard.functional.rotary_frequencies` takes it

    def __call__(self, positions: np.ndarray, dtype: Any) -> CosSin:
        """Return cosine and sine for positions ``T`` or ``B T``, of shape ``T D/2`` or ``B 1 T D/2``."""
        frequencies, magnitude = self._unscaled_by_length
        if self._kind == "dynamic":  # the frequencies depend on the length of each sequence
            lengths = positions.max(-1, keepdims=True) + 1
            frequencies = np.stack([self._frequencies(int(length))[0] for length in lengths.flat])
            frequencies = frequencies[0] if positions.ndim == 1 else frequencies[:, None]
        angles = positions[..., None] * frequencies  # T D/2 or B T D/2
        cos, sin = ((f(angles) * magnitude).astype(dtype) for f in (np.cos, np.sin))
        return (cos, sin) if positions.ndim == 1 else (cos[:, None], sin[:, None])

    def max_context(self, max_positions: int) -> int:
        """Return `max_positions`, or the number of positions that the scaling extends the original ones to.

        Llama 3 checkpoints state the extended number, which is less than the factor times the original one.
        """
        scaling = self.scaling or {}
        if self._kind == "llama3":
            return max_positions
        original = scaling.get("original_max_position_embeddings", max_positions)
        return max(max_positions, int(min(original * scaling.get("factor", 1), MAX_POSITIONS)))

    @property
    def _kind(self) -> Any:
        return None if self.scaling is None else self.scaling["rope_type"]

    @functools.cached_property
    def _unscaled_by_length(self) -> tuple[np.ndarray, float]:
        return self._frequencies(1)

    def _frequencies(self, length: int) -> tuple[np.ndarray, float]:
        return F.rotary_frequencies(self.dim, base=self.base, scaling=self.scaling, length=length)


def read_rope(
    reader: ConfigReader, sizes: Mapping[str, Any], *, base: float = 10_000.0, scaling: Mapping[str, Any] | None = None
) -> Rope:
    """Read ``rope_parameters``, or ``rope_theta`` and ``rope_scaling`` of older files.

    `base` and `scaling` are the defaults of the family.
    """
    base = reader.positive("rope_theta", base)
    newer, older = reader.take("rope_parameters"), reader.take("rope_scaling")
    reader.require(not newer or not older, "rope_parameters and rope_scaling are both present; remove one")
    found = newer or older or scaling
    if found is None:
        return Rope(sizes["head_dim"], base)
    if not isinstance(found, dict):
        reader.require(False, f"rope_parameters must be an object, got {found!r}")
        return Rope(sizes["head_dim"], base)
    numbers = {
        name: value
        for name, value in found.items()
        if name not in ("rope_type", "type", "rope_theta") and value is not None
    }
    kind = found.get("rope_type", found.get("type", "default"))
    if kind in ("yarn", "llama3"):
        numbers.setdefault("original_max_position_embeddings", sizes["max_positions"])
    elif kind == "dynamic":
        original = numbers.setdefault("original_max_position_embeddings", sizes["max_positions"])
        reader.require(
            original == sizes["max_positions"],
            f"dynamic rope scaling begins at max_position_embeddings {sizes['max_positions']}, not at {original!r}",
        )
    rope = Rope(sizes["head_dim"], found.get("rope_theta", base), {"rope_type": kind, **numbers})
    try:
        with np.errstate(all="ignore"):
            frequencies, _ = F.rotary_frequencies(
                min(rope.dim + rope.dim % 2, MAX_HEAD_DIM), base=rope.base, scaling=rope.scaling, length=1
            )
        reader.require(
            bool(np.isfinite(frequencies).all()), f"rope_parameters={found!r} give angles that are not finite"
        )
    except (RegardError, ArithmeticError, ValueError) as error:
        reader.require(False, f"rope_parameters={found!r}: {error}")
    return rope
