"""GPUs that other programs use, and plans for a part of a GPU."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

import placer
from placer.problem.machine_devices import limits
from placer.tf import devices
from placer.tf.gpu_use import gpu_use
from placer.verbs.share import shared_machine
from placer.views.shared.machine import describe
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
    assert ("share=0.5" in use.by_others("GPU:0")) == warned
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1234")
    assert gpu_use([0]) == [use]


def test_what_others_use_of_a_gpu_reaches_the_machine_and_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml({os.getpid(): 3 * GIB, 1: 20 * GIB}, 63))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "_memory_bytes", lambda: {"CPU:0": 64 * GIB, "CPU:1": 64 * GIB, "GPU:0": 40 * GIB})
    monkeypatch.setattr(devices, "_warned_of", set())
    gpu = SimpleNamespace(name="/physical_device:GPU:0")
    get_visible_devices = tf.config.get_visible_devices
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [gpu] if kind == "GPU" else get_visible_devices(kind))
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", lambda _: None)
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda _: {"device_name": "NVIDIA H100 80GB HBM3"})
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", lambda _: {"current": 2 * GIB})
    told = "other programs hold 20.0 GiB of GPU:0, which is busy for 63% of the time"
    with pytest.warns(placer.PlacementWarning, match=told):
        machine = devices.local_machine()
    assert told in describe(machine)
    plan = placer.solve(layers(), machine)
    assert told in plan.summary()
    assert plan.totals["GPU:0"].limit_bytes + devices.reserve_bytes(40 * GIB, 0) == 8 * GIB  # 7 GiB are free, 1 GiB is its own
    shared = placer.solve(layers(), machine, share=0.5)  # the others hold more than half
    assert shared.totals["GPU:0"].limit_bytes == plan.totals["GPU:0"].limit_bytes


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
