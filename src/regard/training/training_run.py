"""A training run as its folder has it: losses, checkpoints, and a text to look at them with."""

from __future__ import annotations

import copy
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from regard._utils.errors import RegardError
from regard._utils.files import open_regular, read_limited
from regard.models import load
from regard.text.encoding import Encoding
from regard.training.run_folder import LOSSES, checkpoints, read_state
from regard.training.run_lock import check_plain


class Losses(NamedTuple):
    """The loss of each step, and of held-out batches in the steps in which it was computed.

    Parameters
    ----------
    steps, values : list
    evaluation_steps, evaluation_values : list
    """

    steps: list[int]
    values: list[float]
    evaluation_steps: list[int]
    evaluation_values: list[float]


class TrainingRun:
    """The folder of a training run that has ended, or that is being written.

    Parameters
    ----------
    folder : path
        As `train` was given it.

    Raises
    ------
    RegardError
        It has no checkpoint.

    Examples
    --------
    >>> import tempfile, regard
    >>> task = regard.training.make_task("reverse", batch_size=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = regard.train(
    ...         task.new_model(), task.batches(), steps=6, save_every=3, folder=folder, evaluation=task.held_out(1)
    ...     )
    ...     run = TrainingRun(folder)
    ...     print(list(run.checkpoints), len(run.losses().values), run.load(3).name.split(", ")[1])
    [3, 6] 6 step 3
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        paths = self.checkpoints
        if paths:
            check_plain(self.folder)
        else:
            raise RegardError(f"{self.folder} is not the folder of a training run: it has no checkpoint")
        state = read_state(list(paths.values())[-1])
        self.num_steps = int(state["options"]["steps"])  # of the whole run
        self._held_out = state.get("held_out")
        self._offset, self._identity = 0, (0, 0)
        self._losses = Losses([], [], [], [])

    @property
    def checkpoints(self) -> dict[int, Path]:
        """Those that are there now, by their steps, the first one first."""
        return checkpoints(self.folder)

    @property
    def name(self) -> str:
        """That of the folder."""
        return self.folder.resolve().name

    def name_of(self, step: int) -> str:
        """Return the name of the model of a checkpoint."""
        return f"{self.name}, step {step}"

    def load(self, step: int) -> Any:
        """Load the model of a checkpoint."""
        paths = self.checkpoints
        if step not in paths:
            raise RegardError(f"there is no checkpoint of step {step} in {self.folder}")
        return replace(load(paths[step]), name=self.name_of(step))

    def encode(self, model: Any, text: str | None = None) -> Encoding:
        """Return a text as a model of the run reads it; None: the first held-out text of the run.

        Raises
        ------
        RegardError
            The run has no held-out text.
        """
        if text is None and not self._held_out:
            raise RegardError(f"the run in {self.folder} has no held-out text: give a text")
        tokenizer = model.tokenizer
        encoding: Encoding = tokenizer.from_ids(self._held_out) if text is None else tokenizer(text)
        return encoding

    def losses(self) -> Losses:
        """Return the losses that are in the folder now; none where it has no file of them.

        Only what is new since the last call is read.
        """
        path = self.folder / LOSSES
        try:
            with open_regular(path) as file:
                status = os.fstat(file.fileno())
                if (status.st_dev, status.st_ino) != self._identity or status.st_size < self._offset:
                    self._identity, self._offset = (status.st_dev, status.st_ino), 0  # a run that was resumed
                    self._losses = Losses([], [], [], [])
                file.seek(self._offset)
                new = read_limited(file, path)
        except FileNotFoundError:
            return Losses([], [], [], [])
        except OSError as error:
            raise RegardError(f"cannot read {path}: {error.strerror or error}") from error
        end = new.rfind(b"\n") + 1  # a row that is being written, or was cut by a kill, has no end
        for line in new[:end].decode("utf-8", "replace").splitlines():
            self._add(line)
        self._offset += end
        return copy.deepcopy(self._losses)

    def _add(self, line: str) -> None:
        if line.startswith("step"):
            return
        try:
            step, loss, evaluation = line.split(",")
            number, value = int(step), float(loss)
            held_out = float(evaluation) if evaluation else math.nan
        except ValueError as error:
            raise RegardError(f"{self.folder / LOSSES} has a row that is not a step of a run: {line!r:.80}") from error
        if math.isfinite(value):
            self._losses.steps.append(number)
            self._losses.values.append(value)
        if math.isfinite(held_out):
            self._losses.evaluation_steps.append(number)
            self._losses.evaluation_values.append(held_out)
