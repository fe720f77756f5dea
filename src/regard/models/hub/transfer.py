"""A child process that downloads: its environment, its progress, and how it ends when this process is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from regard.models.hub import watch_parent

Progress = Callable[[int, int], None]
"""Called repeatedly with the bytes downloaded and their total."""

_GRACE = watch_parent.GRACE + 5  # seconds


class DownloadError(Exception):
    """No source had the right files; the message says why, for each."""


def run(
    command: Sequence[str], work: Path, report: Callable[[], object], settings: Mapping[str, str] = MappingProxyType({})
) -> tuple[int, bytes]:
    """Run `command`, calling `report` ten times a second; return its exit status and its output, of both streams.

    Its temporary files are in the folder `work`. When this process is interrupted or killed, it is told to end by
    SIGTERM, killed if it does not, and `work` is removed. It gets a line on standard input once `report` returns true.
    `settings` are environment variables that the user has not set. `DownloadError` if it cannot be started.
    """
    temporary = work / "tmp"
    temporary.mkdir()
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary)) | {"NO_COLOR": "1"}
    for name, value in {
        "PIP_RETRIES": "2",  # 5 by default, which takes 8 s without a network
        "UV_HTTP_RETRIES": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",  # it writes in bursts, without progress
        **settings,
    }.items():
        environment.setdefault(name, value)
    watch = [sys.executable, "-P", str(Path(watch_parent.__file__)), str(work)]
    reader, writer = os.pipe()
    with open(writer, "wb", buffering=0) as pipe, open(reader, "rb") as end:  # noqa: PTH123
        try:
            child = subprocess.Popen(
                [*watch, *command],
                stdin=end,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # to kill its children with it
            )
        except OSError as error:
            raise DownloadError(f"cannot run {sys.executable}: {error.strerror or error}") from error
        end.close()
        with child:
            try:
                asked = False
                while (output := _output(child)) is None:
                    if report() and not asked:
                        asked = True
                        with suppress(BrokenPipeError):  # it has ended
                            pipe.write(b"\n")
            except BaseException:
                try:
                    pipe.close()
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(_GRACE)
                finally:
                    _kill(child)
                raise
    return child.returncode, output


def _kill(child: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg") and child.returncode is None:
        os.killpg(child.pid, signal.SIGKILL)
    else:
        child.kill()


def _output(child: subprocess.Popen[bytes]) -> bytes | None:
    """Return the output of `child`; None while it runs."""
    try:
        return child.communicate(timeout=0.1)[0]
    except subprocess.TimeoutExpired:
        return None


def bytes_in(folder: Path) -> int:
    """Return the bytes of all files in `folder`."""
    total = 0
    for inner, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # it may have been removed
                total += Path(inner, name).stat().st_size
    return total


@contextmanager
def progress_bar(title: str, progress: Progress | None) -> Iterator[Progress]:
    """Return `progress`; without it print the title, and yield what moves a bar where standard error is a terminal."""
    if progress is not None:
        yield progress
        return
    if sys.stderr is not None:
        print(title, file=sys.stderr, flush=True)
    if sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress as Bars, TimeRemainingColumn

        columns = BarColumn(), DownloadColumn(), TimeRemainingColumn()
        with Bars(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bars:
            task = bars.add_task("", total=None)
            yield lambda done, total: bars.update(task, completed=done, total=total)
    else:
        yield lambda *_: None
