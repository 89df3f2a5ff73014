"""What the kernel tells of a core of this host."""

from __future__ import annotations

import os
from pathlib import Path

from cost_models.machines import CORE_CACHE_BYTES, THREADS_PER_CORE

CPUS = Path("/sys/devices/system/cpu")


def threads_per_core() -> int:
    """Hardware threads that share a core; what is usual where that is not told, as inside some virtual machines."""
    try:
        listed = (_cpu() / "topology/thread_siblings_list").read_text()
        ranges = (part.partition("-") for part in listed.strip().split(","))
        return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
    except (OSError, ValueError):
        return THREADS_PER_CORE


def core_cache_bytes() -> int:
    """A core's cache of the second level; what is usual where that is not told."""
    try:
        for cache in sorted((_cpu() / "cache").iterdir()):
            if (cache / "level").is_file() and int((cache / "level").read_text()) == 2:
                return int((cache / "size").read_text().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        pass
    return CORE_CACHE_BYTES


def _cpu() -> Path:
    """Of the first that this process may use."""
    return CPUS / f"cpu{min(os.sched_getaffinity(0))}"
