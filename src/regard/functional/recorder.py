"""Recorders: what functions and layers call at a tap, and the one that records nothing.

A tap names a value and its axes and returns it, ``scores = trace("scores", q @ k.mT, "... H T S")``. The default
recorder is `NULL_RECORDER`; `regard.Trace` stores values.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from regard._utils.typing import Array


class Recorder(Protocol):
    """The interface of a recorder."""

    def __call__(self, name: str, value: Array, axes: str) -> Array:
        """Return `value`, or the value to use instead."""

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Return a context in which every name begins with ``name.``."""

    def wants(self, name: str) -> bool:
        """Whether a tap called `name` in this scope would be recorded or edited."""

    def edits(self, name: str) -> bool:
        """Whether a tap called `name` in this scope would be edited, so that later steps depend on it."""

    def can_skip(self, *names: str) -> bool:
        """Whether none of these taps needs its value; if so, count their names as tapped."""

    def wants_attention(self) -> bool:
        """Whether `record_attention` would store a map in this scope."""

    def record_attention(self, inputs: Any, stats: Any = None) -> None:
        """Store the map of a call of attention: its inputs without values, and the `stats` of its rows, if computed."""

    def set_metadata(self, model: str, encodings: Sequence[Any]) -> None:
        """Store the model's name, and the tokens of each batch entry."""

    def check_edits_used(self) -> None:
        """Raise after a model's run if an edit matched no step."""


class NullRecorder:
    """The null object: records nothing."""

    __slots__ = ()

    def __call__(self, name: str, value: Array, axes: str) -> Array:  # noqa: ARG002
        """Return `value`."""
        return value

    def scope(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return a context that does nothing."""
        return nullcontext()

    def wants(self, name: str) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def edits(self, name: str) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def can_skip(self, *names: str) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def wants_attention(self) -> bool:
        """Return False."""
        return False

    def record_attention(self, inputs: Any, stats: Any = None) -> None:
        """Do nothing."""

    def set_metadata(self, model: str, encodings: Sequence[Any]) -> None:
        """Do nothing."""

    def check_edits_used(self) -> None:
        """Do nothing."""


NULL_RECORDER = NullRecorder()
