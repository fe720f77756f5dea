"""Arrays in a safetensors file: memory-mapped for reading, written atomically.

The format (https://huggingface.co/docs/safetensors): eight bytes with the length of the header, the header
as JSON, then the bytes of all tensors one after the other, little-endian and in C order.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write
from regard._utils.validation import truncate
from regard.formats.tensor_file import TensorFile

_MAX_HEADER = 100_000_000  # bytes; limit of the format
_MAX_TENSORS = 2**17  # all 163 files of DeepSeek-V3 have 91,991 together; reading as many takes two seconds
_MAX_AXES = 64  # limit of NumPy
_PICKLE_SUFFIXES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}

# In the order of the reference implementation, which writes tensors of the last of these dtypes first.
_DTYPES = {
    "BOOL": np.dtype("?"),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "U16": np.dtype("<u2"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),  # no bfloat16 in NumPy: the upper 16 bits of a float32
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
    "U64": np.dtype("<u8"),
}
_KINDS = list(_DTYPES)
_KIND_OF = {(dtype.kind, dtype.itemsize): kind for kind, dtype in _DTYPES.items() if kind != "BF16"}


@dataclass(frozen=True, eq=False)
class StreamedTensor:
    """A tensor that is computed while it is written, part by part, so that it is never in memory as a whole.

    Parameters
    ----------
    kind : str
        Its dtype in the file: ``"F32"``, or ``"BF16"``, whose parts are 16-bit integers with its bits.
    shape : tuple of int
    parts : function
        Returns the parts, whose numbers one after the other are those of the tensor, in C order.
    """

    kind: str
    shape: tuple[int, ...]
    parts: Callable[[], Iterable[NDArray[Any]]]

    @property
    def nbytes(self) -> int:
        """The bytes in the file."""
        return math.prod(self.shape) * _DTYPES[self.kind].itemsize


@dataclass(frozen=True)
class _Tensor:
    kind: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorsFile(TensorFile):
    """The arrays of a safetensors file by name, each read on access.

    ``file[name]`` is a read-only view of the memory-mapped file, so opening costs the same for any size. BF16 tensors
    are converted to float32, an exact copy. The whole header is checked on opening. Nothing has to be closed: the map
    lives as long as this object or an array from it. (The file must not be truncated in that time; replacing it, as
    `write_safetensors` does, is safe.)

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    RegardError
        The file is missing, unreadable, truncated, in another format (such as a pickle) or malformed, or has more than
        131,072 tensors.
        On ``file[name]``: NumPy lacks the dtype (the F8 family).
    """

    def _parse(self) -> None:
        self._data, self._tensors, self.metadata = _parsed(self._bytes, self.path.suffix)

    def _mapped(self) -> mmap.mmap:
        if self.path.is_dir():
            raise ValueError("it is a folder; give a .safetensors file in it")
        return super()._mapped()

    def __getitem__(self, name: str) -> NDArray[Any]:
        tensor = self._tensors[name]
        if tensor.kind not in _DTYPES:
            raise RegardError(
                f"tensor {truncate(name)} of {self.path} is {truncate(tensor.kind)}, which NumPy cannot hold;"
                f" convert it to one of {', '.join(_DTYPES)}"
            )
        if tensor.start == tensor.stop:
            flat = np.empty(0, _DTYPES[tensor.kind])
        else:
            stored, start = _DTYPES[tensor.kind], self._data + tensor.start
            flat = np.frombuffer(self._bytes, stored, math.prod(tensor.shape), start)
        if tensor.kind == "BF16":
            flat = np.left_shift(flat, 16, dtype=np.uint32).view(np.float32)  # one copy only
        elif tensor.kind == "BOOL" and (flat.view(np.uint8) > 1).any():
            raise RegardError(f"tensor {truncate(name)} of {self.path} is BOOL but has bytes other than 0 and 1")
        array = flat.reshape(tensor.shape)
        array.flags.writeable = False
        return array

    def quantized(self, name: str, rows: slice | NDArray[Any] = slice(None)) -> tuple[NDArray[np.uint8], str] | None:
        """Return the bytes of rows of a matrix in half precision, ``rows bytes``, and "F16" or "BF16".

        Those of a slice are a view of the file. None for other dtypes and other shapes.
        """
        tensor = self._tensors[name]
        if tensor.kind not in ("F16", "BF16") or len(tensor.shape) != 2 or tensor.start == tensor.stop:
            return None
        flat = np.frombuffer(self._bytes, np.uint8, tensor.stop - tensor.start, self._data + tensor.start)
        return flat.reshape(tensor.shape[0], -1)[rows], tensor.kind

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtype of each tensor as in the file: ``"F32"``, ``"BF16"``."""
        return {name: tensor.kind for name, tensor in self._tensors.items()}


