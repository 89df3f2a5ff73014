"""Properties of a core as the kernel reports them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cost_models import host_cores
from cost_models.machines import DEFAULT_CORE_CACHE_BYTES, DEFAULT_THREADS_PER_CORE


@pytest.mark.parametrize(("listed", "count"), [("0\n", 1), ("0,8\n", 2), ("0-3\n", 4), ("0-1,8-9\n", 4)])
def test_threads_and_cache_of_a_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, count: int) -> None:
    monkeypatch.setattr(host_cores, "CPU_FOLDER", tmp_path)
    monkeypatch.setattr(host_cores.os, "sched_getaffinity", lambda pid: {3, 4})
    assert (host_cores.threads_per_core(), host_cores.core_cache_bytes()) == (DEFAULT_THREADS_PER_CORE, DEFAULT_CORE_CACHE_BYTES)
    for name, text in {
        "topology/thread_siblings_list": listed,
        "cache/uevent": "",
        "cache/index0/level": "1\n",
        "cache/index0/size": "48K\n",
        "cache/index2/level": "2\n",
        "cache/index2/size": "1280K\n",
    }.items():
        file = tmp_path / "cpu3" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert (host_cores.threads_per_core(), host_cores.core_cache_bytes()) == (count, 1280 << 10)
