"""The tensors of a folder with model.safetensors, or with its shards and their index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.files import read_json_object
from regard._utils.validation import truncate
from regard.formats.safetensors import SafetensorsFile
from regard.models.checkpoint.tensors import ALL_ROWS, Tensors
from regard.models.checkpoint.weight_files import INDEX, weight_map, why_no_weights
from regard.text.words import join_names


def open_safetensors(folder: Path) -> Tensors:
    """Return the memory-mapped tensors of the checkpoint in `folder`: one file, or the shards that an index lists.

    An error if there is neither model.safetensors nor its index, which says what is there in their place, or if a file
    is missing or damaged.
    """
    path = folder / "model.safetensors"
    if path.exists():
        return SafetensorsFile(path)
    if (index := read_json_object(folder / INDEX)) is not None:
        return ShardedTensors(folder, index)
    names = [path.name for path in folder.glob("*")]
    raise RegardError(
        why_no_weights(folder, names, folder.joinpath)
        or f"there is neither model.safetensors nor {INDEX} in {folder}: not the folder of a model"
    )


class ShardedTensors:
    """The memory-mapped tensors of several safetensors files.

    The index is the content of model.safetensors.index.json, whose ``weight_map`` gives the file of each tensor; no
    name in it leads out of the folder. An error if it is malformed, or if a file is damaged; or, all at once, if files
    are missing, or tensors are in two files, not in the index, or not in the file that it gives.
    """

    def __init__(self, folder: Path, index: Mapping[str, object]) -> None:
        self._file_of = file_of = weight_map(folder / INDEX, index)
        names = sorted(set(file_of.values()))
        missing = [name for name in names if not (folder / name).is_file()]
        self._files = {name: SafetensorsFile(folder / name) for name in names if name not in missing}
        files_of: dict[str, list[str]] = {}
        for name, file in self._files.items():
            for tensor in file:
                files_of.setdefault(tensor, []).append(name)
        problems = {
            "missing files": missing,
            "tensors in two files": [truncate(tensor) for tensor, files in files_of.items() if len(files) > 1],
            "tensors not in the index": [truncate(tensor) for tensor in files_of if tensor not in file_of],
            "tensors not in the file of the index": [
                f"{truncate(tensor)} ({name})"
                for tensor, name in file_of.items()
                if name not in missing and name not in files_of.get(tensor, ())
            ],
        }
        if any(problems.values()):
            listed = "; ".join(f"{problem}: {join_names(names)}" for problem, names in problems.items() if names)
            raise RegardError(f"the files of {folder} do not match its {INDEX}: {listed}; fetch it again")

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor, from the headers."""
        return {name: shape for file in self._files.values() for name, shape in file.shapes.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a tensor, memory-mapped."""
        return self._files[self._file_of[name]][name]

    def quantized(self, name: str, rows: slice | np.ndarray = ALL_ROWS) -> tuple[np.ndarray, str] | None:
        """Return a matrix in half precision as its file does."""
        return self._files[self._file_of[name]].quantized(name, rows)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._file_of)
