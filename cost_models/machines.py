"""Machines: devices, what they can do, and the links between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Device:
    """One device as TensorFlow names it ("CPU:0", "GPU:1"), with the constants that price it."""

    name: str
    kind: str
    """The device type whose kernels it runs: "CPU" or "GPU"."""
    model: str
    memory_bytes: int
    asynchronous: bool
    """True where the host only enqueues (a GPU stream): dispatch and compute overlap."""
    dispatch_ns: int
    """Host time to start one op."""
    min_kernel_ns: int
    """Time no kernel goes under."""
    flops: Mapping[str, float]
    """Peak operations per second by dtype; "default" for the rest."""
    memory_bytes_per_s: float
    cores: int = 1


@dataclass(frozen=True, slots=True)
class Link:
    """A directed path between two devices' memories."""

    src: str
    dst: str
    latency_ns: int
    """Time the smallest copy takes inside a function, waiting included."""
    bytes_per_s: float


@dataclass(frozen=True)
class Machine:
    """Devices in TensorFlow's order, CPU:0 first, and a link for each ordered pair that differs in memory."""

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    call_overhead_ns: int
    """Fixed time of one function call."""
    host_hop_ns: int
    """Handing a tensor that is already in host memory to another device of the same host."""
    provenance: str = ""
    reserve_bytes: Mapping[str, int] = field(default_factory=dict)
