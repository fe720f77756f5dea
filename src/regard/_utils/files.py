"""Writing files so that they appear whole or not at all. Knows nothing of what is in them."""

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
    """Open a binary file for writing that takes its name only once it is complete.

    The bytes go to a hidden temporary file beside `path`, which is renamed over it at the end. When anything
    goes wrong on the way, interrupts included, the temporary file is removed and a file that was there before
    is untouched. A symbolic link keeps pointing where it points, and a file that is replaced hands its
    permissions on. A device or a pipe (``/dev/stdout``) cannot be renamed over and is written to directly.

    Raises
    ------
    RegardError
        The file cannot be written: no such folder, no permission, no space left.
    BrokenPipeError
        The reader of a pipe went away, which is no mistake of the caller.
    """
    try:
        target = Path(os.path.realpath(path))  # a link is followed: what it points to is what is replaced
    except ValueError as error:
        raise RegardError(f"cannot write {str(path)!r}: no file can have this name ({error})") from error
    # Its own short name: one made from the target's could pass the limit of 255 bytes.
    part = target.parent / f".regard-{secrets.token_hex(8)}.part"
    try:
        # Asked of the path: the real path of a pipe behind /dev/stdout names nothing that exists.
        mode = Path(path).stat().st_mode if Path(path).exists() else None
        if mode is not None and stat.S_ISDIR(mode):
            raise RegardError(f"cannot write {path}: it is a folder; give a file name")
        if mode is not None and not stat.S_ISREG(mode):
            with Path(path).open("wb") as stream:
                yield stream
            return
        if not target.parent.is_dir():
            raise RegardError(f"cannot write {path}: there is no folder {target.parent}; make it first")
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
            raise  # about another file, which the caller meant to read
        raise RegardError(f"cannot write {path}: {error.strerror or error}") from error
