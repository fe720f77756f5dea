"""Recorders: what functions and layers call at a tap, and the one that records nothing.

A tap names a value and its axes and returns it, ``scores = trace("scores", q @ k.mT, "... H T S")``. The default
recorder is `NULL_RECORDER`; `regard.Trace` stores values.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

from regard._utils.errors import RegardError

T = TypeVar("T")


class Recorder(Protocol):
    """The interface of a recorder; its defaults record nothing."""

    def __call__(self, name: str, value: T, axes: str) -> T:  # noqa: ARG002
        """Return `value`, or the value to use instead."""
        return value

    def take(self, name: str, value: Any, axes: str) -> None:
        """Record a value that nothing else refers to, so that a recorder may store it without a copy."""
        self(name, value, axes)

    def without_copies(self) -> AbstractContextManager[None]:
        """Return the context of a run whose values are not written to, and stay inside it but for `for_caller`.

        A recorder may then store large values without a copy.
        """
        return nullcontext()

    def for_caller(self, value: T) -> T:
        """Return a value that leaves a run, or a copy of it if the recorder stores it."""
        return value

    def scope(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return a context in which every name begins with ``name.``."""
        return nullcontext()

    def wants(self, name: str) -> bool:  # noqa: ARG002
        """Whether a tap called `name` in this scope would be recorded or edited."""
        return False

    def asks_for(self, *names: str) -> bool:  # noqa: ARG002
        """Whether an optional tap called so in this scope is to be made: it is recorded or edited by its own name.

        Optional taps are of values that a run does not need, or that take much memory.
        """
        return False

    def announce(self, name: str) -> None:  # noqa: ARG002
        """Say that a tap called `name` follows in this scope, which a name may mean rather than one before it."""
        return

    def edits(self, name: str) -> bool:  # noqa: ARG002
        """Whether a tap called `name` in this scope would be edited, so that later steps depend on it."""
        return False

    def stops(self, name: str) -> bool:  # noqa: ARG002
        """Whether a run ends after a tap called `name` in this scope."""
        return False

    def resume(self, x: T) -> tuple[int, T]:
        """Return the index of the first block that a decoder runs, and its input, `x` for the first one of all."""
        return 0, x

    def can_skip(self, *names: str) -> bool:  # noqa: ARG002
        """Whether none of these taps needs its value; if so, count their names as tapped."""
        return True

    def attention_options(self) -> dict[str, Any]:
        """Return further options of a call of attention in this scope: the dropout of training."""
        return {}

    def wants_attention(self) -> bool:
        """Whether `record_attention` would store a map in this scope."""
        return False

    def record_attention(self, inputs: Any, stats: Any = None) -> None:  # noqa: ARG002
        """Store the map of a call of attention: its inputs without values, and the `stats` of its rows, if computed."""
        return

    @property
    def leaves(self) -> Sequence[Any]:
        """The variables with respect to which the gradients of steps are taken."""
        return ()

    def checkpoint(self) -> tuple[Recorder, Recorder]:
        """Return the recorders of a part of a run that keeps nothing for gradients, and of the same part again."""
        return self, self

    def set_metadata(self, model: str, encodings: Sequence[Any], targets: Sequence[Any] = ()) -> None:  # noqa: ARG002
        """Store the model's name, and the tokens of each batch entry, of an encoder–decoder also of its target."""
        return

    def set_layout(self, layout: Any) -> None:  # noqa: ARG002
        """Say where the texts of the batch stand in the values that are computed from here on, a ``TextLayout``."""
        return

    def check_matched(self) -> None:
        """Raise after a model's run if a name to record, an edit, or the step at which to stop, matched no step."""
        return


class RunStopped(RegardError):
    """What a recorder raises at the step after which a run ends; a model catches it.

    Parameters
    ----------
    step : str
    value : array
        The value of that step; the queries, if a map gives that step.
    """

    def __init__(self, step: str, value: Any) -> None:
        super().__init__(f"the run ended after {step!r}, as stop= asked, so that it has no result")
        self.step, self.value = step, value


class NullRecorder(Recorder):
    """The null object: a recorder with the defaults."""

    __slots__ = ()


NULL_RECORDER = NullRecorder()


def optional_tap(trace: Recorder, name: str, value: T, axes: str) -> T:
    """Return a value, tapped if it is asked for by name."""
    return trace(name, value, axes) if trace is not NULL_RECORDER and trace.asks_for(name) else value
