"""What the configurations of all families have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from regard.models.checkpoint.config import ConfigReader


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of a model; a family adds its fields, and `_read`.

    Parameters
    ----------
    ignored : tuple of str
        Fields of config.json that were not read: they change nothing in transformers either, the caller of `load` said
        so, or they are of a part that looks at pictures, which is left out.
    """

    ignored: tuple[str, ...] = field(default=(), kw_only=True, compare=False, repr=False)

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        config = cls._read(reader)
        reader.finish()
        return config

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        raise NotImplementedError
