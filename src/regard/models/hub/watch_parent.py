"""Run as a script by `transfer.run`: run a command, and end it once standard input closes.

Standard input is a pipe to the process that wants the download, so it also closes when that process is killed. The
command is ended by SIGTERM, so that it can remove its partial files, and killed if it does not end. Then the folder of
its files is removed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress

GRACE = 10  # seconds from the one to the other


def main(work: str, *command: str) -> int:
    """Run `command`, which gets what comes on standard input, and return its status."""
    try:
        child = subprocess.Popen(command, stdin=subprocess.PIPE)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror or error}")
    closed = threading.Event()
    watch = threading.Thread(target=_watch, args=(child, work, closed), daemon=True)
    watch.start()
    status = child.wait()
    if closed.is_set():
        watch.join()
    return status


def _watch(child: subprocess.Popen[bytes], work: str, closed: threading.Event) -> None:
    assert child.stdin is not None
    while content := os.read(sys.stdin.fileno(), 100):
        with suppress(OSError):  # it has ended
            os.write(child.stdin.fileno(), content)
    closed.set()
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(GRACE)
    child.kill()
    shutil.rmtree(work, ignore_errors=True)
    if hasattr(os, "killpg"):
        os.killpg(os.getpgrp(), signal.SIGKILL)  # with its children, in the group that was made for them


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
