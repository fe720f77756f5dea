"""The folder of a run: a manifest, and one file for each partition, which appears whole."""

from __future__ import annotations

import json
import os
import posixpath
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write
from regard.dask.partitions import Partition, Segment
from regard.dask.source import Corpus, Piece
from regard.text.words import join_names

_FORMAT = "regard: partitions of a corpus, 2"
_MANIFEST = "_manifest.json"  # what reads a folder of Parquet passes over an underscore


@dataclass(frozen=True)
class Plan:
    """What a run is: its identity, and its partitions with the errors of their rows."""

    identity: dict[str, Any]  # job, options, model, version, and digest of the input
    stamps: tuple[tuple[str, str], ...]  # of the files of the input
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

    def read_plan(self) -> Plan | None:
        """Return the plan of the run in the folder, None if there is none."""
        try:
            content = self._fs.cat_file(f"{self._path}/{_MANIFEST}")
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise RegardError(f"no permission to read {self.address}/{_MANIFEST}") from error
        except OSError as error:
            raise RegardError(f"cannot read {self.address}/{_MANIFEST}: {error.strerror or error}") from error
        try:
            found = json.loads(content)
            if found.pop("format") != _FORMAT:
                raise ValueError("another format")
            return _plan(found)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise RegardError(
                f"{self.address}/{_MANIFEST} is damaged or of another version of regard: give a new folder"
            ) from error

    def write_plan(self, plan: Plan) -> None:
        """Write the manifest."""
        digests = {segment.piece: segment.sha256 for each in plan.partitions for segment in each.segments}
        number = {piece: i for i, piece in enumerate(digests)}
        content = {
            "format": _FORMAT,
            "identity": plan.identity,
            "stamps": plan.stamps,
            "pieces": [[asdict(piece), sha256] for piece, sha256 in digests.items()],
            "partitions": [
                [each.tokens, [(number[s.piece], s.start, s.stop, s.first_row) for s in each.segments]]
                for each in plan.partitions
            ],
            "errors": plan.errors,
            "num_errors": plan.num_errors,
        }
        content_bytes = json.dumps(content).encode()
        (self.write if self.has(_MANIFEST) else self.write_new)(_MANIFEST, content_bytes)

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
        """Return the content of a file."""
        return bytes(self._fs.cat_file(f"{self._path}/{name}"))

    def remove_partial(self) -> None:
        """Remove what writers that were killed have left."""
        for name in self.written():
            if name.startswith(".regard-") and name.endswith(".part"):
                with suppress(OSError):
                    self._fs.rm_file(f"{self._path}/{name}")


def part_name(partition: Partition) -> str:
    """Return the name of the file of a partition."""
    return f"part-{partition.number:07d}.parquet"


def require_same(folder: str, plan: Plan, identity: dict[str, Any]) -> None:
    """Raise `RegardError` if the run of a folder is another one than `identity`."""
    names = [*identity, *(name for name in plan.identity if name not in identity)]
    if other := [name for name in names if plan.identity.get(name) != identity.get(name)]:
        raise RegardError(
            f"{folder} is of a run with other {join_names(other)}: repeat that run as it was, or give a new folder"
        )


def is_unchanged(plan: Plan, corpus: Corpus) -> bool:
    """Tell whether the files of the input are those that the plan was made of."""
    return plan.stamps == corpus.stamps


def first_errors(items: Iterable[tuple[Piece, int, tuple[tuple[int, str], ...]]]) -> tuple[tuple[str, int, str], ...]:
    """Return file, row from 1 and reason of errors, from pieces, the place of their first row, and their errors."""
    return tuple((piece.address, place + row, reason) for piece, place, errors in items for row, reason in errors)


def _plan(found: dict[str, Any]) -> Plan:
    pieces = [(Piece(**fields), str(sha256)) for fields, sha256 in found["pieces"]]

    def segment(number: int, start: int, stop: int, first_row: int) -> Segment:
        piece, sha256 = pieces[number]
        return Segment(piece, start, stop, first_row, sha256)

    partitions = tuple(
        Partition(number, tuple(segment(*each) for each in segments), tokens)
        for number, (tokens, segments) in enumerate(found["partitions"])
    )
    stamps = tuple((name, stamp) for name, stamp in found["stamps"])
    errors = tuple((file, row, reason) for file, row, reason in found["errors"])
    return Plan({**found["identity"]}, stamps, partitions, errors, found["num_errors"])
