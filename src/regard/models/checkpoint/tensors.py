"""From a checkpoint's tensors to the arrays that a family names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import escape, truncate
from regard.formats.safetensors import SafetensorsFile
from regard.text.files import read_file
from regard.text.words import join_names

INDEX = "model.safetensors.index.json"
_PART = re.compile(r"[\w-][\w. -]{0,200}\.safetensors", re.ASCII)  # a plain name: no folder, nothing hidden
_MOST_NAMES = 50  # that a message lists
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "pytorch_model.bin.index.json")


@dataclass(frozen=True)
class Tensor:
    """One tensor that a family needs: our name for it, the checkpoint's, and the shape in the checkpoint.

    A `transposed` one is a linear map that the checkpoint stores as (outputs, inputs), the other way round.
    """

    name: str
    stored: str
    shape: tuple[int, ...]
    transposed: bool = False


def linear_tensors(name: str, stored: str, inputs: int, outputs: int, *, bias: bool = True) -> Iterator[Tensor]:
    """Yield what a checkpoint holds of a linear map from `inputs` to `outputs` features."""
    yield Tensor(f"{name}.weight", f"{stored}.weight", (outputs, inputs), transposed=True)
    if bias:
        yield Tensor(f"{name}.bias", f"{stored}.bias", (outputs,))


def norm_tensors(name: str, stored: str, features: int) -> Iterator[Tensor]:
    """Yield what a checkpoint holds of a layer norm."""
    yield Tensor(f"{name}.weight", f"{stored}.weight", (features,))
    yield Tensor(f"{name}.bias", f"{stored}.bias", (features,))


class Tensors(Protocol):
    """The tensors of a checkpoint by the names that they have there; each is read when it is asked for."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor, known without reading it."""

    def __getitem__(self, name: str, /) -> np.ndarray:
        """Return a tensor, memory-mapped where its numbers are stored as NumPy holds them."""

    def __len__(self) -> int:
        """Return how many there are."""


def open_weights(folder: Path) -> Tensors:
    """Return the tensors of the checkpoint in `folder`, memory-mapped: one file, or several that an index lists.

    Raises
    ------
    RegardError
        There is neither model.safetensors nor its index, or one of the files is missing or damaged. A pickle is
        refused, with the way to convert it.
    """
    path = folder / "model.safetensors"
    if path.exists():
        return SafetensorsFile(path)
    if (index := read_file(folder / INDEX)) is not None:
        return ShardedTensors(folder, index)
    pickles = sorted(p.name for ending in _PICKLES for p in folder.glob(ending))
    if pickles:
        raise RegardError(
            f"{folder} holds its weights as a pickle ({join_names(pickles)}), which could run any code when it is "
            f"read; convert it where you trust it: transformers' "
            f'AutoModel.from_pretrained("{folder}").save_pretrained(NEW_FOLDER) writes model.safetensors'
        )
    raise RegardError(f"there is no model.safetensors in {folder}, nor its index: not the folder of a model")


class ShardedTensors:
    """The tensors of a checkpoint that is stored in several safetensors files, memory-mapped.

    Parameters
    ----------
    folder
        Where the files lie. No name in the index leads out of it.
    index
        The content of model.safetensors.index.json, whose ``weight_map`` says which file each tensor is in.

    Raises
    ------
    RegardError
        The index is not sound, or a file is damaged; or, all at once: files that are missing, tensors that are not
        where the index says, that are in two files, or that the index does not know.
    """

    def __init__(self, folder: Path, index: bytes) -> None:
        where = _weight_map(folder / INDEX, index)
        names = sorted(set(where.values()))
        missing = [name for name in names if not (folder / name).is_file()]
        self._files = {name: SafetensorsFile(folder / name) for name in names if name not in missing}
        found: dict[str, list[str]] = {}
        for name, file in self._files.items():
            for tensor in file:
                found.setdefault(tensor, []).append(name)
        problems = {
            "missing are the files": missing,
            "in two files are": [truncate(tensor) for tensor, files in found.items() if len(files) > 1],
            "the index does not know": [truncate(tensor) for tensor in found if tensor not in where],
            "not where the index says are": [
                f"{truncate(tensor)} ({name})"
                for tensor, name in where.items()
                if name not in missing and name not in found.get(tensor, ())
            ],
        }
        if any(problems.values()):
            told = "; ".join(f"{what} {join_names(which)}" for what, which in problems.items() if which)
            raise RegardError(f"the files of {folder} are not those of its {INDEX}: {told}; fetch it again")
        self._where = where

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor, known without reading it."""
        return {name: shape for file in self._files.values() for name, shape in file.shapes.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a tensor, memory-mapped."""
        return self._files[self._where[name]][name]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._where)


