"""Memory that this process can still allocate."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Return bytes: what is available on Linux, within the limit of a container; elsewhere all; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return None
    try:
        limit, used = ((_CGROUP / f"memory.{name}").read_text() for name in ("max", "current"))
        return max(0, min(free, int(limit) - int(used)))
    except (OSError, ValueError):  # no container, or one without a limit
        return free
