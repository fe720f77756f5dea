"""The memory that a process can still take."""

import pytest

from regard._utils.memory import available_memory

MEMINFO = "MemTotal:       24000 kB\nMemFree:          100 kB\nMemAvailable:   20000 kB\nSwapFree:        1000 kB\n"


def write(root, files):
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


GROUP = {"memory.max": "9000000\n", "memory.current": "5000000\n", "memory.stat": "file 3\ninactive_file 1000000\n"}
V2 = {f"sys/fs/cgroup/a/{name}": content for name, content in GROUP.items()}
V1 = {
    "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9000000\n",
    "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "5000000\n",
    "sys/fs/cgroup/memory/a/memory.stat": "inactive_file 7\ntotal_inactive_file 1000000\n",
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 21000 * 1024),
        ({"proc/self/cgroup": "0::/a/b\n", **V2}, 5_000_000),
        ({"proc/self/cgroup": "0::/a/b\n", **V2, "sys/fs/cgroup/a/memory.max": "max\n"}, 21000 * 1024),
        ({"proc/self/cgroup": "4:cpu:/x\n3:memory:/a\n", **V1}, 5_000_000),
        ({"proc/self/cgroup": "0::/a\n", **V2, "sys/fs/cgroup/a/memory.current": "99000000\n"}, 0),
    ],
    ids=["machine", "the group above", "no limit", "version 1", "nothing left"],
)
def test_the_smallest_of_machine_and_groups(tmp_path, files, expected):
    assert available_memory(write(tmp_path, {"proc/meminfo": MEMINFO, **files})) == expected


def test_without_proc_it_is_that_of_the_machine(tmp_path, monkeypatch):
    sizes = {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr("os.sysconf", sizes.__getitem__, raising=False)
    assert available_memory(tmp_path) == 4_096_000
    monkeypatch.delattr("os.sysconf")
    assert available_memory(tmp_path) is None
