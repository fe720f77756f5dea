"""The trace of a run of which gradients are taken with respect to steps."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array
from regard.functional.variable import Variable, plain
from regard.trace.step_names import canonical_names, did_you_mean, matches
from regard.trace.trace import Trace, names_of

__all__ = ["GradientTrace"]


class GradientTrace(Trace):
    """A trace of values that makes variables of the steps whose gradients are wanted.

    Parameters
    ----------
    at : str or iterable of str
        Names of those steps; ``*`` as for `Trace`.
    only : str or iterable of str, optional
        Names of the values to record; those of `at` by default.
    """

    def __init__(self, at: str | Iterable[str], *, only: str | Iterable[str] | None = None) -> None:
        self._at = names_of("at", at)
        super().__init__(only=self._at if only is None else only)
        self._asked = (*self._asked, *self._at)
        self._is_ambiguous |= any(len(canonical_names(name)) > 1 for name in self._at)
        self._leaves: dict[str, tuple[Variable, str]] = {}  # of each of those steps, with its axes
        self._is_kept = self._is_first = True  # whether variables remember a step; whether it is not computed again

    def _tap(self, name: str, value: Array, axes: str, *, is_shared: bool) -> Array:
        full, array = self._prefix + name, plain(value)
        if self._is_first:
            array = super()._tap(name, array, axes, is_shared=is_shared)
        if not self._is_meant(full, self._at):
            return value
        if self._is_first:  # the gradient of a step is that of a number added to it
            self._leaves[full] = Variable(np.broadcast_to(array.dtype.type(0), array.shape)), axes
        if not self._is_kept:
            return array
        leaf, _ = self._leaves[full]
        return Variable(array, (value if type(value) is Variable else None, leaf), lambda d: (d, d))

    def wants(self, name: str) -> bool:
        """Whether a tap called `name` in this scope would be recorded, or has a gradient."""
        return self.edits(name) or super().wants(name)

    def edits(self, name: str) -> bool:
        """Whether a tap called `name` in this scope has a gradient, so that later steps depend on its result."""
        return self._is_meant(self._prefix + name, self._at)

    def can_skip(self, *names: str) -> bool:  # noqa: ARG002
        """Return False: fused steps have no gradients."""
        return False

    def check_matched(self) -> None:
        """Raise after a model's run if a name of `at` matched no step."""
        for name in () if self._prefix else self._at:
            if not any(matches(step, name) for step in self._leaves):
                raise RegardError(f"at= matched no step of this run: {name!r} ({did_you_mean(name, self._known())})")
        super().check_matched()

    def checkpoint(self) -> tuple[GradientTrace, GradientTrace]:
        """Return the recorders of a part of a run that keeps nothing for gradients, and of the same part again."""
        first, again = copy.copy(self), copy.copy(self)  # they share what is recorded, but not the scope
        first._is_kept, again._is_first = False, False
        return first, again

    @property
    def leaves(self) -> list[Variable]:
        """The variables with respect to which the gradients of the steps are taken."""
        return [leaf for leaf, _ in self._leaves.values()]

    def gradients(self, found: Sequence[Any]) -> Trace:
        """Return the gradients of `leaves` as a trace, under the names of the steps."""
        trace = Trace()
        trace.set_metadata(self.model, self.encodings, self.target_encodings)
        for (name, (_, axes)), gradient in zip(self._leaves.items(), found, strict=True):
            trace(name, gradient, axes)
        return trace
