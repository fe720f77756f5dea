"""Run as a script by `transfer.run`: run a command, and end it once standard input closes.

Standard input is a pipe to the process that wants the download, so it also closes when that process is killed. The
command is ended by SIGTERM, so that it can remove its partial files, and killed if it does not end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

GRACE = 10  # seconds from the one to the other


def main(passes_on: str, *command: str) -> int:
    """Run `command` and return its status; with `passes_on` not empty it gets what comes on standard input."""
    try:
        child = subprocess.Popen(command, stdin=subprocess.PIPE if passes_on else subprocess.DEVNULL)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror or error}")
    threading.Thread(target=_watch, args=(child,), daemon=True).start()
    return child.wait()


def _watch(child: subprocess.Popen[bytes]) -> None:
    while content := os.read(sys.stdin.fileno(), 100):
        if child.stdin is not None:
            with suppress(OSError):  # it has ended
                os.write(child.stdin.fileno(), content)
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(GRACE)
    if hasattr(os, "killpg"):
        os.killpg(os.getpgrp(), signal.SIGKILL)  # with its children, in the group that was made for them
    child.kill()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
