"""The log of a training run: one row for each step, as CSV or JSON lines."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write, read_file


class Step(NamedTuple):
    """What is known after a step of training.

    Parameters
    ----------
    step : int
        From 1.
    loss : float
        Of its batches, before the update; in nats for each target.
    evaluation_loss : float, optional
        After the update, on held-out batches, in the steps in which it is computed.
    learning_rate, gradient_norm : float
        The norm before it was clipped.
    tokens : int
        Of the batches of this step, padding included.
    seconds : float
        Since this call of `train` began: in a resumed run they begin at 0 again.
    tokens_per_second : float
        In these seconds.
    """

    step: int
    loss: float
    evaluation_loss: float | None
    learning_rate: float
    gradient_norm: float
    tokens: int
    seconds: float
    tokens_per_second: float


class Log:
    """Writes a row for each step to a file; a resumed run replaces the rows after its checkpoint.

    Parameters
    ----------
    path
        ``.csv`` or ``.jsonl``.
    start : int
        The step of the checkpoint.
    fields : sequence of str
        Of `Step`; the first is ``step``.
    """

    def __init__(self, path: str | os.PathLike[str], start: int, fields: Sequence[str] = Step._fields) -> None:
        target = Path(path)
        if target.suffix not in (".csv", ".jsonl"):
            raise RegardError(f"a log is a .csv or .jsonl file, got {target.name}")
        self._is_csv = target.suffix == ".csv"
        self._fields = fields
        kept = self._rows(target, start) if start else []
        with atomic_write(target) as stream:
            header = [",".join(fields)] if self._is_csv else []
            stream.write("".join(f"{line}\n" for line in [*header, *kept]).encode())
        self._file: IO[str] = target.open("a", encoding="utf-8", newline="")

    def write(self, row: Step) -> None:
        """Add a row."""
        cells = {name: getattr(row, name) for name in self._fields}
        values = {name: x if x is None or math.isfinite(x) else None for name, x in cells.items()}  # JSON has no NaN
        if self._is_csv:
            csv.writer(self._file, lineterminator="\n").writerow("" if x is None else x for x in values.values())
        else:
            self._file.write(json.dumps(values, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rows(self, path: Path, start: int) -> list[str]:
        """Return the complete rows up to a step."""
        if (content := read_file(path)) is None:
            return []
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise RegardError(f"cannot read the log {path}: {error}") from error
        lines = text.split("\n")[self._is_csv : -1]  # after the last newline is what a kill has cut
        return [line for line in lines if self._step(line) <= start]

    def _step(self, line: str) -> int:
        try:
            return int(line.partition(",")[0] if self._is_csv else json.loads(line)["step"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise RegardError(f"the log has a row that is not a step of a run: {line!r:.80}") from error
