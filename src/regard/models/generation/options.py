"""What a caller of `LanguageModel.generate` chooses, and what a checkpoint prescribes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.models.generation.sampling import Sampling

StopCondition: TypeAlias = str | int
"""A string before which the text ends, or the id of a token that ends it."""

FinishReason: TypeAlias = Literal["", "eos", "stop", "length", "max_context"]
"""Why a generation has finished; "" while it has not."""


_OTHER_NAMES = {"max_tokens": "max_new_tokens", "max_length": "max_new_tokens", "n_predict": "max_new_tokens"}


class GenerationArguments(TypedDict, total=False):
    """The keyword arguments that `generate` and `stream` share: the fields of `GenerationOptions`."""

    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int | None
    max_new_tokens: int
    stop: StopCondition | Sequence[StopCondition]


@dataclass(frozen=True)
class GenerationOptions(Sampling):
    """How tokens are sampled, and when a text ends; `LanguageModel.generate` describes the fields."""

    max_new_tokens: int = 128
    stop: StopCondition | Sequence[StopCondition] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("max_new_tokens", self.max_new_tokens, 1)
        for one in self._conditions:
            if not (isinstance(one, str) and one) and (not isinstance(one, int | np.integer) or isinstance(one, bool)):
                raise RegardError(f"stop must be a non-empty string, a token id, or a sequence of them, got {one!r}")

    @classmethod
    def from_keywords(cls, **options: Any) -> GenerationOptions:
        """Return options by their names; TypeError for another name, with the one that is meant."""
        names = [field.name for field in fields(cls)]
        for name in options:
            if name not in names:
                close = get_close_matches(name, names, n=1, cutoff=0.5)
                meant = _OTHER_NAMES.get(name, close[0] if close else None)
                hint = f"did you mean {meant}?" if meant else f"it has {', '.join(names)}"
                raise TypeError(f"generate has no argument {name}; {hint}")
        return cls(**options)

    @cached_property
    def stop_strings(self) -> tuple[str, ...]:
        """The strings of `stop`."""
        return tuple(one for one in self._conditions if isinstance(one, str))

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """The token ids of `stop`."""
        return frozenset(int(one) for one in self._conditions if not isinstance(one, str))

    @cached_property
    def _conditions(self) -> tuple[StopCondition, ...]:
        several = isinstance(self.stop, Iterable) and not isinstance(self.stop, str)
        return tuple(self.stop) if several else (self.stop,)  # type: ignore[arg-type, return-value]


@dataclass(frozen=True)
class ForcedTokens:
    """Tokens at fixed places of a continuation, whatever their logits."""

    bos: int | None = None  # the first token that an encoder-decoder generates: for translators, the target language
    eos: int | None = None  # the token at position `max_new_tokens`
