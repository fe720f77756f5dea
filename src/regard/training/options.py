"""What determines the numbers of a run, apart from its model and batches; whether a resumed run is the same one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number, whole_number
from regard.functional.dropout import check_rate
from regard.training.optimizer import check_betas
from regard.training.schedules import Schedule, schedule_factor


@dataclass(frozen=True)
class TrainingOptions:
    """Arguments of `train`, which has what they mean."""

    steps: int
    learning_rate: float
    schedule: Schedule
    warmup: int
    floor: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    max_norm: float | None
    accumulate: int
    dropout: float
    label_smoothing: float
    checkpoint: bool
    seed: int

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, from 0."""
        return self.learning_rate * schedule_factor(
            step, steps=self.steps, warmup=self.warmup, schedule=self.schedule, floor=self.floor
        )


def check_options(**values: Any) -> TrainingOptions:
    """Return the options of a run.

    Raises
    ------
    RegardError
        One of them is invalid.
    """
    for name, least in {"steps": 1, "accumulate": 1, "warmup": 0, "seed": 0}.items():
        values[name] = whole_number(name, values[name], least)
    for name in ("learning_rate", "weight_decay", "floor", "label_smoothing"):
        value, values[name] = values[name], finite_number(name, values[name])
        if values[name] < 0:
            raise RegardError(f"{name} must be at least 0, got {value!r}")
    check_rate(values["dropout"])
    values["dropout"], values["checkpoint"] = float(values["dropout"]), bool(values["checkpoint"])
    values["betas"], values["eps"] = check_betas(values["betas"]), finite_number("eps", values["eps"], positive=True)
    if values["max_norm"] is not None:
        values["max_norm"] = finite_number("max_norm", values["max_norm"], positive=True)
    options = TrainingOptions(**values)
    options.rate(0)
    return options


def known_options(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return those entries of a checkpoint that are options."""
    return {field.name: stored[field.name] for field in fields(TrainingOptions) if field.name in stored}


def describe_run(options: TrainingOptions, data: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the options and the description of the batches as JSON has them.

    Raises
    ------
    RegardError
        The description is not a JSON object.
    """
    try:
        text = json.dumps({"options": asdict(options), "data": dict(data or {})}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RegardError(f"data must be a mapping of what JSON can hold: {error}") from error
    described: dict[str, dict[str, Any]] = json.loads(text)
    return described


def check_same_run(folder: Path, state: Mapping[str, Any], run: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise RegardError, which names all differences, unless `run` continues the run of a checkpoint.

    A run whose steps are all done may continue with more.
    """
    before = {part: dict(state[part]) for part in ("options", "data")}
    if state["step"] == before["options"]["steps"] < run["options"]["steps"]:
        before["options"]["steps"] = run["options"]["steps"]
    differences = [
        f"{name}={before[part].get(name)!r}, not {run[part].get(name)!r}"
        for part in before
        for name in {**before[part], **run[part]}
        if before[part].get(name) != run[part].get(name)
    ]
    if differences:
        raise RegardError(
            f"the run in {folder} is another one and cannot be resumed as this: it has {'; '.join(differences)}"
        )
