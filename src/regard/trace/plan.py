"""What a run does at each step, decided from the names that it was given: to record, to edit, and where to end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias, TypeVar

from regard.functional.recorder import RecordingPlan
from regard.functional.scores.stages import QUADRATIC_STEPS, STAGES
from regard.trace.step_names import asks_by_name, canonical_names, matches, preferred_names, quadratic_stage

_MOST_DECIDED = 1 << 15
K = TypeVar("K")
V = TypeVar("V")

Means: TypeAlias = Callable[[str, str], bool]
"""Whether a pattern names a step, and not another of the run in its place."""


class StepPlan(NamedTuple):
    """What a run does at one step."""

    is_recorded: bool  # as an array
    edits: tuple[str, ...]  # the names, or patterns, whose functions edit it
    is_last: bool


class RunPlan:
    """What a run does at each of its steps; made by `run_plan`, and shared by runs that were given the same names.

    What is decided for a step is stored, unless a name may mean another step in its place, if the run has that one.

    Parameters
    ----------
    only : tuple of str, optional
        Names of the steps to record, or patterns; None for all.
    edited : tuple of str
        Names of the steps whose taps return other values.
    stop : str, optional
        The name of the step after which the run ends.
    keeps_maps : bool
        Whether maps of attention are stored in place of the arrays ``scores`` … ``weights``.

    Attributes
    ----------
    asked : tuple of str
        All of these names.
    """

    def __init__(self, only: tuple[str, ...] | None, edited: tuple[str, ...], stop: str | None, keeps_maps: bool):
        self.only, self.edited, self.keeps_maps = only, edited, keeps_maps
        self._last = () if stop is None else (stop,)
        self.asked = (*(only or ()), *edited, *self._last)
        self._is_ambiguous = any(len(canonical_names(pattern)) > 1 for pattern in self.asked)
        self._steps: tuple[dict[str, StepPlan], ...] = ({}, {})  # of steps, and of those that are optional in a run
        self._plans: dict[tuple[str, tuple[str, ...], tuple[str, ...]], RecordingPlan] = {}

    def step(self, full: str, means: Means, *, is_optional: bool = False) -> StepPlan:
        """Return what the run does at a step, by its full name; `means` is for a name that stands for several steps.

        A pattern that does not end with the name of an `is_optional` step does not name it. The same name may be that
        of a step which other models always tap.
        """
        step = self._steps[is_optional].get(full)
        if step is None:
            step = self._decide(full, means, is_optional)
            if not self._depends_on_run(full):
                _store(self._steps[is_optional], full, step)
        return step

    def plan(self, prefix: str, names: tuple[str, ...], optional: tuple[str, ...], means: Means) -> RecordingPlan:
        """Return what the run does at some steps of a scope, as `Recorder.plan` has it."""
        key = prefix, names, optional
        plan = self._plans.get(key)
        if plan is None:
            plan = self._combine(prefix, names, optional, means)
            if not self._is_ambiguous or not any(self._depends_on_run(prefix + x) for x in (*names, *optional)):
                _store(self._plans, key, plan)
        return plan

    def _combine(self, prefix: str, names: tuple[str, ...], optional: tuple[str, ...], means: Means) -> RecordingPlan:
        steps = {name: self.step(prefix + name, means) for name in names}
        steps |= {name: self.step(prefix + name, means, is_optional=True) for name in optional}
        mapped = {name for name in names if quadratic_stage(name) in STAGES and self._keeps_map(prefix + name, means)}
        asked = [name for name in names if self._needs_value(steps[name], has_map=name in mapped)]
        asked += [name for name in optional if self._naming(prefix + name, self.asked, means, is_optional=True)]
        return RecordingPlan(
            frozenset(asked),
            frozenset(name for name, step in steps.items() if step.edits),
            any(step.is_last for step in steps.values()),
            bool(mapped),
        )

    def _depends_on_run(self, full: str) -> bool:
        """Whether a name may mean another step in place of this one, or of one in its scope."""
        if not self._is_ambiguous:
            return False
        steps = (full, *_siblings(full, QUADRATIC_STEPS)) if self.keeps_maps else (full,)
        return any(preferred_names(step, pattern) for step in steps for pattern in self.asked)

    def _needs_value(self, step: StepPlan, *, has_map: bool) -> bool:
        return step.is_recorded or bool(step.edits) or (step.is_last and not has_map)

    def _decide(self, full: str, means: Means, is_optional: bool) -> StepPlan:
        stage = quadratic_stage(full) if self.keeps_maps else None
        has_array = stage is None or (stage == "weights" and self._has_edited_map(full, means))
        return StepPlan(
            has_array and self._is_named(full, means, is_optional),
            self._naming(full, self.edited, means, is_optional),
            bool(self._naming(full, self._last, means)),
        )

    def _is_named(self, full: str, means: Means, is_optional: bool = False) -> bool:
        """Whether a step is to be recorded, as an array or by its map."""
        return self.only is None or bool(self._naming(full, self.only, means, is_optional))

    def _keeps_map(self, full: str, means: Means) -> bool:
        """Whether the map of an attention is stored, of which `full` is a step."""
        return (
            self.keeps_maps
            and any(self._is_named(each, means) for each in _siblings(full, STAGES))
            and not self._has_edited_map(full, means)
        )

    def _has_edited_map(self, full: str, means: Means) -> bool:
        """Whether a step from ``scores`` to ``weights`` in the scope of `full` is edited."""
        return any(self._naming(each, self.edited, means) for each in _siblings(full, QUADRATIC_STEPS))

    def _naming(self, full: str, patterns: tuple[str, ...], means: Means, is_optional: bool = False) -> tuple[str, ...]:
        """Return the patterns that name this step of the run."""
        if not patterns:
            return ()
        named = [x for x in patterns if asks_by_name(full, x)] if is_optional else patterns
        return tuple([x for x in named if (means(x, full) if self._is_ambiguous else matches(full, x))])


@functools.lru_cache(32)
def run_plan(only: tuple[str, ...] | None, edited: tuple[str, ...], stop: str | None, keeps_maps: bool) -> RunPlan:
    """Return the plan of runs that were given these names."""
    return RunPlan(only, edited, stop, keeps_maps)


def _store(decided: dict[K, V], key: K, value: V) -> None:
    """Store what was decided; when it is too much, as with a scope for each request, what was stored is forgotten."""
    if len(decided) >= _MOST_DECIDED:
        decided.clear()
    decided[key] = value


def _siblings(full: str, steps: Iterable[str]) -> list[str]:
    """Return the names of steps in the scope of another."""
    scope, dot, _ = full.rpartition(".")
    return [f"{scope}{dot}{step}" for step in steps]
