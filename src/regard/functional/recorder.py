"""What the equations know of recording: a tap names a value, says what its axes are, and returns it.

``scores = trace("scores", q @ k.mT, "... H T S")`` is the whole of it. The recorder is `NULL_RECORDER` unless a person
passes one that keeps values (`regard.Trace`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from regard._utils.typing import Array


class Recorder(Protocol):
    """What functional and nn code asks of a recorder: to be called at a tap, and to nest."""

    def __call__(self, name: str, value: Array, axes: str) -> Array:
        """Return `value`, or what is to be used in its place."""

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Return a context in which every name begins with ``name.``."""

    def wants(self, name: str) -> bool:
        """Tell whether a tap called `name` in this scope would be kept or edited."""

    def edits(self, name: str) -> bool:
        """Tell whether a tap called `name` in this scope would be edited, so that what comes next depends on it."""

    def can_skip(self, *names: str) -> bool:
        """Tell whether taps of all these names may go by without their values, and if so take note of the names."""

    def wants_attention(self) -> bool:
        """Tell whether `record_attention` would take note of a call in this scope."""

    def record_attention(self, problem: Any, sums: Any = None) -> None:
        """Take note of a call of attention: its queries, keys and rules, from which any weight can be had again.

        `sums` are what normalises its rows, where the kernel has found them on the way.
        """

    def set_metadata(self, model: str, encodings: Sequence[Any]) -> None:
        """Take note of what is being computed: the model's name and each text of the batch."""

    def check_edits_used(self) -> None:
        """Take note that a model's run is over: the place to complain of a name that was that of no step."""


class NullRecorder:
    """The recorder that records nothing."""

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

    def record_attention(self, problem: Any, sums: Any = None) -> None:
        """Take no note."""

    def set_metadata(self, model: str, encodings: Sequence[Any]) -> None:
        """Take no note."""

    def check_edits_used(self) -> None:
        """Take no note."""


NULL_RECORDER = NullRecorder()
