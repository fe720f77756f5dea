"""What the configurations of all families have in common."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of a model.

    Parameters
    ----------
    ignored : tuple of str
        Fields of config.json that were not read, since they change nothing in transformers either.
    ignore : tuple of str
        Fields that were not read since the caller of `load` said that they change nothing.
    """

    ignored: tuple[str, ...] = field(default=(), kw_only=True, compare=False, repr=False)
    ignore: tuple[str, ...] = field(default=(), kw_only=True, compare=False, repr=False)
