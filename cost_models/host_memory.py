"""What this process may take of the host's memory, which in a container or a batch job is less than there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")

_FILES = {"": ("memory.max", "anon"), "memory": ("memory.limit_in_bytes", "total_rss")}
"""Limit, and what `memory.stat` calls memory that no file backs: of control groups of the second version and of the first."""


def host_bytes() -> int:
    """What there is for this process."""
    return min(_of_the_machine("MemTotal"), *(limit for limit, _ in _limits()))


def free_bytes() -> int:
    """What of that nothing holds now."""
    return max(0, min(_of_the_machine("MemAvailable"), *(limit - used for limit, used in _limits())))


def _of_the_machine(name: str) -> int:
    line = next(line for line in (PROC / "meminfo").read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


def _limits() -> Iterator[tuple[int, int]]:
    """Of each control group that this process is in, or is inside of: its limit, and what it holds."""
    yield 2**63 - 1, 0
    groups = PROC / "self/cgroup"
    for line in groups.read_text().splitlines() if groups.exists() else []:
        _, controllers, group = line.split(":", 2)
        kind = "memory" if "memory" in controllers.split(",") else controllers
        if kind not in _FILES:
            continue
        root, (limit, used) = GROUPS / kind, _FILES[kind]
        own = root / group.lstrip("/")  # which a container may see under a name that is not there
        for folder in (own, *own.parents):
            try:
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                yield int((folder / limit).read_text()), int(stat[used])
            except (OSError, ValueError, KeyError):  # no such group, no limit, or another version's
                pass
            if folder == root:
                break
