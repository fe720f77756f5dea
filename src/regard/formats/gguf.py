"""Metadata and tensors of a memory-mapped GGUF file.

The format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): magic, version and two counts, the metadata as
keys with typed values, a table of the tensors, then their data, aligned, most of it in quantised blocks.

The `gguf` library dequantises the blocks. The header is parsed here: the library's reader trusts every length, so that
a count of 2**60 in a file of a hundred bytes exhausts memory, and it makes an array of every token, which takes seconds
for a real vocabulary.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard._utils.errors import RegardError
from regard._utils.files import open_regular
from regard._utils.validation import truncate
from regard.formats.gguf_parts import paths_of_parts
from regard.formats.quantized import BLOCKS, dequantize, gguf_library, require_gguf
from regard.formats.tensor_file import TensorFile

_MAX_HEADER = 50_000_000  # bytes; twice the header of a vocabulary of 250,000 tokens
_MAX_VALUES, MAX_TENSORS = 1 << 16, 1 << 18  # many times those of any model
_MAX_AXES = 4  # limit of ggml
_MAX_PARTS = 99_999  # limit of their names

_STRING, _ARRAY = 8, 9  # value types
_NUMBERS: dict[int, np.dtype[Any]] = {
    0: np.dtype("u1"), 1: np.dtype("i1"), 2: np.dtype("<u2"), 3: np.dtype("<i2"), 4: np.dtype("<u4"),
    5: np.dtype("<i4"), 6: np.dtype("<f4"), 7: np.dtype("?"), 10: np.dtype("<u8"), 11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}  # fmt: skip
# The numbers of the kinds that need no import of the library, which takes longer than reading a header.
_KINDS = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K",
    30: "BF16",
}  # fmt: skip
_PLAIN: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "F64": np.dtype("<f8")}


@dataclass(frozen=True)
class _Tensor:
    file: mmap.mmap
    kind: str  # as ggml calls it
    shape: tuple[int, ...]
    start: int
    block: int  # numbers in a block
    block_size: int  # bytes of a block

    @property
    def size(self) -> int:
        return prod(self.shape) // self.block * self.block_size

    @property
    def stored(self) -> NDArray[np.uint8]:
        """Its bytes, a read-only view of the file."""
        return np.frombuffer(self.file, np.uint8, self.size, self.start)

    def at(self, index: int | None) -> _Tensor:
        """Return the part of it at `index` of the first axis; the whole for None."""
        if index is None:
            return self
        part = replace(self, shape=self.shape[1:])
        return replace(part, start=self.start + range(self.shape[0])[index] * part.size)


class GgufFile(TensorFile):
    """The tensors of a GGUF file by name, each read on access.

    For F16, F32 and F64, ``file[name]`` is a read-only view of the memory-mapped file; blocks are dequantised into
    float32, in parts, so that memory is little more than the result. Shapes are in NumPy's order, the slowest axis
    first. The whole header is checked on opening.

    A model may be split: each part, ``NAME-00002-of-00003.gguf``, has some of the tensors. Any of them opens all.

    Parameters
    ----------
    path
        The file, or one of its parts.

    Attributes
    ----------
    metadata : dict
        The values by key: strings, numbers, lists of strings and arrays of numbers. A float32 becomes the float of its
        shortest decimal: 1e-05, not 9.999999747378752e-06.

    Raises
    ------
    RegardError
        The file is missing, unreadable, truncated, not GGUF or malformed, a part of it is missing, or `gguf` is not
        installed.
        On ``file[name]``: the library cannot dequantise the type of the tensor.
    """

    metadata: dict[str, Any]

    def _parse(self) -> None:
        self.metadata, self._tensors = _parsed(self._bytes)
        count, number = self.metadata.get("split.count", 1), self.metadata.get("split.no", 0)
        if type(count) is not int or type(number) is not int or not 0 <= number < count <= _MAX_PARTS:
            raise ValueError(f"it is part {truncate(number)}, from 0, of {truncate(count)}; fetch it again")
        if count == 1:
            return
        paths = paths_of_parts(self.path, number + 1, count)
        parts = [self if i == number else _Part(path) for i, path in enumerate(paths)]
        tensors: dict[str, _Tensor] = {}
        for number, part in enumerate(parts):
            places = [part.metadata.get(key) for key in ("split.no", "split.count")]
            if not all(type(each) is int for each in places) or places != [number, len(parts)]:
                raise ValueError(f"{part.path.name} is not part {number + 1} of {len(parts)}; fetch it again")
            if twice := tensors.keys() & part._tensors.keys():
                raise ValueError(f"tensor {truncate(min(twice))} is in two of its {len(parts)} parts")
            tensors |= part._tensors
        self.metadata, self._tensors = parts[0].metadata, tensors
        count = self.metadata.get("split.tensors.count", len(self))
        if type(count) is not int or count != len(self):
            raise ValueError(f"its {len(parts)} parts have {len(self)} tensors, not {truncate(count)}; fetch it again")

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.read(name)

    def read(self, name: str, index: int | None = None) -> NDArray[Any]:
        """Return a tensor; with `index` that part of its first axis alone, without dequantising the others."""
        tensor = self._tensors[name].at(index)
        if (plain := _PLAIN.get(tensor.kind)) is not None:
            return np.frombuffer(tensor.file, plain, prod(tensor.shape), tensor.start).reshape(tensor.shape)
        try:
            result = dequantize(tensor.stored[None], tensor.kind)
        except NotImplementedError as error:
            raise RegardError(
                f"tensor {truncate(name)} of {self.path} is {tensor.kind}, which gguf {_version()} cannot dequantise"
            ) from error
        result.flags.writeable = False
        return result.reshape(tensor.shape)

    def quantized(self, name: str, index: int | None = None) -> tuple[NDArray[np.uint8], str] | None:
        """Return the blocks of a matrix, ``rows bytes``, a read-only view of the file, and their kind in `BLOCKS`.

        With `index` those of that matrix of several. None for other kinds and other shapes.
        """
        tensor = self._tensors[name].at(index)
        if tensor.kind not in BLOCKS or len(tensor.shape) != 2:
            return None
        return tensor.stored.reshape(tensor.shape[0], -1), tensor.kind

    @property
    def kinds(self) -> dict[str, str]:
        """The type of each tensor: ``"F32"``, ``"Q4_1"``."""
        return {name: tensor.kind for name, tensor in self._tensors.items()}


class _Part(GgufFile):
    """A part of a split model alone."""

    def _parse(self) -> None:
        self.metadata, self._tensors = _parsed(self._bytes)


def is_gguf(path: str | os.PathLike[str]) -> bool:
    """Tell whether `path` is a regular file that starts with the GGUF magic."""
    try:
        with open_regular(path) as stream:
            return stream.read(4) == b"GGUF"
    except (OSError, ValueError):
        return False


def _version() -> str:
    from importlib.metadata import version

    return version("gguf")


def _parsed(file: mmap.mmap) -> tuple[dict[str, Any], dict[str, _Tensor]]:
    """Return the metadata and the tensors; raise ValueError for a malformed header."""
    if file[:4] != b"GGUF":
        raise ValueError("it is not a GGUF file: it does not start with GGUF")
    header = _Header(file)
    version, num_tensors, num_values = header.integer(4), header.integer(8), header.integer(8)
    if version & 0xFFFF == 0:
        raise ValueError("it is big-endian; convert it with `gguf-convert-endian FILE little`, which gguf installs")
    if version not in (2, 3):
        raise ValueError(f"it is GGUF version {version}; regard reads versions 2 and 3")
    header.expect(num_values * 13 + num_tensors * 24)  # their minimum sizes
    if num_values > _MAX_VALUES or num_tensors > MAX_TENSORS:
        raise ValueError(f"it has {num_values} metadata and {num_tensors} tensors, more than any model")
    metadata: dict[str, Any] = {}
    for _ in range(num_values):
        key = header.string()
        if key in metadata:
            raise ValueError(f"its metadata has {truncate(key)} twice")
        metadata[key] = header.value(header.integer(4), key)
    tensors = _tensors(header, num_tensors, metadata.get("general.alignment", 32), file)
    return metadata, tensors


class _Header:
    """Reads values from the start of a file in order, never past its end."""

    def __init__(self, file: mmap.mmap) -> None:
        self._file = file
        self._end = min(len(file), _MAX_HEADER)
        self.at = 4

    def expect(self, size: int) -> None:
        """Check that `size` more bytes are present."""
        if size > len(self._file) - self.at:
            raise ValueError(
                f"it is truncated or damaged: at byte {self.at} it needs {size} more bytes, but has "
                f"{len(self._file) - self.at}; fetch it again"
            )
        if size > self._end - self.at:
            raise ValueError(f"its header is longer than {_MAX_HEADER // 1_000_000} MB, more than any model needs")

    def integer(self, size: int) -> int:
        """Read an integer of `size` bytes."""
        self.expect(size)
        self.at += size
        return int.from_bytes(self._file[self.at - size : self.at], "little")

    def string(self) -> str:
        """Read a string."""
        size = self.integer(8)
        self.expect(size)
        self.at += size
        try:
            return str(self._file[self.at - size : self.at], "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"the string before byte {self.at} of its header is not UTF-8 ({error.reason})") from error

    def value(self, kind: int, key: str) -> Any:
        """Read the value of a key: a string, a number, or an array of either."""
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            kind, count = self.integer(4), self.integer(8)
            if kind == _STRING:
                return self._strings(count)
            return self._numbers(kind, count, key)
        (number,) = self._numbers(kind, 1, key)
        # str() of a float32 is its shortest decimal.
        return float(str(number)) if isinstance(number, np.float32) else number.item()

    def _numbers(self, kind: int, count: int, key: str) -> NDArray[Any]:
        if kind not in _NUMBERS:
            raise ValueError(f"{truncate(key)} of its metadata has type {kind}, which is not a type of the format")
        self.expect(count * _NUMBERS[kind].itemsize)
        start = self.at
        self.at += count * _NUMBERS[kind].itemsize
        if kind == 7 and any(byte > 1 for byte in self._file[start : self.at]):
            raise ValueError(f"{truncate(key)} of its metadata is neither true nor false")
        return np.frombuffer(self._file, _NUMBERS[kind], count, start)

    def _strings(self, count: int) -> list[str]:
        """Read `count` strings as repeated calls of `string` would, but fast enough for a vocabulary."""
        self.expect(count * 8)
        length, file, at, end, texts = struct.Struct("<Q").unpack_from, self._file, self.at, self._end, []
        try:
            for _ in range(count):
                stop = at + 8 + length(file, at)[0]
                if stop > end:
                    raise struct.error
                texts.append(str(file[at + 8 : stop], "utf-8"))
                at = stop
        except (struct.error, UnicodeDecodeError):
            self.at = at
            self.string()  # raises the specific error
            raise ValueError(f"its header is damaged at byte {at}; fetch it again") from None
        self.at = at
        return texts


def _layout(number: int) -> tuple[str, int, int]:
    """Return the name of a kind of tensors, the numbers of a block, and its bytes."""
    if number in _KINDS:
        name = _KINDS[number]
        return name, *BLOCKS.get(name, (1, 4))
    gguf = gguf_library()
    kind = gguf.GGMLQuantizationType(number)
    return kind.name, *gguf.GGML_QUANT_SIZES[kind]


def _tensors(header: _Header, count: int, alignment: object, file: mmap.mmap) -> dict[str, _Tensor]:
    require_gguf()
    if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
        raise ValueError(f"its general.alignment is {truncate(alignment)}, not a power of two up to 2**20")
    tensors: dict[str, _Tensor] = {}
    for _ in range(count):
        name = header.string()
        where = f"tensor {truncate(name)}"
        if name in tensors:
            raise ValueError(f"{where} appears twice")
        axes = header.integer(4)
        if axes > _MAX_AXES:
            raise ValueError(f"{where} has {axes} axes; the format has at most {_MAX_AXES}")
        shape = tuple(header.integer(8) for _ in range(axes))[::-1]
        kind, start = header.integer(4), header.integer(8)
        try:
            name_of_kind, block, block_size = _layout(kind)
        except (ValueError, KeyError):
            raise ValueError(f"{where} has type {kind}, which gguf {_version()} does not support") from None
        if 0 in shape:
            raise ValueError(f"{where} has shape {truncate(shape)}, which is empty")
        row = shape[-1] if shape else 1
        if row % block:
            raise ValueError(f"{where} has rows of {row} numbers, but {name_of_kind} has blocks of {block}")
        if start % alignment:
            raise ValueError(f"{where} starts at byte {start} of the data, which is not a multiple of {alignment}")
        tensors[name] = _Tensor(file, name_of_kind, shape, start, block, block_size)
    data = -(-header.at // alignment) * alignment
    end, before = 0, ""
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].start):
        if tensor.start < end:
            raise ValueError(f"tensor {truncate(name)} overlaps the tensor {truncate(before)}")
        end, before = tensor.start + tensor.size, name
    if tensors and data + end > len(file):
        missing = data + end - len(file)
        raise ValueError(f"it is truncated: {missing} of {data + end} bytes are missing; fetch it again")
    return {name: replace(tensor, start=data + tensor.start) for name, tensor in tensors.items()}