def _parsed(file: mmap.mmap, suffix: str) -> tuple[int, dict[str, _Tensor], dict[str, str]]:
    """Return the start of the data, the tensors and the metadata; raise ValueError for a malformed header."""
    if file[8:9] != b"{" and (other := _other_format(file[:8], suffix)):
        raise ValueError(other)
    length = int.from_bytes(file[:8], "little")
    if length > _MAX_HEADER or file[8:9] not in (b"{", b""):
        raise ValueError("it is not a safetensors file: no header at its start")
    data = 8 + length
    if len(file) < max(data, 9):
        raise ValueError(_cut_short(max(data, 9), len(file)))
    try:
        text = file[8:data].decode()
        header = json.loads(text, object_pairs_hook=_ObjectHook(text), parse_constant=_no_number)
    except _TooManyTensors:
        raise
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header is not valid JSON ({error}); fetch it again") from error
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"its __metadata__ must map strings to strings, got {truncate(metadata)}")
    tensors = {name: _tensor(name, fields) for name, fields in header.items()}
    _check_layout(tensors, data, len(file))
    return data, tensors, metadata


def _other_format(start: bytes, suffix: str) -> str | None:
    """Describe another format, as far as the first bytes or the suffix identify it."""
    if start.startswith(b"GGUF"):
        return "it is a GGUF file, not safetensors"
    if start == b"version ":
        return "it is a git-lfs pointer, not the file itself; run `git lfs pull` to fetch the file"
    pickled = start.startswith((b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"))
    if pickled or suffix.lower() in _PICKLE_SUFFIXES:
        return (
            "it is a pickle, which can run code when it is opened; convert it where torch is installed:"
            " safetensors.torch.save_file(torch.load(path, weights_only=True), 'model.safetensors')"
        )
    return None


def _tensor(name: str, fields: object) -> _Tensor:
    where = f"tensor {truncate(name)}"
    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{where} must have dtype, shape and data_offsets, got {truncate(fields)}")
    kind, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(kind, str):
        raise ValueError(f"{where} has dtype {truncate(kind)}, which is not a string")
    if not _are_counts(shape) or len(shape) > _MAX_AXES:
        raise ValueError(f"{where} has shape {truncate(shape)}, which is not a list of at most 64 sizes")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"{where} has data_offsets {truncate(offsets)}, which are not a start and an end")
    start, stop = offsets
    # Also next to a zero: NumPy refuses the shape (0, 2**62, 2**62).
    if math.prod(max(size, 1) for size in shape) >= 2**59:
        raise ValueError(f"{where} has shape {truncate(shape)}, which is too large for any memory")
    if kind in _DTYPES and stop - start != (needed := math.prod(shape) * _DTYPES[kind].itemsize):
        raise ValueError(f"{where} is {kind} {truncate(shape)} and needs {needed} bytes, but has {stop - start}")
    return _Tensor(kind, tuple(shape), start, stop)


def _check_layout(tensors: Mapping[str, _Tensor], data: int, size: int) -> None:
    """Check that each tensor starts where the previous one ends, and that the last ends with the file."""
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].stop)):
        if tensor.start != end:
            what = "overlaps the tensor before it" if tensor.start < end else "leaves a gap before it"
            raise ValueError(f"tensor {truncate(name)} {what}: it starts at byte {tensor.start} instead of {end}")
        end = tensor.stop
    if data + end > size:
        raise ValueError(_cut_short(data + end, size))
    if data + end < size:
        raise ValueError(f"its last {size - data - end} bytes belong to no tensor; fetch it again")


