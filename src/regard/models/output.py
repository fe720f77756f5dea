"""What a model returns, and runs that a trace records or ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard._utils.reprs import fields_repr
from regard._utils.validation import truncate
from regard.functional.recorder import NULL_RECORDER, Recorder, RunStopped
from regard.models.gradients import language_loss, next_tokens
from regard.text.encoding import Encoding
from regard.trace import Edit, Trace

_OTHER_NAMES = {
    "last_hidden_state": "its vectors are .hidden",
    "pooler_output": "the vector of a text is model.embed(texts)",
    "hidden_states": "a trace records them, model(text, trace=trace), then trace['blocks.0.output']",
    "attentions": "a trace records them, model(text, trace=trace), then trace['blocks.0.attn.weights']",
}


@dataclass(frozen=True, eq=False)
class Output:
    """The result of a model.

    Parameters
    ----------
    hidden : array, ``B T E``
        The contextual vectors: the output of the last block, after the final norm if there is one.
    encodings : tuple of Encoding
        The texts as tokens, one for each batch entry. Positions after the tokens of a shorter text are padding.
    head : function, optional
        For a language model: from contextual vectors to logits.
    """

    hidden: np.ndarray
    encodings: tuple[Encoding, ...]
    head: Callable[[np.ndarray], np.ndarray] | None = field(default=None, repr=False)

    __repr__ = fields_repr

    if not TYPE_CHECKING:  # to which an output has the attributes of its class alone

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError; for what transformers calls otherwise with the name here."""
            here = f": {_OTHER_NAMES[name]}" if name in _OTHER_NAMES else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{here}")

    @cached_property
    def logits(self) -> np.ndarray:
        """The logits of the next token, ``B T V``; computed on first access.

        Raises
        ------
        RegardError
            The model is not a language model.
        """
        hidden = self.hidden
        if self.head is None:
            raise RegardError(
                "an encoder has no logits where its files have no head, or not the whole; use its vectors (.hidden)"
            )
        return self.head(hidden)

    def loss(self) -> Any:
        """Return the mean cross-entropy of the next tokens of the texts, in nats; of a language model.

        Raises
        ------
        RegardError
            The model has no logits, or no text has two tokens.
        """
        return language_loss(self)

    def token_losses(self) -> np.ndarray:
        """Return the cross-entropy of each next token, ``B T−1``, in nats; NaN where there is none."""
        targets = next_tokens(self)
        losses = F.cross_entropy(self.logits[:, :-1], targets, reduction="none")
        return np.where(targets < 0, np.nan, losses)


@dataclass(frozen=True, eq=False)
class PooledOutput(Output):
    """The result of a model that makes one vector of a whole text or picture.

    Parameters
    ----------
    pool, project : function, optional
        From contextual vectors, ``B T E``, to one for each entry, ``B E``; and from that to the embedding.
    """

    pool: Callable[[np.ndarray], np.ndarray] | None = field(default=None, repr=False)
    project: Callable[[np.ndarray], np.ndarray] | None = field(default=None, repr=False)

    __repr__ = fields_repr

    @cached_property
    def pooled(self) -> np.ndarray:
        """One vector for each text or picture, ``B E``; computed on first access.

        Raises
        ------
        RegardError
            The model was saved without its pooler.
        """
        if self.pool is None:
            raise RegardError("the model was saved without its pooler; the vector of the first token is .hidden[:, 0]")
        return self.pool(self.hidden)

    @cached_property
    def embedding(self) -> np.ndarray:
        """The pooled vector in the space that texts and pictures share, ``B P``; not normalized.

        Raises
        ------
        RegardError
            The model has no projection to such a space.
        """
        if self.project is None:
            raise RegardError("the model has no projection to a space of texts and pictures; use .pooled")
        return self.project(self.pooled)


class StoppedOutput(Output):
    """The result of a run that ended after a step: the texts as tokens, and no vectors.

    Parameters
    ----------
    encodings : tuple of Encoding
    reason : RunStopped
        What is raised where a vector is read.
    """

    def __init__(self, encodings: tuple[Encoding, ...], reason: RunStopped) -> None:
        object.__setattr__(self, "encodings", encodings)
        object.__setattr__(self, "reason", reason)

    def __getattr__(self, name: str) -> Any:
        if name in ("hidden", "memory", "memory_encodings"):
            raise RegardError(str(self.reason))
        raise AttributeError(name)

    def __repr__(self) -> str:
        return f"StoppedOutput({self.reason.step!r})"


Result = TypeVar("Result", bound=Output)
Leave: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""The function through which a result leaves a run."""


def with_edits(trace: Recorder, edit: Mapping[str, Edit] | None) -> Recorder:
    """Return the recorder of a run that was given a trace or edits; an error if both are given."""
    if not callable(getattr(trace, "set_layout", None)):
        raise RegardError(f"trace is a regard.Trace(), got {truncate(trace)}")
    if edit is None:
        return trace
    if trace is not NULL_RECORDER:
        raise RegardError("trace= and edit= are both given; give the edits to the trace, Trace(edit=...)")
    return Trace(only=(), edit=edit)


def until_stop(
    compute: Callable[[Leave], Result], run: AbstractContextManager[Leave], encodings: tuple[Encoding, ...]
) -> Result:
    """Return what `compute` does in the context of a run, or the result of a run that its recorder ended."""
    try:
        with run as leave:
            return compute(leave)
    except RunStopped as reason:
        return cast(Result, StoppedOutput(encodings, reason))


def run_traced(model: Any, text: Any, trace: Trace) -> Trace:
    """Run `model` on `text` and return `trace`, which has recorded it; an error as in `run_finite`."""
    run_finite(model, text, trace)
    return trace


def run_finite(model: Any, text: Any, trace: Trace) -> Any:
    """Run `model` on `text` and return its output.

    An error if the text is invalid, or if the contextual vectors, or those of the step after which the run ends, are
    not finite.
    """
    with np.errstate(all="ignore"):
        output = model(text, trace=trace)
    hidden = output.reason.value if isinstance(output, StoppedOutput) else output.hidden
    if not np.isfinite(hidden).all():
        raise RegardError(f"the vectors of {model.name} are not finite in {hidden.dtype}: its numbers are too large")
    return output
