"""What moving a tensor costs between any two places of a machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cost_models.machines import Link, Machine


def copy_costs(machine: Machine) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Latency in ns, ns per byte and least interval in ns between all places, each of shape [2·D, 2·D].

    Place ``d`` is device d's own memory, place ``D + d`` host memory as seen by device d; for a CPU the two are one, so their
    rows and columns are equal. Copying n bytes from a to b takes ``latency[a, b] + n * per_byte[a, b]``, and the next copy begins
    ``interval[a, b]`` later at the earliest.

    Memories that differ are joined by their link, or by way of the host where there is none; handing on what is in host
    memory to another device costs the machine's ``host_hop_ns`` and moves no byte, unless two CPU devices have a link.
    """
    count = len(machine.devices)
    latency = np.zeros((2 * count, 2 * count), np.int64)
    per_byte = np.zeros((2 * count, 2 * count), np.float64)
    interval = np.zeros((2 * count, 2 * count), np.int64)
    for a in range(2 * count):
        for b in range(2 * count):
            latency[a, b], per_byte[a, b], interval[a, b] = _copy_cost(machine, a, b)
    return latency, per_byte, interval


def unpinned_factor(machine: Machine) -> float:
    """How many times as long the bytes of a tensor take that sits in a host's ordinary memory: at the slowest of its links."""
    return max((link.bytes_per_s / link.unpinned_bytes_per_s for link in machine.links if link.unpinned_bytes_per_s), default=1.0)


def _copy_cost(machine: Machine, a: int, b: int) -> tuple[int, float, int]:
    count = len(machine.devices)
    src, dst = machine.devices[a % count], machine.devices[b % count]
    src_on_host, dst_on_host = a >= count or src.kind == "CPU", b >= count or dst.kind == "CPU"
    if src is dst and src_on_host == dst_on_host:
        return 0, 0.0, 0
    src_is_own, dst_is_own = a < count or src.kind == "CPU", b < count or dst.kind == "CPU"
    if src_is_own and dst_is_own and (direct := machine.link(src.name, dst.name)):
        return direct.latency_ns, 1e9 / direct.bytes_per_s, direct.interval_ns
    host = machine.devices[0]
    legs: list[Link] = []
    if not src_on_host:
        legs += filter(None, [machine.link(src.name, host.name)])
    if not dst_on_host:
        legs += filter(None, [machine.link(host.name, dst.name)])
    # The link to the host also serves the device's own view of host memory; any other device there is a hop further.
    hop = src_on_host != dst_on_host and (dst if dst_on_host else src) not in (host, src if dst_on_host else dst)
    latency = machine.host_hop_ns if hop or not legs else 0
    return (
        latency + sum(leg.latency_ns for leg in legs),
        sum(1e9 / leg.bytes_per_s for leg in legs),
        max((leg.interval_ns for leg in legs), default=0),
    )
