"""Compare the files of a folder with their pinned sizes and SHA-256."""

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
from regard._utils.files import atomic_write, open_regular, read_json_object
from regard.models.hub.registry import PinnedFile

# SHA-256, size, mtime, ctime and inode of a verified file. While they are unchanged, the file is not hashed again.
_Stamp = list[str | int]


@dataclass(frozen=True)
class VerificationResult:
    """The files that are missing and those that are wrong, a phrase for each; false when there is none."""

    missing: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.wrong)

    def __str__(self) -> str:
        return "; ".join(self.missing + self.wrong)


def verify(folder: Path, files: Iterable[PinnedFile], stamps: Path | None = None) -> VerificationResult:
    """Compare the files in `folder` with their pinned sizes and hashes.

    `stamps` is a JSON file with the stamps of verified files; hashing 90 MB takes 0.1 to 0.4 s. If it cannot be read or
    written, files are hashed again.
    """
    if stamps and os.path.exists(stamps) and not os.path.isfile(stamps):  # noqa: PTH110, PTH113
        stamps = None  # which would be written too
    earlier = _read(stamps) if stamps else {}
    verified: dict[str, _Stamp] = {}
    missing, wrong = [], []
    for file in files:
        path = folder / file.name
        key = str(path.absolute())
        try:
            if not _is_file(path):
                missing.append(f"{path} is missing")
                continue
            stamp = _stamp(path, file.sha256)
            if earlier.get(key) == stamp:
                continue
            mismatch = _mismatch(path, file)
        except OSError as error:
            mismatch = f"{path} cannot be read: {error.strerror or error}"
        if mismatch:
            wrong.append(mismatch)
        else:
            verified[key] = stamp
    if stamps and verified:
        _write(stamps, earlier | verified)
    return VerificationResult(tuple(missing), tuple(wrong))


def _is_file(path: Path) -> bool:
    """Tell whether `path` is a file; OSError if a folder above it is not accessible."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _mismatch(path: Path, file: PinnedFile) -> str | None:
    size = path.stat().st_size
    if size < file.size:
        return f"{path} is truncated: {size} of {file.size} bytes"
    if size > file.size:
        return f"{path} has {size} bytes, expected {file.size}"
    with open_regular(path) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return None if digest == file.sha256 else f"{path} has sha256 {digest}, expected {file.sha256}"


def _stamp(path: Path, sha256: str) -> _Stamp:
    status = path.stat()
    return [sha256, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _read(stamps: Path) -> dict[str, Any]:
    try:
        return read_json_object(stamps) or {}
    except RegardError:
        return {}


def _write(stamps: Path, entries: dict[str, Any]) -> None:
    with suppress(OSError, RegardError):
        stamps.parent.mkdir(parents=True, exist_ok=True)
        existing = {path: stamp for path, stamp in entries.items() if os.path.exists(path)}  # noqa: PTH110
        with atomic_write(stamps) as stream:
            stream.write(json.dumps(existing, indent=1).encode())
