"""One run in a folder at a time."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard._utils.errors import RegardError

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def check_plain(folder: Path) -> None:
    """Raise `RegardError` unless the folder of a run, and those of its checkpoints, hold plain files alone.

    A link would lead what is written or read out of the folder; a pipe would hang.
    """
    paths = list(folder.iterdir())
    for inner in [path for path in paths if path.name.startswith("step-") and path.is_dir()]:
        paths += inner.rglob("*")
    for path in paths:
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            kind = "a link" if stat.S_ISLNK(mode) else "no plain file"
            raise RegardError(f"{path} is {kind}, which a run does not write: move it out of the folder")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder, and hold its lock; the system releases that of a process that was killed.

    Raises
    ------
    RegardError
        Another run has the lock, the folder cannot be written, or it holds a link.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_plain(folder)
        file = (folder / "lock").open("ab")  # stays: one that was removed could be locked by two
    except OSError as error:
        raise RegardError(f"cannot write {folder}: {error.strerror or error}") from error
    with file:
        try:
            _lock(file.fileno())
        except (BlockingIOError, PermissionError) as error:
            raise RegardError(
                f"another run is training in {folder}: wait until it ends, or give another folder"
            ) from error
        except OSError as error:
            raise RegardError(f"cannot lock {folder}: {error.strerror or error}") from error
        yield
