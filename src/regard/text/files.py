"""Read a whole file of a model's folder."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from regard._utils.errors import RegardError

_MAX_BYTES = 1 << 27  # four times the largest tokenizer.json


def read_file(path: Path) -> bytes | None:
    """Return the content of the file at `path`; None if there is none.

    An error if it cannot be read: a folder, a pipe (which could block), no permission, or more than 128 MiB.
    """
    try:
        status = path.stat()
        is_file = stat.S_ISREG(status.st_mode)
        if not is_file and not stat.S_ISDIR(status.st_mode):  # for a folder the system's own error follows
            raise RegardError(f"cannot read {path}: it is not a regular file; copy it to one")
        if is_file and status.st_size > _MAX_BYTES:
            raise RegardError(f"cannot read {path}: it has {status.st_size} bytes, more than the limit of {_MAX_BYTES}")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # ValueError: the text cannot be a path
        raise RegardError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def read_json_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in the file at `path`, as `read_file` does; an error if it is not one."""
    content = read_file(path)
    if content is None:
        return None
    try:
        value = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise RegardError(f"{path} is not valid JSON: {error}; fetch the file again") from error
    if not isinstance(value, dict):
        raise RegardError(f"{path} must hold a JSON object, got {type(value).__name__}; fetch the file again")
    return value
