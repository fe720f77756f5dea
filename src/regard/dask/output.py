"""The folder of a run: a manifest, and one file for each partition, which appears whole."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.files import MAX_BYTES, atomic_write, read_file, read_limited
from regard.dask.partitions import Counted, Partition, fingerprint, spread
from regard.dask.source import Corpus, Piece
from regard.text.words import join_names

_FORMAT = "regard: partitions of a corpus, 3"
_MANIFEST = "_manifest.json"  # what reads a folder of Parquet passes over an underscore
_MAX_PART_BYTES = 1 << 32


@dataclass(frozen=True)
class Partitioning:
    """What a run is: its identity, and its partitions with the errors of their rows."""

    identity: dict[str, Any]  # job, options, model, version, and digest of the input
    stamps: tuple[tuple[str, str], ...]  # of the files of the input
    pieces: tuple[Counted, ...]  # what was found in each piece of the corpus
    partitions: tuple[Partition, ...]
    errors: tuple[tuple[str, int, str], ...]  # the first: file, row, reason
    num_errors: int

    @property
    def rows(self) -> int:
        """The rows of the corpus."""
        return sum(partition.rows for partition in self.partitions)

    @property
    def tokens(self) -> int:
        """The tokens of the corpus."""
        return sum(partition.tokens for partition in self.partitions)


@dataclass(frozen=True)
class Manifest:
    """A `Partitioning` as a folder has it: without the pieces, which are those of the corpus, and their segments."""

    source: str  # in words
    identity: dict[str, Any]
    fields: Mapping[str, Any]

    def is_of(self, corpus: Corpus) -> bool:
        """Tell whether the files of the corpus are those that the partitioning was made of."""
        return bool(self.fields.get("stamps") == [list(stamp) for stamp in corpus.stamps])

    def partitioning(self, corpus: Corpus) -> Partitioning:
        """Return the partitioning of a corpus whose files it `is_of`; an error if it does not cover each row once."""
        try:
            return _partitioning(self.identity, self.fields, corpus)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise _damaged(self.source) from error


class OutputFolder:
    """A folder at any address of fsspec."""

    def __init__(self, address: str) -> None:
        from fsspec.core import url_to_fs

        if not address:
            raise RegardError("the folder has no name: give a folder")
        try:
            self._fs, self._path = url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise RegardError(f"cannot write to {address}: {error}") from error
        self.address = address
        self._is_local = "file" in (self._fs.protocol if isinstance(self._fs.protocol, tuple) else (self._fs.protocol,))

    @property
    def everywhere(self) -> str:
        """The address as any process of this machine means it."""
        return self._path if self._is_local else self.address

    def check(self) -> None:
        """Raise `RegardError` if the folder holds anything but a run, or is none."""
        with self._writing():
            if not self._fs.exists(self._path):
                return
            if not self._fs.isdir(self._path):
                raise RegardError(f"{self.address} is a file: give a folder")
            names = self.written()
            if _MANIFEST not in names and any(not name.startswith(".") for name in names):
                raise RegardError(f"{self.address} exists and holds other files: give a new folder")

    def create(self) -> None:
        """Create the folder; an error if it cannot be one of a run."""
        self.check()
        with self._writing():
            self._fs.makedirs(self._path, exist_ok=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise RegardError(f"no permission to write to {self.address}") from error
        except OSError as error:
            raise RegardError(f"cannot write to {self.address}: {error.strerror or error}") from error

    def read_manifest(self) -> Manifest | None:
        """Return the manifest of the run in the folder, None if there is none."""
        source = f"{self.address}/{_MANIFEST}"
        if (content := self._read(_MANIFEST)) is None:
            return None
        try:
            fields = json.loads(content)
            if fields.pop("sha256", None) != _sha256(fields) or fields["format"] != _FORMAT:
                raise ValueError("it was changed, or has another format")
            return Manifest(source, {**fields["identity"]}, fields)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _damaged(source) from error

    def write_manifest(self, partitioning: Partitioning) -> None:
        """Write the manifest, unless it is there as it would be written."""
        fields = {
            "format": _FORMAT,
            "identity": partitioning.identity,
            "stamps": partitioning.stamps,
            "pieces": [[piece.sha256, piece.rows] for piece in partitioning.pieces],
            "partitions": [[each.rows, each.tokens] for each in partitioning.partitions],
            "errors": partitioning.errors,
            "num_errors": partitioning.num_errors,
        }
        content = json.dumps(fields | {"sha256": _sha256(fields)}).encode()
        if len(content) > MAX_BYTES:
            raise RegardError(
                f"the manifest of this corpus has {len(content)} bytes, more than the limit of {MAX_BYTES}: give its "
                "files in several runs"
            )
        stored = self._read(_MANIFEST)
        if stored is None:
            self.write_new(_MANIFEST, content)
        elif stored != content:
            self.write(_MANIFEST, content)

    def write_new(self, name: str, content: bytes) -> None:
        """Write a file that appears whole, unless another process has written one of this name before."""
        if not self._is_local:
            if not self.has(name):
                self.write(name, content)
            return
        part = f".regard-{secrets.token_hex(8)}.part"
        try:
            self.write(part, content)
            os.link(f"{self._path}/{part}", f"{self._path}/{name}")
        except FileExistsError:
            pass
        except RegardError as error:
            raise RegardError(str(error).replace(part, name)) from error
        except OSError:  # no links there
            self.write(name, content)
        finally:
            with suppress(OSError):
                self._fs.rm_file(f"{self._path}/{part}")

    def write(self, name: str, content: bytes) -> None:
        """Write a file that appears whole: under another name, then renamed."""
        path = f"{self._path}/{name}"
        if self._is_local:
            with atomic_write(path) as stream:
                stream.write(content)
            return
        part = f"{self._path}/.regard-{secrets.token_hex(8)}.part"
        try:
            self._fs.pipe_file(part, content)
            self._fs.mv(part, path)
        except OSError as error:
            with suppress(OSError):
                self._fs.rm_file(part)
            raise RegardError(f"cannot write {self.address}/{name}: {error.strerror or error}") from error

    def written(self) -> set[str]:
        """Return the names of the files that are there."""
        self._fs.invalidate_cache(self._path)
        return {posixpath.basename(name) for name in self._fs.ls(self._path, detail=False)}

    def has(self, name: str) -> bool:
        """Tell whether a file is there."""
        self._fs.invalidate_cache(self._path)
        return bool(self._fs.exists(f"{self._path}/{name}"))

    def read(self, name: str) -> bytes:
        """Return the content of a file of a partition."""
        content = self._read(name, _MAX_PART_BYTES)
        if content is None:
            raise RegardError(f"there is no {self.address}/{name}: the same command writes it again")
        return content

    def _read(self, name: str, limit: int = MAX_BYTES) -> bytes | None:
        """Return the content of a file of at most `limit` bytes, None if there is none."""
        source = f"{self.address}/{name}"
        if self._is_local:
            return read_file(f"{self._path}/{name}", limit)
        try:
            self._fs.invalidate_cache(self._path)
            with self._fs.open(f"{self._path}/{name}", "rb") as stream:
                return read_limited(stream, source, limit)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise RegardError(f"no permission to read {source}") from error
        except OSError as error:
            raise RegardError(f"cannot read {source}: {error.strerror or error}") from error

    def remove_partial(self) -> None:
        """Remove what writers that were killed have left."""
        for name in self.written():
            if name.startswith(".regard-") and name.endswith(".part"):
                with suppress(OSError):
                    self._fs.rm_file(f"{self._path}/{name}")


def part_name(partition: Partition) -> str:
    """Return the name of the file of a partition."""
    return f"part-{partition.number:07d}.parquet"


def require_same(folder: str, manifest: Manifest, identity: dict[str, Any]) -> None:
    """Raise `RegardError` if the run of a folder is another one than `identity`."""
    stored = manifest.identity
    names = [*identity, *(name for name in stored if name not in identity)]
    if other := [name for name in names if stored.get(name) != identity.get(name)]:
        raise RegardError(
            f"{folder} is of a run with other {join_names(other)}: repeat that run as it was, or give a new folder"
        )


def first_errors(items: Iterable[tuple[Piece, int, tuple[tuple[int, str], ...]]]) -> tuple[tuple[str, int, str], ...]:
    """Return file, row from 1 and reason of errors, from pieces, the place of their first row, and their errors."""
    return tuple((piece.address, place + row, reason) for piece, place, errors in items for row, reason in errors)


def _sha256(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _damaged(source: str) -> RegardError:
    return RegardError(f"{source} is damaged or of another version of regard: give a new folder")


def _partitioning(identity: dict[str, Any], fields: Mapping[str, Any], corpus: Corpus) -> Partitioning:
    """Return the partitioning in the fields of a manifest; ValueError if it is not one of the whole corpus."""
    pieces = tuple(Counted(str(sha256), _count(rows)) for sha256, rows in fields["pieces"])
    if fingerprint(pieces) != identity["texts"]:
        raise ValueError("the digests of the pieces are not those of the texts")
    sizes = [(_count(rows, 1), _count(tokens)) for rows, tokens in fields["partitions"]]
    partitions = tuple(spread(corpus.pieces, pieces, sizes))
    errors = tuple((str(file), _count(row, 1), str(reason)) for file, row, reason in fields["errors"])
    return Partitioning(identity, corpus.stamps, pieces, partitions, errors, _count(fields["num_errors"]))


def _count(value: Any, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{value!r} is not a count")
    return value
