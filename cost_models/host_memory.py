"""The host memory that this process may use. In a container or a batch job that is less than the host has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")

_CGROUP_FILES = {"": ("memory.max", "anon"), "memory": ("memory.limit_in_bytes", "total_rss")}
"""For each controller: the name of the file with the limit, and the line of `memory.stat` with the memory in use.

The memory in use is that which no file backs. Control groups of version 2 have no named controller; in version 1 it is "memory".
"""


def host_bytes() -> int:
    """The memory that this process may use in all: the host's, or the smallest limit of its control groups."""
    return min(_meminfo_bytes("MemTotal"), *(limit for limit, _ in _cgroup_limits()))


def free_bytes() -> int:
    """The part of `host_bytes` that is not in use at the moment."""
    return max(0, min(_meminfo_bytes("MemAvailable"), *(limit - used for limit, used in _cgroup_limits())))


def _meminfo_bytes(name: str) -> int:
    """An entry of /proc/meminfo. All memory of the host where there is no such file, as on macOS."""
    if not (PROC / "meminfo").exists():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    line = next(line for line in (PROC / "meminfo").read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


def _cgroup_limits() -> Iterator[tuple[int, int]]:
    """Limit and use, both in bytes, of each control group that contains this process.

    The first pair has no limit in effect, so that there always is one.
    """
    yield 2**63 - 1, 0
    membership = PROC / "self/cgroup"
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, group = line.split(":", 2)
        controller = "memory" if "memory" in controllers.split(",") else controllers
        if controller not in _CGROUP_FILES:
            continue
        root, (limit_file, used_line) = CGROUPS / controller, _CGROUP_FILES[controller]
        innermost = root / group.lstrip("/")  # inside a container this name may not exist below the root
        for folder in (innermost, *innermost.parents):
            try:
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                yield int((folder / limit_file).read_text()), int(stat[used_line])
            except (OSError, ValueError, KeyError):  # no such group, no limit, or files of the other version
                pass
            if folder == root:
                break
