"""How much memory this process can still take."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that can still be taken: of the machine, with swap, and of the control groups of Linux.

    Elsewhere, as on macOS, the bytes of the whole machine; None where they are unknown. `root` is for tests.
    """
    with suppress(OSError, ValueError):
        limits = [_machine(root), *_control_groups(root)]
        return max(0, min(limits))
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def gigabytes(size: float) -> str:
    """Return a number of bytes in words: ``0.8 GB``."""
    return f"{size / 1e9:.1f} GB"


def _machine(root: Path) -> int:
    lines = dict(re.findall(r"(?m)^(\w+): +(\d+) kB$", (root / "proc/meminfo").read_text(encoding="ascii")))
    if "MemAvailable" not in lines:
        raise ValueError
    return 1024 * (int(lines["MemAvailable"]) + int(lines.get("SwapFree", 0)))


def _control_groups(root: Path) -> Iterator[int]:
    """Yield what is left of each limit: of the group of this process, and of those that it is in."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            base = root / "sys/fs/cgroup" / controllers
            names = ("memory.max", "memory.current", "inactive_file")
            if controllers:  # version 1
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            group = base / path.strip("/")
            for folder in (group, *group.parents):  # in a container the path may be that of the host
                with suppress(OSError, ValueError):
                    yield _left(folder, *names)
                if folder == base:
                    break


def _left(group: Path, limit: str, usage: str, reclaimable: str) -> int:
    left = int((group / limit).read_text(encoding="ascii")) - int((group / usage).read_text(encoding="ascii"))
    cache = re.search(rf"(?m)^{reclaimable} (\d+)$", (group / "memory.stat").read_text(encoding="ascii"))
    return left + (int(cache[1]) if cache else 0)
