"""Writing files so that they appear whole or not at all. Knows nothing of what is in them."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from regard._errors import RegardError


@contextmanager
def write_whole(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a binary file for writing that takes its name only once it is complete.

    The bytes go to a temporary file beside `path`, which is renamed over it at the end. When anything
    goes wrong on the way, interrupts included, the temporary file is removed and a file that was there before
    is untouched. A symbolic link keeps pointing where it points. A device or a pipe (``/dev/stdout``) cannot be
    renamed over and is written to directly.

    Raises
    ------
    RegardError
        The file cannot be written: no such folder, no permission, no space left.
    """
    target = Path(path)
    try:
        target = Path(os.path.realpath(target))
        if target.is_dir():
            raise RegardError(f"cannot write {path}: it is a folder; give a file name")
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            with target.open("wb", buffering=0) as stream:
                yield stream
            return
        part = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
        try:
            with part.open("xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            if target.exists():
                part.chmod(stat.S_IMODE(target.stat().st_mode))
            part.replace(target)
        except BaseException:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RegardError(f"cannot write {path}: {error.strerror or error}") from error
