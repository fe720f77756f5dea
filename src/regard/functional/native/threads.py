"""How many threads the kernel uses."""

from __future__ import annotations

import os
import re

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number


def set_num_threads(count: int) -> None:
    """Let the compiled kernel use `count` threads from now on; the numbers it computes do not depend on it.

    At the start it is what OMP_NUM_THREADS says, or else the number of processors this process may use. Where
    threadpoolctl was imported before the kernel is first used, its ``threadpool_limits`` hold for the kernel too.

    Raises
    ------
    RegardError
        It is not a whole number of at least 1.
    """
    from regard.functional.native.loader import kernel

    count = whole_number("the number of threads", count, 1)
    native = kernel()
    if native is not None:
        native.set_num_threads(min(count, 1024))


def num_threads() -> int:
    """Return how many threads the compiled kernel uses; 1 where there is none."""
    from regard.functional.native.loader import kernel

    native = kernel()
    return 1 if native is None else int(native.num_threads())


def default_num_threads() -> int:
    """Return what OMP_NUM_THREADS says, or else the number of processors this process may use."""
    said = os.environ.get("OMP_NUM_THREADS", "").strip()
    if said:
        first = re.match(r"\d+", said)  # OpenMP takes a list, one number for each level of nesting
        if not first or not int(first[0]):
            raise RegardError(f"OMP_NUM_THREADS is {said!r}; it must begin with a number of at least 1")
        return min(int(first[0]), 1024)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
