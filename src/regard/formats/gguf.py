"""Metadata and tensors of a GGUF file, read by memory map. Knows nothing of models.

The format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): magic, version and two counts, the metadata as
keys with typed values, a table of the tensors, and then their data, aligned, most of it in quantised blocks.

What the blocks mean is the `gguf` library's to say. The header is read here, strictly: the library's own reader takes
every length at its word, so that a count of 2**60 in a file of a hundred bytes fills the memory, and it makes an array
of every token, which takes seconds for a real vocabulary.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard._utils.errors import RegardError
from regard._utils.validation import truncate
from regard.formats.tensor_file import TensorFile

if TYPE_CHECKING:
    from types import ModuleType

_LONGEST_HEADER = 50_000_000  # bytes; vocabularies of a quarter of a million tokens need half of it
_MOST_VALUES, _MOST_TENSORS = 1 << 16, 1 << 18  # many times what any model has
_MOST_AXES = 4  # the limit that ggml sets
_CHUNK = 1 << 17  # numbers that are dequantised at a time: what the steps in between leave stays in the cache

_TEXT, _ARRAY = 8, 9
_NUMBERS: dict[int, np.dtype[Any]] = {
    0: np.dtype("u1"), 1: np.dtype("i1"), 2: np.dtype("<u2"), 3: np.dtype("<i2"), 4: np.dtype("<u4"),
    5: np.dtype("<i4"), 6: np.dtype("<f4"), 7: np.dtype("?"), 10: np.dtype("<u8"), 11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}  # fmt: skip
_AS_THEY_ARE: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "F64": np.dtype("<f8")}


@dataclass(frozen=True)
class _Tensor:
    kind: Any  # GGMLQuantizationType
    shape: tuple[int, ...]
    start: int
    block: int  # numbers in a block
    block_size: int  # bytes of a block

    @property
    def size(self) -> int:
        return prod(self.shape) // self.block * self.block_size


class GgufFile(TensorFile):
    """The tensors of a GGUF file, by name; each is read when it is asked for.

    ``file[name]`` is a read-only view on the memory-mapped file where the numbers are plain (F16, F32, F64); from
    blocks they are dequantised into float32, a part at a time, so that little more is held than the result. Shapes
    are in NumPy's order, the slowest axis first. The whole header is checked on opening.

    Parameters
    ----------
    path
        The file.

    Attributes
    ----------
    metadata : dict
        The values by key: texts, numbers, lists of texts and arrays of numbers. A float32 is given as the shortest
        decimal that it is the float32 of: 1e-05, not 9.999999747378752e-06.

    Raises
    ------
    RegardError
        The file is missing, unreadable, cut short, not GGUF, or its header is not sound; `gguf` is not installed.
        On ``file[name]``: the tensor has a type that the library cannot dequantise.
    """

    metadata: dict[str, Any]

    def _parse(self) -> None:
        self.metadata, self._tensors = _parsed(self._bytes)

    def __getitem__(self, name: str) -> NDArray[Any]:
        tensor = self._tensors[name]
        if (plain := _AS_THEY_ARE.get(tensor.kind.name)) is not None:
            return np.frombuffer(self._bytes, plain, prod(tensor.shape), tensor.start).reshape(tensor.shape)
        blocks = np.frombuffer(self._bytes, np.uint8, tensor.size, tensor.start)
        result = np.empty(prod(tensor.shape), np.float32)
        numbers = _CHUNK // tensor.block * tensor.block
        for at in range(0, result.size, numbers):
            part = blocks[at // tensor.block * tensor.block_size :][: numbers // tensor.block * tensor.block_size]
            result[at : at + numbers] = self._dequantised(name, part, tensor.kind)
        result.flags.writeable = False
        return result.reshape(tensor.shape)

    def _dequantised(self, name: str, blocks: NDArray[np.uint8], kind: Any) -> NDArray[np.float32]:
        try:
            with np.errstate(all="ignore"):  # a scale may be infinite: whoever takes the weights says so
                # As one row: the library goes through rows sixteen at a time, which is slow where they are short.
                values: NDArray[np.float32] = _library().dequantize(blocks[None], kind)[0]
        except NotImplementedError as error:
            raise RegardError(
                f"tensor {truncate(name)} of {self.path} is {kind.name}, which gguf {_version()} cannot dequantise"
            ) from error
        return values

    @property
    def kinds(self) -> dict[str, str]:
        """How each tensor is stored: ``"F32"``, ``"Q4_1"``."""
        return {name: tensor.kind.name for name, tensor in self._tensors.items()}


def is_gguf(path: str | os.PathLike[str]) -> bool:
    """Tell whether there is a regular file that starts as a GGUF file does."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):  # to open a pipe could wait for ever
            return False
        with Path(path).open("rb") as stream:
            return stream.read(4) == b"GGUF"
    except (OSError, ValueError):
        return False


def _library() -> ModuleType:
    try:
        import gguf
    except ImportError as error:
        raise RegardError('reading a GGUF file needs the gguf library: pip install "regard[gguf]"') from error
    return gguf


def _version() -> str:
    from importlib.metadata import version

    return version("gguf")


