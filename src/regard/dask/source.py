"""The texts of a corpus: files of Parquet, CSV, JSON lines or text, at any address of fsspec, in pieces.

A piece is read on its own, by any worker: a row group, a CSV file, or a range of bytes between two ends of lines.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import has_magic
from pathlib import PurePosixPath
from typing import Any

from regard._utils.errors import RegardError
from regard.dask.extra import installed
from regard.text.lines import split_lines, text_lines
from regard.text.tables import (
    DELIMITERS,
    TABLE_FORMATS,
    column_index,
    csv_column,
    csv_names,
    decoded,
    json_row,
    parquet_column,
)

_FORMATS = {**TABLE_FORMATS, ".txt": "text", ".text": "text"}
_COMPRESSED = {".gz", ".bz2", ".xz", ".zst"}
_BLOCK = 1 << 19  # bytes of a piece of lines
_LARGEST_WHOLE = 1 << 30  # bytes of a file that is read as one piece
_LARGEST_UNPACKED = 1 << 33


@dataclass(frozen=True)
class Piece:
    """A part of a file.

    Parameters
    ----------
    address : str
        Of the file, with its protocol.
    format : str
    column : str
        Of the texts; unused for a file of text.
    start, length : int
        Bytes, of lines; the number of a row group and 1, of Parquet; unused for CSV.
    """

    address: str
    format: str
    column: str
    start: int = 0
    length: int = 0

    def read(self) -> list[Any]:
        """Return the value of each row: a text, None where there is none, or what stands there instead."""
        with reading(self.address):
            return _READERS[self.format](self)


@dataclass(frozen=True)
class Corpus:
    """The pieces of all files in order, with a stamp of each file that changes when the file does."""

    address: str
    column: str
    pieces: tuple[Piece, ...]
    stamps: tuple[tuple[str, str], ...]


def open_corpus(address: str, column: str = "text") -> Corpus:
    """Return the pieces of a file, of the files that a pattern matches, or of those in a folder and its subfolders.

    In folders, names that begin with a dot or an underscore are left out, and files of other formats.

    Raises
    ------
    RegardError
        There is no such file, none of a known format, no such column, or no permission.
    """
    from fsspec.core import url_to_fs

    if not address:
        raise RegardError("the corpus has no name: give a file or a folder")
    with reading(address):
        fs, path = url_to_fs(address)
        if fs.isdir(path):
            paths = [name for name in sorted(fs.find(path)) if not _is_hidden(name.removeprefix(path))]
        else:
            is_pattern = has_magic(path) and not fs.exists(path)
            paths = sorted(fs.glob(path)) if is_pattern else [path]
            if is_pattern and not paths:
                raise RegardError(f"no file matches {address}")
        names = [name for name in paths if _format(name)]
        if not names and paths == [path] and not fs.exists(path):
            raise RegardError(f"there is no file {address}")
        if not names:
            raise RegardError(f"{address} is not a file of {', '.join(_FORMATS)}, and holds none")
        if len(kinds := {_format(name) for name in names}) > 1:
            raise RegardError(f"{address} holds files of several formats, {', '.join(sorted(kinds))}: give a pattern")
        infos = [(fs.unstrip_protocol(name), fs.info(name)) for name in names]
        if other := [name for name, info in infos if info["type"] != "file"]:  # a pipe would block
            raise RegardError(f"cannot read {other[0]}: it is not a regular file; copy it to one")
        stamps = tuple((name, f"{info['size']} {fs.ukey(fs._strip_protocol(name))}") for name, info in infos)
        pieces = tuple(piece for name, info in infos for piece in _pieces(name, int(info["size"]), column))
    return Corpus(address, column, pieces, stamps)


@contextmanager
def reading(address: str) -> Iterator[None]:
    """Turn an error of reading into a `RegardError` that names the file."""
    try:
        with installed():
            yield
    except RegardError:
        raise
    except PermissionError:
        raise RegardError(f"no permission to read {address}") from None
    except FileNotFoundError:
        raise RegardError(f"there is no file {address}") from None
    except Exception as error:  # of the format, the compression or the file system, which have their own classes
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise RegardError(f"cannot read {address}: {first}") from error


def _is_hidden(path: str) -> bool:
    """Tell whether a file, or a folder on the way to it, begins with a dot or an underscore."""
    return any(part.startswith((".", "_")) for part in PurePosixPath(path).parts)


def _format(name: str) -> str:
    suffixes = PurePosixPath(name).suffixes
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return _FORMATS.get(suffixes[-1].lower(), "") if suffixes else ""


def _open(address: str) -> Any:
    import fsspec

    return fsspec.open(address, "rb", compression="infer")


@contextmanager
def _open_whole(address: str) -> Iterator[Any]:
    """Open a file that is read from its start: a compressed one may hold little more than real ones do."""
    with _open(address) as stream, io.BufferedReader(_Limited(stream, address)) as limited:
        yield limited


class _Limited(io.RawIOBase):
    """A stream up to `_LARGEST_UNPACKED`, beyond which it is an error."""

    def __init__(self, stream: Any, address: str) -> None:
        self._stream, self._address, self._left = stream, address, _LARGEST_UNPACKED

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read a part."""
        part = self._stream.read(len(buffer))
        self._left -= len(part)
        if self._left < 0:
            raise RegardError(
                f"{self._address} expands to more than {_LARGEST_UNPACKED >> 30} GiB: split it, or write Parquet"
            )
        buffer[: len(part)] = part
        return len(part)


