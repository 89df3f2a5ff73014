"""GPUs that other programs use, and plans for a part of a GPU."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import placer
from placer.problem.machine_devices import limits
from placer.tf.gpu_use import gpu_use
from placer.verbs.share import shared_machine
from tests.helpers.graphs import layers
from tests.helpers.machines import made_up

GIB = 1 << 30


class NvmlError(Exception):
    """NVML's error."""


def nvml(processes: dict[int, int], busy: int | None) -> Any:
    """NVML of one GPU: the bytes that processes hold of it, and how many percent of the time it is busy."""

    def by_identifier(name: int | str) -> str:
        if name not in (0, "GPU-1234"):
            raise NvmlError
        return "the GPU"

    def utilisation(_: str) -> Any:
        if busy is None:
            raise NvmlError
        return SimpleNamespace(gpu=busy)

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByIndex=by_identifier,
        nvmlDeviceGetHandleByUUID=by_identifier,
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(free=7 * GIB),
        nvmlDeviceGetComputeRunningProcesses=lambda _: [
            SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in processes.items()
        ],
        nvmlDeviceGetUtilizationRates=utilisation,
    )


def test_without_the_library_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_use([0, 1]) == [None, None]


@pytest.mark.parametrize(
    ("processes", "busy", "own", "others", "warned"),
    [
        ({os.getpid(): 3 * GIB, 1: 20 * GIB}, 63, 3, 20, True),
        ({os.getpid(): 3 * GIB}, 63, 3, 0, False),
        ({1: 20 * GIB}, 63, 0, 0, False),  # perhaps this process, by its number outside of a container
        ({1: 20 * GIB, 2: GIB}, None, 0, 21, True),
        ({os.getpid(): GIB, 1: GIB // 2}, 0, 1, 0.5, False),
        ({}, 0, 0, 0, False),
    ],
)
def test_a_gpu_that_others_use_is_told_of(
    monkeypatch: pytest.MonkeyPatch, processes: dict[int, int], busy: int | None, own: float, others: float, warned: bool
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(processes, busy))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    use, unknown = gpu_use([0, 1])
    assert unknown is None
    assert use is not None
    assert (use.free_bytes, use.own_bytes, use.other_bytes) == (7 * GIB, own * GIB, others * GIB)
    assert ("share=0.5" in use.warning("GPU:0")) == warned
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1234")
    assert gpu_use([0]) == [use]


def test_a_share_of_a_gpu_has_that_part_of_its_time_and_memory() -> None:
    machine, graph = made_up(), layers(width=4096)
    whole, half = (placer.solve(graph, machine, share=share, solver="all_gpu") for share in (1.0, 0.5))
    for name, op in whole.ops.items():
        assert half.ops[name].time_ns["CPU:0"] == op.time_ns["CPU:0"]
        assert op.time_ns["GPU:0"] <= half.ops[name].time_ns["GPU:0"] <= 2 * op.time_ns["GPU:0"] + 1
    assert half.totals["GPU:0"].time_ns > whole.totals["GPU:0"].time_ns
    assert limits(shared_machine(machine, 0.5), {})["GPU:0"] == limits(machine, {})["GPU:0"] // 2
    assert half.totals["CPU:0"].limit_bytes == whole.totals["CPU:0"].limit_bytes


@pytest.mark.parametrize("share", [0, -0.5, 1.5, True, "half", float("nan")])
def test_what_is_no_share_is_refused(share: Any) -> None:
    with pytest.raises(placer.OptionError, match="share"):
        placer.Options(share=share)
