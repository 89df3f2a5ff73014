"""What other programs use of this process's GPUs, as NVIDIA's management library (NVML) says if nvidia-ml-py is installed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from placer.common.units import format_bytes

MIN_BUSY, MIN_BYTES = 0.1, 1 << 30
"""A GPU is in use by others if it is busy for this share of the time, or if they hold this many bytes."""


class GpuUse(NamedTuple):
    """The use of one GPU."""

    free_bytes: int
    """Memory that no program holds."""
    own_bytes: int
    """Memory that this process holds."""
    other_bytes: int
    """Memory that other programs hold."""
    busy: float
    """Share of the last second or so in which the GPU computed for any program."""

    def by_others(self, name: str) -> str:
        """What other programs use of the GPU that is named `name` here, in words; "" if that is little."""
        if not self.other_bytes or (self.busy < MIN_BUSY and self.other_bytes < MIN_BYTES):
            return ""
        return (
            f"other programs hold {format_bytes(self.other_bytes)} of {name}, which is busy for {self.busy:.0%} of the time: "
            "share=0.5 plans for half of each GPU"
        )


def gpu_use(physical: Sequence[int]) -> list[GpuUse | None]:
    """The use of GPUs.

    Args:
        physical: TensorFlow's numbers of the physical GPUs.

    Returns:
        None for a GPU of which nothing is known, as without nvidia-ml-py.
    """
    unknown: list[GpuUse | None] = [None] * len(physical)
    try:
        import pynvml as nvml
    except ImportError:
        return unknown
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return unknown
    try:
        return [_use(nvml, number) for number in physical]
    finally:
        nvml.nvmlShutdown()


def _use(nvml: Any, number: int) -> GpuUse | None:
    """The use of a GPU; None if NVML does not know it."""
    try:
        gpu = _handle(nvml, number)
        memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
        busy = 0.0
        with suppress(nvml.NVMLError):  # parts of a GPU (MIG) have no such figure
            busy = nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100
    except (nvml.NVMLError, IndexError):
        return None
    held = {process.pid: int(process.usedGpuMemory or 0) for process in processes}
    own = held.pop(os.getpid(), 0)
    # In a container, NVML may give processes other numbers than they have there. A lone one may be this process.
    others = 0 if len(processes) < 2 and not own else sum(held.values())
    return GpuUse(int(memory.free), own, others, busy)


def _handle(nvml: Any, number: int) -> Any:
    """NVML's handle of a physical GPU. CUDA_VISIBLE_DEVICES names those that TensorFlow sees, by number or identifier."""
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    name = named[number] if named else str(number)
    return nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else nvml.nvmlDeviceGetHandleByUUID(name)
