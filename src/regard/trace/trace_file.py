"""A trace as one safetensors file."""

from __future__ import annotations

import errno
import functools
import json
import math
import mmap
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.files import open_regular
from regard.formats.safetensors import SafetensorsFile, write_safetensors
from regard.text.encoding import Encoding
from regard.trace.attention_map import AttentionMap

_FORMAT = "regard.trace/1"
_MAX_EMPTY = 1 << 20  # entries that loops over the other axes of an array without numbers may pass
_MAP = "map:"  # prefix of the names of a map's arrays


class TraceData(NamedTuple):
    """The content of a trace: model and tokens, by name the axes, in order, the values or maps, and optional steps."""

    model: str
    encodings: tuple[Encoding, ...]
    axes: dict[str, str]
    values: dict[str, np.ndarray]
    maps: dict[str, AttentionMap]
    untapped: tuple[str, ...] = ()
    target_encodings: tuple[Encoding, ...] = ()


def write_trace(path: str | os.PathLike[str], data: TraceData) -> None:
    """Write arrays as tensors, and everything else as metadata."""
    arrays, maps = dict(data.values), {}
    for name, attention_map in data.maps.items():
        parts, maps[name] = attention_map.to_arrays(f"{_MAP}{name}.")
        arrays.update(parts)
    metadata = {
        "format": _FORMAT,
        "model": data.model,
        "encodings": json.dumps([encoding.to_dict() for encoding in data.encodings]),
        "axes": json.dumps(data.axes),
        "optional": json.dumps(data.untapped),
    }
    if data.target_encodings:
        metadata["targets"] = json.dumps([encoding.to_dict() for encoding in data.target_encodings])
    write_safetensors(path, arrays, metadata | ({"maps": json.dumps(maps)} if maps else {}))


def read_trace(path: str | os.PathLike[str]) -> TraceData:
    """Read what `write_trace` wrote, memory-mapped; an error if the file is missing, damaged, or not a trace."""
    file = SafetensorsFile(path)
    if file.metadata.get("format") != _FORMAT:
        format_name = file.metadata.get("format", "none")
        raise RegardError(f"{path} is not a trace of regard: its format is {format_name!r}, not {_FORMAT!r}")
    try:
        return _parsed(file)
    except RegardError as error:
        raise RegardError(f"{path} is a damaged trace: {error}") from error
    except (KeyError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise RegardError(f"{path} is a damaged trace: {error!r}") from error


def _parsed(file: SafetensorsFile) -> TraceData:
    encodings, targets = (
        tuple(map(Encoding.from_dict, json.loads(file.metadata.get(key, "[]")))) for key in ("encodings", "targets")
    )
    letters = json.loads(file.metadata["axes"])  # in the order of computation, which the tensors are not
    arrays = {name: file[name] for name in file}
    for name, array in arrays.items():
        if array.size == 0 and (length := math.prod(filter(None, array.shape))) > _MAX_EMPTY:
            raise RegardError(f"{name} {array.shape} holds no numbers, but has axes of {length:,} entries together")
    maps = {
        name: AttentionMap.from_arrays(arrays, fields, f"{_MAP}{name}.")
        for name, fields in json.loads(file.metadata.get("maps", "{}")).items()
    }
    stored = {name for name in arrays if not name.startswith(_MAP)}
    if letters.keys() - maps.keys() != stored:
        raise RegardError(f"axes are given for {len(letters)} names, which are not those of its {len(arrays)} values")
    values = {name: arrays[name] for name in letters if name not in maps}
    axes = {name: fitted_axes(name, axes, (values | maps)[name].ndim) for name, axes in letters.items()}
    optional = tuple(str(name) for name in json.loads(file.metadata.get("optional", "[]")))
    data = TraceData(file.metadata["model"], encodings, axes, values, maps, optional, targets)
    check_batch(data)
    return data


def write_mapped(folder: Path, name: str, values: np.ndarray) -> np.ndarray:
    """Write an array to a new file of this name and return it as a read-only memory map of that.

    Raises
    ------
    RegardError
        There is such a file, or it cannot be written.
    """
    path = folder / f"{quote(name, safe='', errors='surrogatepass')}.npy"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: the text cannot be a path
        raise RegardError(f"cannot make the folder {folder}: {getattr(error, 'strerror', None) or error}") from error
    try:
        stream = path.open("xb")
        try:
            with stream:
                np.save(stream, values, allow_pickle=False)
        except BaseException:
            path.unlink()  # half of it
            raise
        return _mapped(path, values) if values.size else values  # an empty file cannot be mapped
    except FileExistsError as error:
        raise RegardError(f"{path} is there already: give folder= an empty folder") from error
    except OSError as error:
        is_full = error.errno == errno.EMFILE
        remedy = "; before Python 3.13 each array holds one open: raise ulimit -n, or record fewer" if is_full else ""
        raise RegardError(f"cannot write {path}: {error.strerror or error}{remedy}") from error


def _mapped(path: Path, values: np.ndarray) -> np.ndarray:
    """Return values as a read-only map of the end of a file, to which `np.save` has written them."""
    options: Any = {"access": mmap.ACCESS_READ}
    if sys.version_info >= (3, 13) and os.name == "posix":
        options["trackfd"] = False  # so that as many are mapped as are written, however few files may be open
    with open_regular(path) as stream:
        data = mmap.mmap(stream.fileno(), 0, **options)
    order: Any = "F" if values.flags.fnc else "C"
    return np.ndarray(values.shape, values.dtype, data, len(data) - values.nbytes, order=order)


def check_batch(data: TraceData) -> None:
    """Raise RegardError unless the number of encodings is the batch size of every value."""
    for name, axes in data.axes.items():
        batch = (data.maps[name] if name in data.maps else data.values[name]).shape[0]
        if data.encodings and axes.startswith("B ") and batch != len(data.encodings):
            raise RegardError(f"{name} has a batch of {batch}, but there are {len(data.encodings)} encodings")
    if data.target_encodings and len(data.target_encodings) != len(data.encodings):
        raise RegardError(f"there are {len(data.target_encodings)} targets of {len(data.encodings)} texts")


@functools.lru_cache(1024)
def fitted_axes(name: str, axes: str, ndim: int) -> str:
    """Return the letters of `axes` for a value of `ndim` dimensions.

    ``...`` is any number of leading axes. A value with fewer dimensions lacks the leading ones: the weights of one
    head, ``... H T S``, may be ``T S``.
    """
    letters = axes.split()
    if not all(letter.isidentifier() for letter in letters[letters[:1] == ["..."] :]):
        raise RegardError(f"{name} has the axes {axes!r}; give a letter for each, such as 'B H T S'")
    if letters[:1] == ["..."]:
        letters = letters[1:]
        if ndim > len(letters):
            missing = ndim - len(letters)
            return " ".join([*(["B"] if missing == 1 else [f"B{i}" for i in range(missing)]), *letters])
        return " ".join(letters[len(letters) - ndim :])
    if ndim != len(letters):
        raise RegardError(f"{name} has {ndim} dimensions but the axes {axes!r}")
    return " ".join(letters)
