"""The page of ``regard train --watch``: served from a thread while training continues in the main one."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from regard.cli.output import write
from regard.explorer.server import PORT, listen, serving
from regard.explorer.training import TrainingExploration
from regard.training import TrainingRun


class Watch:
    """Serves the page of a run from its first checkpoint on, until it is closed.

    Parameters
    ----------
    folder : path
        Of the run.
    steps : int
        Of the whole run.
    port, browser
        As `regard.explorer.server.serve` takes them; the port is taken at once.
    """

    def __init__(self, folder: Path, steps: int, *, port: int | None, browser: bool) -> None:
        self._folder, self._steps, self._browser = folder, steps, browser
        self._files = ExitStack()
        self._listening: socket.socket = self._files.enter_context(listen(PORT if port is None else port))
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._files.close()

    def start(self) -> None:
        """Serve the page, if it is not served yet; the run has a checkpoint."""
        if self._thread is not None:
            return
        exploration = TrainingExploration(TrainingRun(self._folder))
        exploration.planned_steps = self._steps
        served = serving(exploration, self._listening, browser=self._browser, tell=write)
        self._thread = self._files.enter_context(served)

    def wait(self) -> None:
        """Serve the page until Ctrl-C."""
        self.start()
        with suppress(KeyboardInterrupt):
            write("the page stays until Ctrl-C")
            while self._thread is not None and self._thread.is_alive():
                self._thread.join(1)  # with a limit, so that Ctrl-C ends it on every system
