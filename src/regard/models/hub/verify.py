"""Whether a folder holds the pinned files of a model. Knows nothing of where models lie."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write
from regard.models.hub.registry import PinnedFile

# What a file had when its bytes were summed: sha256, size, mtime, ctime, inode. As long as it still has them, its
# bytes are not read again.
_Stamp = list[str | int]


@dataclass(frozen=True)
class VerificationResult:
    """What keeps a folder from being the model: a phrase for each file that is missing, and each that is wrong."""

    missing: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.wrong)

    def __str__(self) -> str:
        return "; ".join(self.missing + self.wrong)


def verify(folder: Path, files: Iterable[PinnedFile], stamps: Path | None = None) -> VerificationResult:
    """Compare the files in `folder` with what they are pinned to.

    Parameters
    ----------
    folder
        Where the files lie.
    files
        What is expected.
    stamps
        A JSON file that remembers which files were found right, since summing 90 MB takes 0.1 to 0.4 s. It is
        a convenience: when it cannot be read or written, files are summed again.
    """
    if stamps and os.path.exists(stamps) and not os.path.isfile(stamps):  # noqa: PTH110, PTH113
        stamps = None  # to open a pipe could wait for ever
    remembered = _read(stamps) if stamps else {}
    fresh: dict[str, _Stamp] = {}
    missing, wrong = [], []
    for file in files:
        path = folder / file.name
        key = str(path.absolute())
        try:
            if not _is_file(path):
                missing.append(f"{path} is missing")
                continue
            stamp = _stamp(path, file.sha256)
            if remembered.get(key) == stamp:
                continue
            fault = _fault(path, file)
        except OSError as error:
            fault = f"{path} cannot be read: {error.strerror or error}"
        if fault:
            wrong.append(fault)
        else:
            fresh[key] = stamp
    if stamps and fresh:
        _write(stamps, remembered | fresh)
    return VerificationResult(tuple(missing), tuple(wrong))


def _is_file(path: Path) -> bool:
    """Tell whether there is a file; OSError where a folder on the way is closed to us."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _fault(path: Path, file: PinnedFile) -> str | None:
    size = path.stat().st_size
    if size < file.size:
        return f"{path} is cut short: {size} of {file.size} bytes"
    if size > file.size:
        return f"{path} has {size} bytes, expected {file.size}"
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    return None if found == file.sha256 else f"{path} has sha256 {found}, expected {file.sha256}"


def _stamp(path: Path, sha256: str) -> _Stamp:
    now = path.stat()
    return [sha256, now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino]


def _read(stamps: Path) -> dict[str, Any]:
    try:
        found = json.loads(stamps.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(stamps: Path, entries: dict[str, Any]) -> None:
    with suppress(OSError, RegardError):
        stamps.parent.mkdir(parents=True, exist_ok=True)
        alive = {path: stamp for path, stamp in entries.items() if os.path.exists(path)}  # noqa: PTH110
        with atomic_write(stamps) as stream:
            stream.write(json.dumps(alive, indent=1).encode())
