"""What a worker that regard starts runs first: Ctrl-C is for the process that started it, which ends the others."""

from __future__ import annotations

import signal
import threading


def dask_setup(worker: object) -> None:
    """Ignore interrupts. Dask calls this by name."""
    del worker
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
