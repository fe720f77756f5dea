"""Files: read within limits, written whole.

What is read through here is a regular file, so nothing hangs, and has a limit, so nothing takes all memory;
`tests/test_repository.py` lists the few places that open files themselves.
"""

from __future__ import annotations

import errno
import io
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, overload

from regard._utils.errors import RegardError

MAX_BYTES = 1 << 27  # of a file that is read whole: four times the largest tokenizer.json
_PART_BYTES = 1 << 20


@overload
def open_regular(path: str | os.PathLike[str]) -> io.BufferedReader: ...
@overload
def open_regular(path: str | os.PathLike[str], encoding: str) -> io.TextIOWrapper: ...
def open_regular(path: str | os.PathLike[str], encoding: str | None = None) -> Any:
    """Open a regular file for reading: its bytes, or with an `encoding` its text.

    Raises
    ------
    OSError
        It cannot be opened, or is not a regular file: a pipe could block, and a device may have no end.
    """
    mode = "rb" if encoding is None else "r"
    stream = open(path, mode, encoding=encoding, opener=_without_waiting)  # noqa: SIM115 (Path.open takes no opener)
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "it is not a regular file; copy it to one", str(path))
    return stream


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_limited(stream: Any, source: object, limit: int = MAX_BYTES) -> bytes:
    """Return the rest of a binary stream; an error, which names the `source`, if it has more than `limit` bytes."""
    parts, left = [], limit + 1
    while left and (part := stream.read(min(left, _PART_BYTES))):
        parts.append(part)
        left -= len(part)
    if not left:
        raise RegardError(f"cannot read {source}: it has more than the limit of {limit} bytes")
    return b"".join(parts)


def read_file(path: str | os.PathLike[str], limit: int = MAX_BYTES) -> bytes | None:
    """Return the content of the file at `path`; None if there is none.

    An error if it cannot be read: a folder, a pipe, no permission, or more than `limit` bytes.
    """
    try:
        with open_regular(path) as stream:
            if (size := os.fstat(stream.fileno()).st_size) > limit:
                raise RegardError(f"cannot read {path}: it has {size} bytes, more than the limit of {limit}")
            return read_limited(stream, path, limit)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # ValueError: the text cannot be a path
        raise RegardError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def read_json_object(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the JSON object in the file at `path`, as `read_file` does; an error if it is not one.

    A byte order mark before it, which editors on Windows write, is left out.
    """
    content = read_file(path)
    if content is None:
        return None
    try:
        value = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise RegardError(f"{path} is not valid JSON: {error}; fetch the file again") from error
    if not isinstance(value, dict):
        raise RegardError(f"{path} must hold a JSON object, got {type(value).__name__}; fetch the file again")
    return value


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a binary file for writing that appears under its name only once it is complete.

    The bytes go to a hidden temporary file beside `path`, which is renamed over it at the end. After an error or an
    interrupt, the temporary file is removed and an existing file is unchanged. A symbolic link is followed, and a
    replaced file keeps its permissions. A device or a pipe (``/dev/stdout``) is written directly.

    Raises
    ------
    RegardError
        The file cannot be written: no such folder, no permission, no space left.
    BrokenPipeError
        The reader of a pipe has closed it.
    """
    target = _real_path(path)
    # A short name: one made from the target's could exceed 255 bytes.
    part = target.parent / f".regard-{secrets.token_hex(8)}.part"
    try:
        # Of `path`, because the real path of a pipe at /dev/stdout does not exist.
        mode = Path(path).stat().st_mode if Path(path).exists() else None
        if mode is not None and stat.S_ISDIR(mode):
            raise RegardError(f"cannot write {path}: it is a folder; give a file name")
        if mode is not None and not stat.S_ISREG(mode):
            with Path(path).open("wb") as stream:
                yield stream
            return
        if not target.parent.is_dir():
            raise RegardError(f"cannot write {path}: there is no folder {target.parent}; create it first")
        try:
            with part.open("xb") as stream:
                if mode is not None:
                    part.chmod(stat.S_IMODE(mode))
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(target)
        except BaseException:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename not in (None, str(part), str(Path(path)), str(target.parent)):
            raise  # about another file, which the caller reads
        raise RegardError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Make a folder that appears under its name only once it is complete: yield one to write in, beside it.

    After an error or an interrupt nothing is left.

    Raises
    ------
    RegardError
        There is something under that name, other than an empty folder, or it cannot be written.
    """
    target = _real_path(path)
    part = target.parent / f".regard-{secrets.token_hex(8)}.part"
    with suppress(FileNotFoundError):  # the current folder was removed
        if target == Path.cwd():
            raise RegardError(f"cannot write {path}: it is the current folder; give the name of a new one in it")
    try:
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise RegardError(f"cannot write {target}: there is something under that name; give another, or remove it")
        target.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir()
        yield part
        if target.exists():
            target.rmdir()
        part.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise RegardError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _real_path(path: str | os.PathLike[str]) -> Path:
    """Return the path that links lead to; an error if it is no path."""
    try:
        return Path(os.path.realpath(path))
    except FileNotFoundError as error:
        raise RegardError(f"cannot write {path}: the current folder was removed; go to another one") from error
    except ValueError as error:
        raise RegardError(f"cannot write {str(path)!r}: not a valid file name ({error})") from error


def sync_folder(folder: Path) -> None:
    """Wait until a rename in a folder is on the disk, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Write a mapping as JSON, atomically."""
    with atomic_write(path) as stream:
        stream.write((json.dumps(fields, indent=2, allow_nan=False) + "\n").encode())
