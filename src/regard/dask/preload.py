"""What a worker that regard starts runs first and last."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress


def dask_setup(worker: object) -> None:
    """Leave Ctrl-C to the process that started this one, and import what tasks need. Dask calls this by name."""
    del worker
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=import_for_tasks, daemon=True).start()  # the worker registers meanwhile


def import_for_tasks() -> None:
    """Import what the first task would wait for."""
    import regard.dask.tasks  # noqa: F401

    with suppress(ImportError):  # pyarrow would import pandas at the first array
        import pandas  # noqa: F401
        import pyarrow.parquet  # noqa: F401


def dask_teardown(worker: object) -> None:
    """End the process at once, without the end of Python: what it has written is on disk. Dask calls this by name."""
    del worker
    os._exit(0)
