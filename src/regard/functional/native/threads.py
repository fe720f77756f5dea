"""The number of threads of the kernel."""

from __future__ import annotations

import os
import re

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number


def set_num_threads(count: int) -> None:
    """Set the number of threads of the compiled kernel; results do not depend on it.

    The default is OMP_NUM_THREADS, or else the number of processors that this process may use. If threadpoolctl was
    imported before the kernel was first used, its ``threadpool_limits`` apply to the kernel too.

    Raises
    ------
    RegardError
        `count` is not a whole number of at least 1.
    """
    from regard.functional.native.loader import kernel

    count = whole_number("the number of threads", count, 1)
    native = kernel()
    if native is not None:
        native.set_num_threads(min(count, 1024))


def num_threads() -> int:
    """Return the number of threads of the compiled kernel; 1 if there is none."""
    from regard.functional.native.loader import kernel

    native = kernel()
    return 1 if native is None else int(native.num_threads())


def default_num_threads() -> int:
    """Return OMP_NUM_THREADS, or else the number of processors that this process may use."""
    setting = os.environ.get("OMP_NUM_THREADS", "").strip()
    if setting:
        first = re.match(r"\d+", setting)  # OpenMP allows a list, one number for each nesting level
        if not first or not int(first[0]):
            raise RegardError(f"OMP_NUM_THREADS is {setting!r}; it must begin with a number of at least 1")
        return min(int(first[0]), 1024)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
