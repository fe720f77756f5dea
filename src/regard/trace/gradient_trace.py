"""The trace of a run of which gradients are taken with respect to steps."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array
from regard.functional.variable import Rule, Variable, Vjp, plain
from regard.trace.plan import run_plan
from regard.trace.step_names import did_you_mean, matches
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
    rules : mapping of function to Rule, optional
        Of the variables, in place of gradients; see `Variable`.
    maps : bool
        As for `Trace`.
    """

    def __init__(
        self,
        at: str | Iterable[str],
        *,
        only: str | Iterable[str] | None = None,
        rules: Mapping[Vjp, Rule] | None = None,
        maps: bool = False,
    ) -> None:
        self._rules = rules
        self._at = names_of("at", at)
        super().__init__(only=self._at if only is None else only)
        self._plan = run_plan(self._only, self._at, None, keeps_maps=maps)
        self._leaves: dict[str, tuple[Variable, str]] = {}  # of each of those steps, with its axes
        self._added: list[Variable] = []  # those of a part of the run
        self._is_kept = self._is_first = True  # whether variables remember a step; whether it is not computed again

    def __call__(self, name: str, value: Array, axes: str, *, owned: bool = False) -> Array:
        """Record `value` as `Trace` does; return a variable if its gradient is wanted, else `value`."""
        full, array = self._prefix + name, plain(value)
        if self._is_first:
            array = super().__call__(name, array, axes, owned=owned)
        if not self._step_plan(full).edits:
            return value
        if self._is_first:  # the gradient of a step is that of a number added to it
            leaf = Variable(np.broadcast_to(array.dtype.type(0), array.shape), rules=self._rules)
            self._leaves[full] = leaf, axes
            self._added.append(leaf)
        if not self._is_kept:
            return array
        leaf, _ = self._leaves[full]
        return Variable(array, (value if type(value) is Variable else None, leaf), lambda d: (d, d))

    def record_attention(self, inputs: Any, stats: Any = None) -> None:
        """Store the map of a call of attention, which is not computed again."""
        if self._is_first:
            super().record_attention(inputs, stats)

    def check_matched(self) -> None:
        """Raise after a model's run if a name of `at` matched no step."""
        for name in () if self._prefix else self._at:
            if not any(matches(step, name) for step in self._leaves):
                raise RegardError(f"at= matched no step of this run: {name!r} ({did_you_mean(name, self._known())})")
        super().check_matched()

    def checkpoint(self) -> tuple[GradientTrace, GradientTrace, list[Variable]]:
        """Return two recorders for a part of a run that is computed twice: first without gradients, then for them.

        The third item is the list of the variables of its steps, to which the first run adds.
        """
        first, again = copy.copy(self), copy.copy(self)  # they share what is recorded, but not the scope
        first._is_kept, again._is_first, first._added = False, False, []
        return first, again, first._added

    @property
    def leaves(self) -> list[Variable]:
        """The variables with respect to which the gradients of the steps are taken."""
        return [leaf for leaf, _ in self._leaves.values()]

    def gradients(self, arrays: Sequence[Any]) -> Trace:
        """Return the gradients of `leaves` as a trace, under the names of the steps."""
        trace = Trace()
        trace.set_metadata(self.model, self.encodings, self.target_encodings)
        for (name, (_, axes)), gradient in zip(self._leaves.items(), arrays, strict=True):
            trace(name, gradient, axes)
        return trace
