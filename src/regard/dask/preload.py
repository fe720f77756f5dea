"""What a worker that regard starts runs first and last."""

from __future__ import annotations

import os
import signal
import threading


def dask_setup(worker: object) -> None:
    """Leave Ctrl-C to the process that started this one, which ends it. Dask calls this by name."""
    del worker
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def dask_teardown(worker: object) -> None:
    """End the process at once, without the end of Python: what it has written is on disk. Dask calls this by name."""
    del worker
    os._exit(0)