def _parsed(file: mmap.mmap) -> tuple[dict[str, Any], dict[str, _Tensor]]:
    """Return the metadata and the tensors; ValueError says what is not sound."""
    if file[:4] != b"GGUF":
        raise ValueError("it is not a GGUF file: it does not start with GGUF")
    header = _Header(file)
    version, num_tensors, num_values = header.whole(4), header.whole(8), header.whole(8)
    if version & 0xFFFF == 0:
        raise ValueError("it is big-endian; convert it with `gguf-convert-endian FILE little`, which gguf installs")
    if version not in (2, 3):
        raise ValueError(f"it is GGUF version {version}; regard reads versions 2 and 3")
    header.expect(num_values * 13 + num_tensors * 24)  # what the least of them take
    if num_values > _MOST_VALUES or num_tensors > _MOST_TENSORS:
        raise ValueError(f"it has {num_values} metadata and {num_tensors} tensors, which no model has")
    metadata: dict[str, Any] = {}
    for _ in range(num_values):
        key = header.text()
        if key in metadata:
            raise ValueError(f"its metadata have {truncate(key)} twice")
        metadata[key] = header.value(header.whole(4), key)
    tensors = _tensors(header, num_tensors, metadata.get("general.alignment", 32), len(file))
    return metadata, tensors


class _Header:
    """Takes one thing after the other from the start of a file, and never more than there is."""

    def __init__(self, file: mmap.mmap) -> None:
        self._file = file
        self._end = min(len(file), _LONGEST_HEADER)
        self.at = 4

    def expect(self, size: int) -> None:
        """Make sure that `size` bytes more are there."""
        if size > len(self._file) - self.at:
            raise ValueError(
                f"it is cut short or damaged: at byte {self.at} it announces {size} bytes more, but has "
                f"{len(self._file) - self.at}; fetch it again"
            )
        if size > self._end - self.at:
            raise ValueError(f"its header is longer than {_LONGEST_HEADER // 1_000_000} MB, which no model needs")

    def whole(self, size: int) -> int:
        """Take a whole number of `size` bytes."""
        self.expect(size)
        self.at += size
        return int.from_bytes(self._file[self.at - size : self.at], "little")

    def text(self) -> str:
        """Take a text."""
        size = self.whole(8)
        self.expect(size)
        self.at += size
        try:
            return str(self._file[self.at - size : self.at], "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"the text before byte {self.at} of its header is not UTF-8 ({error.reason})") from error

    def value(self, kind: int, key: str) -> Any:
        """Take the value of a key: a text, a number, or an array of either."""
        if kind == _TEXT:
            return self.text()
        if kind == _ARRAY:
            kind, count = self.whole(4), self.whole(8)
            if kind == _TEXT:
                return self._texts(count)
            return self._numbers(kind, count, key)
        (number,) = self._numbers(kind, 1, key)
        # The text of a float32 is the shortest decimal that it is the nearest to.
        return float(str(number)) if isinstance(number, np.float32) else number.item()

    def _numbers(self, kind: int, count: int, key: str) -> NDArray[Any]:
        if kind not in _NUMBERS:
            raise ValueError(f"{truncate(key)} of its metadata has type {kind}, which is not one of the format's")
        self.expect(count * _NUMBERS[kind].itemsize)
        start = self.at
        self.at += count * _NUMBERS[kind].itemsize
        if kind == 7 and any(byte > 1 for byte in self._file[start : self.at]):
            raise ValueError(f"{truncate(key)} of its metadata is neither true nor false")
        return np.frombuffer(self._file, _NUMBERS[kind], count, start)

    def _texts(self, count: int) -> list[str]:
        """Take `count` texts: the same as `text` again and again, quick enough for a vocabulary and its merges."""
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
            self.text()  # says what is wrong with it
            raise ValueError(f"its header is damaged at byte {at}; fetch it again") from None
        self.at = at
        return texts


def _tensors(header: _Header, count: int, alignment: object, size: int) -> dict[str, _Tensor]:
    gguf = _library()
    if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
        raise ValueError(f"its general.alignment is {truncate(alignment)}, which is not a power of two up to 2**20")
    tensors: dict[str, _Tensor] = {}
    for _ in range(count):
        name = header.text()
        where = f"tensor {truncate(name)}"
        if name in tensors:
            raise ValueError(f"{where} is there twice")
        axes = header.whole(4)
        if axes > _MOST_AXES:
            raise ValueError(f"{where} has {axes} axes; the format has at most {_MOST_AXES}")
        shape = tuple(header.whole(8) for _ in range(axes))[::-1]
        kind, start = header.whole(4), header.whole(8)
        try:
            kind = gguf.GGMLQuantizationType(kind)
            block, block_size = gguf.GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            raise ValueError(f"{where} has type {kind}, which gguf {_version()} does not know") from None
        if 0 in shape:
            raise ValueError(f"{where} has shape {truncate(shape)}, which leaves nothing")
        row = shape[-1] if shape else 1
        if row % block:
            raise ValueError(f"{where} has rows of {row} numbers, but {kind.name} has blocks of {block}")
        if start % alignment:
            raise ValueError(f"{where} starts at byte {start} of the data, which is no multiple of {alignment}")
        tensors[name] = _Tensor(kind, shape, start, block, block_size)
    data = -(-header.at // alignment) * alignment
    end, before = 0, ""
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].start):
        if tensor.start < end:
            raise ValueError(f"tensor {truncate(name)} overlaps the tensor {truncate(before)}")
        end, before = tensor.start + tensor.size, name
    if tensors and data + end > size:
        raise ValueError(f"it is cut short: {data + end - size} of {data + end} bytes are missing; fetch it again")
    return {
        name: _Tensor(tensor.kind, tensor.shape, data + tensor.start, tensor.block, tensor.block_size)
        for name, tensor in tensors.items()
    }