def _weight_map(path: Path, content: bytes) -> dict[str, str]:
    try:
        index = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise RegardError(f"{path} is not valid JSON: {error}; fetch the file again") from error
    where = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(where, dict) or not where or not all(isinstance(name, str) for name in where.values()):
        raise RegardError(f"{path} needs a weight_map that says which file each tensor is in; fetch the file again")
    if strange := [name for name in dict.fromkeys(where.values()) if not _PART.fullmatch(name)]:
        raise RegardError(
            f"{path} names {join_names(map(truncate, strange))}, which are no safetensors files beside it"
        )
    return where


def map_tensors(
    file: Tensors,
    wanted: Iterable[Tensor],
    *,
    prefixes: tuple[str, ...] = ("",),
    unused: tuple[str, ...] = (),
    endings: Mapping[str, str] | None = None,
    dtype: Any = np.float32,
    path: str | Path = "",
) -> dict[str, np.ndarray]:
    """Return the wanted tensors by our names, in `dtype`; without a copy where they are stored so.

    Parameters
    ----------
    file
        The checkpoint's tensors.
    wanted
        What the family needs.
    prefixes
        What may stand before all names: the same encoder is ``encoder.…`` alone and ``bert.encoder.…`` inside a
        model with a task head. The first that fits is taken.
    unused
        Beginnings of names that may be there and have no part in the hidden states.
    endings
        Old endings of names and what they are called now.
    path
        For messages.

    Raises
    ------
    RegardError
        Names the tensors that are missing, unexpected or of another shape, at once (of thousands the first ones);
        or the first with numbers that are not finite.
    """
    wanted = list(wanted)
    found = file.shapes
    spelled = _spelled(found, endings or {})
    shapes = {name: found[old] for name, old in spelled.items()}
    prefix = max(prefixes, key=lambda p: sum(p + tensor.stored in shapes for tensor in wanted))
    stored = {prefix + tensor.stored: tensor for tensor in wanted}
    problems = []
    missing = [name for name in stored if name not in shapes]
    if missing:
        problems.append(f"missing {join_names(missing, _MOST_NAMES)}")
    unexpected = [name for name in shapes if name not in stored and not name.removeprefix(prefix).startswith(unused)]
    if unexpected:
        problems.append(f"unexpected {join_names(map(escape, unexpected), _MOST_NAMES)}")
    misshapen = [name for name in stored if name in shapes and tuple(shapes[name]) != stored[name].shape]
    problems += [
        f"{name} has shape {tuple(shapes[name])}, the configuration asks for {stored[name].shape}"
        for name in misshapen[:_MOST_NAMES]
    ]
    if problems:
        raise RegardError(f"the tensors of {path} do not fit its configuration: {'; '.join(problems)}")

    weights = {}
    for name, tensor in stored.items():
        array = file[spelled[name]]
        if array.dtype.kind != "f":
            raise RegardError(f"{name} of {path} is stored as {array.dtype}, not as floating-point numbers")
        with np.errstate(all="ignore"):
            array = array.astype(dtype, copy=False)
            if not np.isfinite(array.sum()) and not np.isfinite(array).all():  # the sum is quick, but may overflow
                raise RegardError(f"{name} of {path} has numbers that are not finite in {array.dtype}; fetch it again")
        weights[tensor.name] = array.T if tensor.transposed else array
    return weights


def _spelled(names: Iterable[str], endings: Mapping[str, str]) -> dict[str, str]:
    """Return for each of `names`, with its ending renewed, how the file spells it."""
    spelled = {name: name for name in names}
    for old in list(spelled):
        for ending, renewed in endings.items():
            if old.endswith(ending) and (new := old.removesuffix(ending) + renewed) not in spelled:
                spelled[new] = spelled.pop(old)
    return spelled
