"""Properties of one CPU core of this host, read from the Linux kernel."""

from __future__ import annotations

import os
from pathlib import Path

from cost_models.machines import DEFAULT_CORE_CACHE_BYTES, DEFAULT_THREADS_PER_CORE

CPU_FOLDER = Path("/sys/devices/system/cpu")


def usable_cores() -> int:
    """How many CPUs this process may run on. All CPUs of the host where the system does not say, as on macOS."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_per_core() -> int:
    """How many hardware threads share a core.

    Returns the default where the kernel does not say, as inside some virtual machines.
    """
    try:
        siblings = (_first_cpu() / "topology/thread_siblings_list").read_text()
        ranges = (part.partition("-") for part in siblings.strip().split(","))
        return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
    except (OSError, ValueError):
        return DEFAULT_THREADS_PER_CORE


def core_cache_bytes() -> int:
    """The size of a core's level 2 cache, the default where the kernel does not say."""
    try:
        for cache in sorted((_first_cpu() / "cache").iterdir()):
            if (cache / "level").is_file() and int((cache / "level").read_text()) == 2:
                return int((cache / "size").read_text().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        pass
    return DEFAULT_CORE_CACHE_BYTES


def _first_cpu() -> Path:
    """The folder of the first CPU that this process may run on."""
    return CPU_FOLDER / f"cpu{min(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else 0}"
