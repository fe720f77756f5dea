"""The trace of a run of which gradients are taken with respect to steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array
from regard.functional.variable import Variable, plain
from regard.trace.step_names import did_you_mean, matches
from regard.trace.trace import Trace, names_of

__all__ = ["GradientTrace"]


class GradientTrace(Trace):
    """A trace of values that makes variables of the steps whose gradients are wanted.

    Parameters
    ----------
    at : str or iterable of str
        Names of those steps; ``*`` matches anything.
    only : str or iterable of str, optional
        Names of the values to record; those of `at` by default.
    """

    def __init__(self, at: str | Iterable[str], *, only: str | Iterable[str] | None = None) -> None:
        self._at = names_of("at", at)
        super().__init__(only=self._at if only is None else only)
        self._leaves: dict[str, tuple[Variable, str]] = {}  # of each of those steps, with its axes

    def _tap(self, name: str, value: Array, axes: str, *, is_shared: bool) -> Array:
        array = super()._tap(name, plain(value), axes, is_shared=is_shared)
        full = self._prefix + name
        if not matches(full, *self._at):
            return value
        # The gradient of the step is that of a number added to it.
        leaf = Variable(np.broadcast_to(array.dtype.type(0), array.shape))
        self._leaves[full] = leaf, axes
        return Variable(array, (value if type(value) is Variable else None, leaf), lambda d: (d, d))

    def wants(self, name: str) -> bool:
        """Whether a tap called `name` in this scope would be recorded, or has a gradient."""
        return self.edits(name) or super().wants(name)

    def edits(self, name: str) -> bool:
        """Whether a tap called `name` in this scope has a gradient, so that later steps depend on its result."""
        return matches(self._prefix + name, *self._at)

    def can_skip(self, *names: str) -> bool:  # noqa: ARG002
        """Return False: fused steps have no gradients."""
        return False

    def check_matched(self) -> None:
        """Raise after a model's run if a name of `at` matched no step."""
        for name in () if self._prefix else self._at:
            if not any(matches(step, name) for step in self._leaves):
                raise RegardError(f"at= matched no step of this run: {name!r} ({did_you_mean(name, self._taps)})")
        super().check_matched()

    @property
    def leaves(self) -> list[Variable]:
        """The variables with respect to which the gradients of the steps are taken."""
        return [leaf for leaf, _ in self._leaves.values()]

    def gradients(self, found: Sequence[Any]) -> Trace:
        """Return the gradients of `leaves` as a trace, under the names of the steps."""
        trace = Trace()
        trace.set_metadata(self.model, self.encodings)
        for (name, (_, axes)), gradient in zip(self._leaves.items(), found, strict=True):
            trace(name, gradient, axes)
        return trace
