"""Reading a whole file that a model's folder should hold. Knows nothing of what is in it."""

from __future__ import annotations

import stat
from pathlib import Path

from regard._utils.errors import RegardError

_LARGEST = 1 << 27  # bytes; the largest tokenizer.json has a quarter of it


def read_file(path: Path) -> bytes | None:
    """Return the content of the file at `path`; None where there is nothing.

    Raises
    ------
    RegardError
        There is something that cannot be read: a folder, a pipe (which could wait for ever), a closed file, or more
        than any such file holds.
    """
    try:
        status = path.stat()
        mode = status.st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # of a folder the system itself says what it is
            raise RegardError(f"cannot read {path}: it is not a regular file; copy it to one")
        if stat.S_ISREG(mode) and status.st_size > _LARGEST:
            raise RegardError(f"cannot read {path}: it has {status.st_size} bytes, and {_LARGEST} at most are read")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # ValueError: what cannot be a path
        raise RegardError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
