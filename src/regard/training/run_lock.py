"""One run in a folder at a time."""

from __future__ import annotations

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


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder, and hold its lock; the system releases that of a process that was killed.

    Raises
    ------
    RegardError
        Another run has the lock, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
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
