"""The host memory for this process: limits of its control groups count, in both versions of their files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cost_models import host_memory
from cost_models.host_memory import free_bytes, host_bytes

GIB = 2**30


@pytest.mark.parametrize(
    ("groups", "files", "usable_gib", "free_gib"),
    [
        ("", {}, 64, 48),
        ("0::/", {}, 64, 48),
        ("0::/", {"memory.max": 16 * GIB, "memory.stat": f"anon {6 * GIB}\nfile 7"}, 16, 10),
        ("0::/", {"memory.max": "max", "memory.stat": f"anon {6 * GIB}"}, 64, 48),
        ("0::/job/step", {"job/memory.max": 8 * GIB, "job/memory.stat": f"anon {9 * GIB}"}, 8, 0),
        ("0::/not/seen/from/inside", {"memory.max": 99 * GIB, "memory.stat": f"anon {60 * GIB}"}, 64, 39),
        (
            "5:cpu:/\n4:memory:/job",
            {"memory/job/memory.limit_in_bytes": 4 * GIB, "memory/job/memory.stat": f"total_rss {GIB}"},
            4,
            3,
        ),
        (
            "4:hugetlb,memory:/docker/8f",
            {"memory/memory.limit_in_bytes": 2**63 - 4096, "memory/memory.stat": "total_rss 3"},
            64,
            48,
        ),
    ],
)
def test_the_tightest_limit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, object], usable_gib: int, free_gib: int
) -> None:
    proc = {"proc/meminfo": f"MemTotal: {64 * 2**20} kB\nMemAvailable: {48 * 2**20} kB\n", "proc/self/cgroup": groups}
    for name, content in (proc | {f"groups/{name}": content for name, content in files.items()}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{content}\n" if content else "")
    monkeypatch.setattr(host_memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(host_memory, "CGROUPS", tmp_path / "groups")
    assert (host_bytes(), free_bytes()) == (usable_gib * GIB, free_gib * GIB)


def test_this_host_has_memory() -> None:
    assert 0 < free_bytes() <= host_bytes() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