def _cut_short(needed: int, size: int) -> str:
    return f"it is truncated: {needed - size} of {needed} bytes are missing; fetch it again"


def _are_counts(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


class _TooManyTensors(ValueError):
    """A header has more objects than `_MAX_TENSORS`, and one each for itself and its metadata."""


class _ObjectHook:
    """Makes the objects of a header, whose names are distinct and whose text is Unicode; stops if they are too many."""

    def __init__(self, header: str) -> None:
        self._can_have_surrogates = "\\u" in header
        self._left = _MAX_TENSORS + 2

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0:
            raise _TooManyTensors(f"it has more than {_MAX_TENSORS:,} tensors; split it into several files")
        if self._can_have_surrogates:
            for text in (part for pair in pairs for part in pair if isinstance(part, str)):
                text.encode()  # raises for a lone surrogate, which JSON can escape but UTF-8 cannot encode
        if len(fields := dict(pairs)) < len(pairs):
            twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
            raise ValueError(f"it has {truncate(twice)} twice")
        return fields


def _no_number(text: str) -> None:
    raise ValueError(f"it has {text}, which is not valid JSON")


def write_safetensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, ArrayLike | StreamedTensor],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write arrays to a safetensors file atomically.

    The same arrays give the same bytes, in any order: the widest dtype first, then by name, as in the reference
    implementation, so that every tensor is aligned.

    Parameters
    ----------
    path
        The file, replaced if it exists.
    arrays
        Booleans, integers, or floats of 16, 32 or 64 bits, by name; or a `StreamedTensor`.
    metadata
        Strings by name.

    Raises
    ------
    RegardError
        An array has another dtype, a name or the metadata is not a string, there are more than 131,072 arrays, or the
        file cannot be written.
    """
    metadata = dict(metadata or {})
    if not all(isinstance(text, str) for item in metadata.items() for text in item):
        raise RegardError(f"metadata of a safetensors file must map strings to strings, got {truncate(metadata)}")
    if len(arrays) > _MAX_TENSORS:
        raise RegardError(f"{len(arrays)} arrays are more than the {_MAX_TENSORS:,} of a file; write several files")
    stored = [(name, *_storable(name, values)) for name, values in arrays.items()]
    stored.sort(key=lambda item: (-_KINDS.index(item[1]), item[0]))
    header: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for name, kind, array in stored:
        start, end = end, end + array.nbytes
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": (start, end)}
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise RegardError(f"cannot write {path}: a name or metadata is not valid text ({error})") from error
    text += b" " * (-len(text) % 8)
    with atomic_write(path) as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name, kind, array in stored:
            end = stream.tell() + array.nbytes
            for part in array.parts() if isinstance(array, StreamedTensor) else (array,):
                data = np.ascontiguousarray(part, _DTYPES[kind])
                stream.write(data.reshape(-1).view(np.uint8).data)
            assert stream.tell() == end, name


def _storable(name: object, values: ArrayLike | StreamedTensor) -> tuple[str, NDArray[Any] | StreamedTensor]:
    """Return the dtype name of an array, and the array in little-endian order."""
    if not isinstance(name, str) or name == "__metadata__":
        raise RegardError(f"a tensor of a safetensors file cannot have the name {truncate(name)}; use another string")
    if isinstance(values, StreamedTensor):
        return values.kind, values
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise RegardError(f"array {truncate(name)} is not an array: {error}") from error
    kind = _KIND_OF.get((array.dtype.kind, array.dtype.itemsize))
    if kind is None:
        raise RegardError(
            f"array {truncate(name)} has dtype {array.dtype}, which a safetensors file cannot hold;"
            " convert it to booleans, integers or floats of at most 64 bits"
        )
    return kind, array.astype(_DTYPES[kind], copy=False)
