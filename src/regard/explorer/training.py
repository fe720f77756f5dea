"""The checkpoints of a training run as runs of one text, with the losses and what every head does over the steps."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.codec import short
from regard.explorer.exploration import Exploration
from regard.explorer.opening import Opening, opening_of
from regard.explorer.run import Run, make_run, shown_steps
from regard.explorer.run_store import RunStore
from regard.metrics import INDUCTION_CIRCUIT, METRICS, strongest_heads
from regard.models.output import run_traced
from regard.nn import parameters
from regard.trace import Trace
from regard.training import TrainingRun
from regard.training.thinning import mean_losses, spread

MAX_CHECKPOINTS = 100
_MAX_POINTS = 1000  # of the loss curve
_MAX_KEPT_BYTES = 256 << 20  # of models and traces


@dataclass(frozen=True)
class _Checkpoint:
    step: int
    run: int  # its number
    description: answers.RunDescription
    measures: dict[str, answers.HeadValues]


class TrainingExploration(Exploration):
    """A training run: its checkpoints as runs of one text, one of which is shown at a time.

    Parameters
    ----------
    source : TrainingRun
    text : str, optional
        By default the first held-out text of the run.
    layer, head : int, optional
        What the page opens with; by default the head with the largest induction score, if there is an induction head.
    max_checkpoints : int
        Of more, some are left out, evenly.

    Attributes
    ----------
    planned_steps : int or None
        The steps of a run that may continue: the page asks for its new checkpoints. None for one that has ended.

    Raises
    ------
    RegardError
        A checkpoint cannot be loaded; the run has no held-out text and none is given; or there is no such head.
    """

    can_be_shared = False

    def __init__(
        self,
        source: TrainingRun,
        text: str | None = None,
        *,
        layer: int | None = None,
        head: int | None = None,
        max_checkpoints: int = MAX_CHECKPOINTS,
    ) -> None:
        self.source, self._text, self._requested = source, text, (layer, head)
        self._max_checkpoints = max_checkpoints
        self._lock = threading.Lock()
        self._checkpoints: list[_Checkpoint] = []
        steps = spread(list(source.checkpoints), max_checkpoints)
        last = self._make(steps[-1])
        self.planned_steps = source.num_steps if steps[-1] < source.num_steps else None
        self._open(RunStore(keep=int(np.clip(_MAX_KEPT_BYTES // _nbytes(last), 2, 2 * max_checkpoints))), [last])
        self.opening = Opening(0, 0)  # until the heads are known
        for step in steps:
            self._add(step, last if step == steps[-1] else self._make(step))
        self.opening = self._best_head(last)
        for each in self._checkpoints:
            each.description["initial"] = self.opening.describe(last)

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the checkpoints' runs."""
        return [each.run for each in self._checkpoints]

    def fewer(self) -> TrainingExploration | None:
        """Return an exploration of every second checkpoint; None where two are left."""
        count = (len(self._checkpoints) + 1) // 2
        if count < 2:
            return None
        layer, head = self._requested
        fewer = TrainingExploration(self.source, self._text, layer=layer, head=head, max_checkpoints=count)
        fewer.story = self.story
        steps = {each.run: each.step for each in self._checkpoints}
        numbers = {each.step: each.run for each in fewer._checkpoints}
        for (run, *question), paths in self.paths_kept.items():
            if steps.get(run) in numbers:
                fewer.paths_kept[numbers[steps[run]], *question] = paths
        return fewer

    def manifest(self) -> answers.Manifest:
        """Return what the page loads first, with the losses and the measures of every head."""
        with self._lock:
            self._update()
            runs: list[Any] = [None] * (1 + max(self.numbers))  # None: of an ablation
            for each in self._checkpoints:
                runs[each.run] = each.description
            training = self._describe_training()
        title = f"Training of {self.source.name}"
        return {**super().manifest(), "title": title, "runs": runs, "training": training}

    def training(self, known: int = 0) -> answers.TrainingNews:
        """Return the losses and measures until now, and the runs of checkpoints from the number `known` on."""
        if known < 0:
            raise RegardError(f"known is a number of checkpoints, not {known}")
        with self._lock:
            self._update()
            runs: list[answers.NumberedRun] = [
                {"number": each.run, "metadata": each.description} for each in self._checkpoints[known:]
            ]
            return {"training": self._describe_training(), "runs": runs}

    @property
    def live_models(self) -> tuple[str, ...]:
        """None: the checkpoints read one text."""
        return ()

    def describe(self, number: int, opening: Opening | None = None) -> answers.RunDescription:
        """Return a run as plain data; a checkpoint is described once."""
        description = next((each.description for each in self._checkpoints if each.run == number), None)
        return description or super().describe(number, opening)

    def load_expression(self, model: Any) -> str:
        """Return the Python that loads the model of a checkpoint."""
        step = next(step for step in self.source.checkpoints if model.name == self.source.name_of(step))
        return f"regard.training.TrainingRun({str(self.source.folder)!r}).load({step})"

    def other_text(self, number: int) -> None:
        """Return None: all checkpoints read one text."""

    def _update(self) -> None:
        """Add the checkpoints that were written since the last time, not closer than a page can show."""
        last = self._checkpoints[-1].step
        new = [step for step in self.source.checkpoints if step > last]
        least = (self.planned_steps or self.source.num_steps) / self._max_checkpoints
        for step in new:
            if step == new[-1] or step - self._checkpoints[-1].step >= least:
                self._add(step, self._make(step))
                self.runs = (self.store[self._checkpoints[-1].run],)
        if self.planned_steps is not None and self._checkpoints[-1].step >= self.planned_steps:
            self.planned_steps = None

    def _make(self, step: int) -> Run:
        """Run a checkpoint on the text."""
        model = self.source.load(step)
        encoding = self.source.encode(model, self._text)
        trace = run_traced(model, encoding, Trace(maps=True, optional=shown_steps(len(encoding))))
        return make_run(trace, model, 0)

    def _add(self, step: int, run: Run) -> None:
        number = self.store.add(run, lambda: self._make(step))
        metrics = self.heads(number)["metrics"]
        description = self.describe(number)
        measures = {name: metrics[name] for name in INDUCTION_CIRCUIT}
        self._checkpoints.append(_Checkpoint(step, number, description, measures))

    def _best_head(self, last: Run) -> Opening:
        values = self._last_values("induction")
        strongest = strongest_heads("induction", values, count=1)
        least = METRICS["induction"].label_from or 0.0
        if self._requested == (None, None) and strongest and values[strongest[0]] >= least:
            return Opening(*strongest[0])
        return opening_of(last, *self._requested)

    def _last_values(self, name: str) -> np.ndarray:
        return np.array(self._checkpoints[-1].measures[name], dtype=np.float64)

    def _describe_training(self) -> answers.Training:
        losses = self.source.losses()
        steps, values, steps_per_point = mean_losses(losses.steps, losses.values, _MAX_POINTS)
        held_out = mean_losses(losses.evaluation_steps, losses.evaluation_values, _MAX_POINTS)
        written = [step for step in self.source.checkpoints if step <= self._checkpoints[-1].step]
        end = max(self._checkpoints[-1].step, *losses.steps[-1:], 1, self.planned_steps or 0)
        told = {"loss": dict(zip(steps, values, strict=True)), "held out": dict(zip(*held_out[:2], strict=True))}
        strongest = {name: strongest_heads(name, self._last_values(name)) for name in INDUCTION_CIRCUIT}
        prominent = [(at, n) for n, heads in enumerate(strongest.values()) for at in heads]
        return {
            "is_live": self.planned_steps is not None,
            "end": end,
            "loss": {"steps": steps, "values": [short(x, 5) for x in values], "steps_per_point": steps_per_point},
            "held_out": {"steps": held_out[0], "values": [short(x, 5) for x in held_out[1]]},
            "checkpoints": [
                {"step": each.step, "run": each.run, "message": _describe_step(each.step, end, told)}
                for each in self._checkpoints
            ],
            "num_left_out": max(0, len(written) - len(self._checkpoints)),
            "prominent": {f"{layer}.{head}": n for (layer, head), n in reversed(prominent)},
            "measures": [
                {
                    "key": name,
                    "title": METRICS[name].title,
                    "description": f"{METRICS[name].description} {METRICS[name].caveat}",
                    "values": [each.measures[name] for each in self._checkpoints],
                    "strongest": strongest[name],
                }
                for name in INDUCTION_CIRCUIT
            ],
        }


def _describe_step(step: int, end: int, told: dict[str, dict[int, float]]) -> str:
    """Return the step of a checkpoint, the loss until then, and the one held out if it was computed there."""
    parts = [f"step {step:,} of {end:,}"]
    if until := [at for at in told["loss"] if at <= step]:
        parts.append(f"loss {told['loss'][max(until)]:.4g}")
    if step in told["held out"]:
        parts.append(f"held out {told['held out'][step]:.4g}")
    return " · ".join(parts)


def _nbytes(run: Run) -> int:
    weights = sum(x.nbytes for x in parameters(run.model).values())
    return weights + sum(source.nbytes for layer in run.layers for source in layer.heads)
