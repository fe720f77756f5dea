"""Recorders: what functions and layers call at a tap, and the one that records nothing.

A tap names a value and its axes and returns it, ``scores = trace("scores", q @ k.mT, "... H T S")``. The default
recorder is `NULL_RECORDER`; `regard.Trace` stores values.

What a run does at each step is decided before it computes the step: a layer reads the plan of steps that cost
something, and chooses between the steps one by one and one fused call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol, TypeVar

from regard._utils.errors import RegardError

T = TypeVar("T")


class RecordingPlan(NamedTuple):
    """What a run does at some steps of a scope."""

    asked: frozenset[str] = frozenset()  # the steps whose values it needs: recorded, edited, or the last of the run
    edited: frozenset[str] = frozenset()  # the steps whose tap may return another value, on which later ones depend
    stops: bool = False  # whether it ends after one of them
    keeps_map: bool = False  # whether `record_attention` stores the map that gives one of them, which is then not asked
    dropout: float = 0.0  # the rate of dropout of the attention weights in training
    seed: tuple[int, ...] = ()  # of that dropout


NO_PLAN = RecordingPlan()


def _unchanged(value: T) -> T:
    return value


_NO_SCOPE, _NO_RUN = nullcontext(), nullcontext(_unchanged)  # entered in every layer, so made once


class Recorder(Protocol):
    """The interface of a recorder; its defaults record nothing.

    Functions and layers call it, enter a `scope`, read a `plan`, `note` steps that they do not tap, and record maps of
    attention. The other methods are for models, which begin and end a run.
    """

    def __call__(self, name: str, value: T, axes: str, *, owned: bool = False) -> T:  # noqa: ARG002
        """Return `value`, or the value to use instead.

        If it is `owned`, nothing else refers to it, so that a recorder may store it without a copy.
        """
        return value

    def scope(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return a context in which every name begins with ``name.``."""
        return _NO_SCOPE

    def plan(self, *names: str, optional: tuple[str, ...] = ()) -> RecordingPlan:  # noqa: ARG002
        """Return what the run does at steps of this scope.

        An `optional` step, of a value that a run does not need or that takes much memory, is only asked for by its own
        name, and to be tapped only then.
        """
        return NO_PLAN

    def note(self, *names: str) -> None:  # noqa: ARG002
        """Count steps of this scope as steps of the run: they are inside a fused call, or their taps follow."""
        return

    def record_attention(self, inputs: Any, stats: Any = None) -> None:  # noqa: ARG002
        """Store the map of a call of attention, if the plan keeps it: its inputs without values.

        `stats` are those of its rows, if they are computed.
        """
        return

    def run(
        self,
        model: str,  # noqa: ARG002
        encodings: Sequence[Any],  # noqa: ARG002
        targets: Sequence[Any] = (),  # noqa: ARG002
        *,
        copies: bool = True,  # noqa: ARG002
        source: Any = None,  # noqa: ARG002
    ) -> AbstractContextManager[Callable[[T], T]]:
        """Return the context of a run of a model, at whose end every name must have matched a step.

        Its value is the function through which the result leaves the run.

        Parameters
        ----------
        model : str
            Its name.
        encodings, targets : sequence of Encoding
            The tokens of each batch entry; of an encoder–decoder also those of its target.
        copies : bool
            False if no value of the run is written to, so that a recorder may store large ones without a copy.
        source : optional
            The model itself, for what is computed from the record and its weights.
        """
        return _NO_RUN

    def set_layout(self, layout: Any) -> None:  # noqa: ARG002
        """Say where the texts of the batch stand in the values that are computed from here on, a ``TextLayout``."""
        return

    def resume(self, x: T) -> tuple[int, T]:
        """Return the index of the first block that a decoder runs, and its input, `x` for the first one of all."""
        return 0, x

    def checkpoint(self) -> tuple[Recorder, Recorder, Sequence[Any]]:
        """Return two recorders for a part of a run that is computed twice: first without gradients, then for them.

        The third item is the list of the variables with respect to which gradients are taken; the first run fills it.
        """
        return self, self, ()


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
    return trace(name, value, axes) if trace is not NULL_RECORDER and trace.plan(optional=(name,)).asked else value


class Scoped:
    """The scopes of a recorder: names are recorded with a prefix."""

    _prefix = ""

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Return a context in which every name begins with ``name.``; scopes nest."""
        return _Scope(self, name)


class _Scope:
    """A context that extends the prefix of a recorder. Not a generator: entered several times in every layer."""

    __slots__ = ("_name", "_outer", "_recorder")

    def __init__(self, recorder: Scoped, name: str) -> None:
        self._recorder, self._name, self._outer = recorder, name, ""

    def __enter__(self) -> None:
        self._outer = self._recorder._prefix
        self._recorder._prefix = f"{self._outer}{self._name}."

    def __exit__(self, *_: object) -> None:
        self._recorder._prefix = self._outer


class Steps(NamedTuple):
    """The names of the steps of a part of a model, in the order in which they are computed."""

    names: tuple[str, ...]
    optional: tuple[str, ...]  # which are tapped only if they are asked for


class StepList(Scoped, Recorder):
    """A recorder that asks for every step, so that none is skipped, and lists their names."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._optional: dict[str, None] = {}

    def __call__(self, name: str, value: T, axes: str, *, owned: bool = False) -> T:  # noqa: ARG002
        """List the name and return `value`."""
        self._names[self._prefix + name] = None
        return value

    def plan(self, *names: str, optional: tuple[str, ...] = ()) -> RecordingPlan:
        """Return a plan that asks for all of these steps."""
        self._optional.update(dict.fromkeys(self._prefix + name for name in optional))
        return RecordingPlan(asked=frozenset((*names, *optional)))

    def steps(self) -> Steps:
        """Return what was listed."""
        return Steps(tuple(name for name in self._names if name not in self._optional), tuple(self._optional))
