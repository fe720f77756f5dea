"""Reading a whole file that a model's folder should hold. Knows nothing of what is in it."""

from __future__ import annotations

import stat
from pathlib import Path

from regard._errors import RegardError


def read_file(path: Path) -> bytes | None:
    """Return the content of the file at `path`; None where there is nothing.

    Raises
    ------
    RegardError
        There is something that cannot be read: a folder, a pipe (which could wait for ever), a closed file.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # of a folder the system itself says what it is
            raise RegardError(f"cannot read {path}: it is not a regular file; copy it to one")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # ValueError: what cannot be a path
        raise RegardError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
