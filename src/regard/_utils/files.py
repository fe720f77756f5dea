"""Atomic writing of files."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from regard._utils.errors import RegardError


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
    try:
        target = Path(os.path.realpath(path))  # follow links
    except ValueError as error:
        raise RegardError(f"cannot write {str(path)!r}: not a valid file name ({error})") from error
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