def _pieces(address: str, size: int, column: str) -> Iterator[Piece]:
    kind = _format(address)
    if kind == "parquet":
        from pyarrow import parquet

        with _open(address) as stream:
            file = parquet.ParquetFile(stream)
            column_index(address, file.schema_arrow.names, column)
            yield from (Piece(address, kind, column, group, 1) for group in range(file.num_row_groups))
        return
    is_whole = kind in DELIMITERS or PurePosixPath(address).suffix in _COMPRESSED
    if kind in DELIMITERS:
        with _open_whole(address) as stream:
            column_index(address, csv_names(text_lines(stream, address), address, DELIMITERS[kind]), column)
    elif kind == "json":
        column_index(address, _json_names(address, column), column)
    if is_whole and size > _LARGEST_WHOLE:
        raise RegardError(
            f"{address} has {size / 1e9:.1f} GB, and is read whole: split it, or convert it to Parquet or JSON lines"
        )
    if is_whole:
        yield Piece(address, kind, column)
        return
    yield from (Piece(address, kind, column, start, min(_BLOCK, size - start)) for start in range(0, size, _BLOCK))


def _json_names(address: str, column: str) -> list[str]:
    """Return the keys of the lines up to the first that has the column; the column alone of an empty file."""
    names: dict[str, None] = {}
    with _open_whole(address) as stream:
        for line in stream:
            row = _row_or_line(line)
            names |= dict.fromkeys(row if isinstance(row, dict) else ())
            if column in names:
                break
    return list(names) or [column]


def _row_or_line(line: bytes) -> dict[str, Any] | bytes:
    text = decoded(line)
    try:
        return line if isinstance(text, bytes) else json_row(text)
    except ValueError:
        return line


def _read_parquet(piece: Piece) -> list[Any]:
    from pyarrow import parquet

    with _open(piece.address) as stream:
        return parquet_column(
            parquet.ParquetFile(stream), piece.address, piece.column, _LARGEST_WHOLE, row_groups=[piece.start]
        )


def _read_csv(piece: Piece) -> list[Any]:
    with _open_whole(piece.address) as stream:
        lines = text_lines(stream, piece.address)
        return [*csv_column(lines, piece.address, DELIMITERS[piece.format], piece.column)]


def _lines(piece: Piece) -> list[bytes]:
    from fsspec.utils import read_block

    if piece.length:
        with _open(piece.address) as stream:
            # Both ends move to the end of a line, so that each line is in one piece, whole.
            block = read_block(stream, piece.start, piece.length, b"\n")
    else:
        with _open_whole(piece.address) as stream:
            block = stream.read()
    if not piece.start:
        block = block.removeprefix(codecs.BOM_UTF8)
    return split_lines(block)


def _read_text(piece: Piece) -> list[Any]:
    return [decoded(line) for line in _lines(piece)]


def _read_json(piece: Piece) -> list[Any]:
    rows = [_row_or_line(line) for line in _lines(piece)]
    return [row if isinstance(row, bytes) else row.get(piece.column) for row in rows]


_READERS: dict[str, Callable[[Piece], list[Any]]] = {
    "parquet": _read_parquet,
    "csv": _read_csv,
    "tsv": _read_csv,
    "json": _read_json,
    "text": _read_text,
}
