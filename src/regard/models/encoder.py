"""What text encoders share: how they are loaded.

A family adds `layers`, which builds its layers, and `forward`, its forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.models.base import TextModel
from regard.models.checkpoint.open import Checkpoint, tokenizer_for
from regard.models.checkpoint.tensors import TensorSource, load_layers


@dataclass(frozen=True, eq=False, repr=False)
class Encoder(TextModel):
    """An encoder with its tokenizer."""

    config_type: ClassVar[Any]
    prefixes: ClassVar[tuple[str, ...]]  # of all names: alone, and inside a model with a task head
    unused: ClassVar[tuple[str, ...]]  # beginnings of names of tensors that may be present too
    renamed_suffixes: ClassVar[Mapping[str, str]] = {}

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
            renamed_suffixes=cls.renamed_suffixes,
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
