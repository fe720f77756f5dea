"""What text encoders share: how they are loaded, and how their blocks follow each other.

A family adds `layers`, which builds its layers, and `forward`, its forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.functional.recorder import Recorder
from regard.models.base import TextModel
from regard.models.checkpoint.open import Checkpoint, tokenizer_for
from regard.models.checkpoint.tensors import OLD_NORM_SUFFIXES, TensorSource, load_layers
from regard.nn import EncoderBlock


@dataclass(frozen=True, eq=False, repr=False)
class Encoder(TextModel):
    """An encoder with its tokenizer."""

    config_type: ClassVar[Any]
    prefixes: ClassVar[tuple[str, ...]]  # of all names: alone, and inside a model with a task head
    unused: ClassVar[tuple[str, ...]]  # beginnings of names of tensors that may be present too

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = cls.config_type.read(checkpoint.config())
        layers = load_layers(
            checkpoint,
            lambda source: cls.layers(source, config),
            num_layers=config.num_layers,
            prefixes=cls.prefixes,
            unused=cls.unused_with(config),
            renamed_suffixes=OLD_NORM_SUFFIXES,
            dtype=dtype,
        )
        return cls(name=name, config=config, tokenizer=tokenizer_for(checkpoint, config.vocab_size), **layers)

    @classmethod
    def layers(cls, source: TensorSource, config: Any) -> dict[str, Any]:
        """Return the fields of the model that are layers."""
        raise NotImplementedError

    @classmethod
    def unused_with(cls, config: Any) -> tuple[str, ...]:  # noqa: ARG003
        """Return `unused` for a configuration."""
        return cls.unused


def run_blocks(
    blocks: Sequence[EncoderBlock],
    x: np.ndarray,
    mask: np.ndarray | None,
    trace: Recorder,
    *,
    each: Sequence[Mapping[str, Any]] | None = None,
    **options: Any,
) -> np.ndarray:
    """Return the output of all blocks, ``B T E``, 0 at padding.

    `options` are further arguments of every block, `each` those of one block after the other.
    """
    for i, (block, own) in enumerate(zip(blocks, each or [{}] * len(blocks), strict=True)):
        with trace.scope(f"blocks.{i}"):
            x = block(x, mask=mask, trace=trace, **options, **own)
    return without_padding(x, mask)


def without_padding(x: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Return x, ``B T E``, with 0 at padding."""
    return x if mask is None else np.where(mask[:, 0, 0, :, None], x, x.dtype.type(0))
