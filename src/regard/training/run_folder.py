"""The folder of a training run: one folder for each checkpoint, written whole, and the loss of every step."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.files import read_json_object, sync_folder, write_json
from regard._utils.validation import truncate
from regard.formats.safetensors import SafetensorsFile, write_safetensors
from regard.text.words import join_names
from regard.training.log import Log
from regard.training.optimizer import AdamW
from regard.training.trainable import Trainable

_CHECKPOINT = re.compile(r"step-(\d+)")
_PART = re.compile(r"\.(step-\d+\.|regard-)[0-9a-f]{16}\.part")
_OPTIMIZER, _STATE = "optimizer.safetensors", "training.json"
LOSSES = "losses.csv"
_LOSS_FIELDS = ("step", "loss", "evaluation_loss")  # what a run determines: no times


def checkpoints(folder: str | os.PathLike[str]) -> dict[int, Path]:
    """Return the checkpoints of a run by their steps, the first one first."""
    is_folder = os.path.isdir(folder)  # noqa: PTH112 (Path.is_dir raises for a name that is too long)
    names = [(_CHECKPOINT.fullmatch(x.name), x) for x in Path(folder).iterdir()] if is_folder else []
    return dict(sorted((int(match[1]), x) for match, x in names if match and x.is_dir()))


def save_checkpoint(folder: Path, trainable: Trainable, optimizer: AdamW, state: dict[str, Any]) -> Path:
    """Write a checkpoint under the number of its step, and return its folder.

    It is written under another name, and renamed when all of it is on the disk: what has the name is complete.
    """
    target = folder / f"step-{state['step']:06d}"
    part = folder / f".{target.name}.{secrets.token_hex(8)}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if _PART.fullmatch(old.name):  # of a run that was killed
                shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
        trainable.save(part)
        moments = {"first": optimizer.first, "second": optimizer.second}
        arrays = {
            f"{kind}.{name}": x for kind, flat in moments.items() for name, x in trainable.by_tensor(flat).items()
        }
        write_safetensors(part / _OPTIMIZER, arrays)
        write_json(part / _STATE, {**state, "optimizer_steps": optimizer.steps})
        if target.exists():
            shutil.rmtree(target)
        part.rename(target)
        sync_folder(folder)
    except OSError as error:
        raise RegardError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def open_losses(folder: Path, start: int) -> Log:
    """Return the writer of the loss of every step after `start`; later rows of an interrupted run are removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegardError(f"cannot write {folder}: {error.strerror or error}") from error
    return Log(folder / LOSSES, start, _LOSS_FIELDS)


def read_state(path: Path) -> dict[str, Any]:
    """Return what a checkpoint holds apart from the model and the moments; an error if it is damaged."""
    state = read_json_object(path / _STATE)
    if state is None:
        raise RegardError(f"{path} is not a checkpoint of a training run: it has no {_STATE}")
    fields = {"step": int, "optimizer_steps": int, "options": dict, "data": dict}
    wrong = [name for name, kind in fields.items() if not isinstance(state.get(name), kind)]
    if not wrong and not (isinstance(steps := state["options"].get("steps"), int) and 0 < steps < 1 << 63):
        wrong = ["options.steps"]
    if wrong:
        raise RegardError(f"{path} cannot be resumed or shown: {_STATE} lacks {join_names(wrong)}")
    named = _CHECKPOINT.fullmatch(path.name)
    steps = {state["step"], state["optimizer_steps"], *([int(named[1])] if named else [])}
    if len(steps) > 1 or state["step"] < 0:
        raise RegardError(
            f"{path} cannot be resumed or shown: by its {_STATE} it is of step {state['step']}, and its optimizer has "
            f"made {truncate(state['optimizer_steps'])} steps; the folder may have been renamed"
        )
    return state


def load_checkpoint(path: Path, trainable: Trainable, optimizer: AdamW) -> None:
    """Read a checkpoint into a model and an optimizer.

    Raises
    ------
    RegardError
        A file is missing or damaged, or the tensors are those of another model.
    """
    state = read_state(path)
    model, moments = SafetensorsFile(path / "model.safetensors"), SafetensorsFile(path / _OPTIMIZER)
    expected = {name: x.shape for name, x in trainable.tensors.items()}
    if dict(model.shapes) != expected:
        raise RegardError(f"{path} holds another model: its tensors have other names or shapes")
    kinds = {"first": optimizer.first, "second": optimizer.second}
    if dict(moments.shapes) != {f"{kind}.{name}": shape for kind in kinds for name, shape in expected.items()}:
        raise RegardError(f"{path} is damaged: the moments in {_OPTIMIZER} are those of other tensors")
    for name, x in trainable.tensors.items():
        x[...] = model[name]
    trainable.update_computed()
    for kind, flat in kinds.items():
        for name, x in trainable.by_tensor(flat).items():
            x[...] = moments[f"{kind}.{name}"]
    if not np.isfinite(optimizer.first).all() or not (optimizer.second >= 0).all() or np.isinf(optimizer.second).any():
        raise RegardError(f"{path} is damaged: the moments in {_OPTIMIZER} are not finite, or squares are negative")
    optimizer.steps = state["optimizer_steps"]
