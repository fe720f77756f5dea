"""What the configurations of all families have in common."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of a model.

    Parameters
    ----------
    ignored : tuple of str
        Fields of config.json that were not read: they change nothing in transformers either, the caller of `load` said
        so, or they are of a part that looks at pictures, which is left out.
    """

    ignored: tuple[str, ...] = field(default=(), kw_only=True, compare=False, repr=False)
