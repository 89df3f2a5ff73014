"""The cost of copying a tensor between any two places of a machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cost_models.machines import Link, Machine, host_of, task_of

LATENCY_IN_A_STEP = 1.96
"""How many times as long the latency of a copy is in a step as `placer calibrate` measures it.

There the same threads copy to and fro, and are awake. In a step a copy wakes a thread that slept or did other work.
"""


def copy_costs(machine: Machine) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """The costs of copies between all places of a machine with D devices.

    Place ``d`` is the memory of device d itself. Place ``D + d`` is host memory as device d sees it. A CPU's memory is host
    memory, so for a CPU the rows and columns of both places are equal.

    A copy uses the link between the two memories, or goes through the host if there is no such link: through both hosts, and
    the link between them, if the devices are of two tasks of a cluster. A tensor in host memory is handed to another device of
    the host in ``host_hop_ns`` without moving a byte, unless two CPU devices have a link.

    Returns:
        Three arrays of shape [2·D, 2·D]: latency in ns, ns per byte, and least interval in ns. A copy of n bytes from a to b
        takes ``latency[a, b] + n * per_byte[a, b]``; the next copy starts at least ``interval[a, b]`` after it.
    """
    count = len(machine.devices)
    latency = np.zeros((2 * count, 2 * count), np.int64)
    per_byte = np.zeros((2 * count, 2 * count), np.float64)
    interval = np.zeros((2 * count, 2 * count), np.int64)
    for a in range(2 * count):
        for b in range(2 * count):
            latency[a, b], per_byte[a, b], interval[a, b] = _copy_cost(machine, a, b)
    return np.rint(LATENCY_IN_A_STEP * latency).astype(np.int64), per_byte, interval


def unpinned_factor(machine: Machine, task: str = "") -> float:
    """How many times longer a byte takes from a host to its GPUs if it is in ordinary, unpinned memory; of the slowest link.

    Args:
        machine: with the links.
        task: whose host it is, such as "worker:1"; by default that of the process that calls.
    """
    own = (link for link in machine.links if link.unpinned_bytes_per_s and task_of(link.src) == task)
    return max((link.bytes_per_s / link.unpinned_bytes_per_s for link in own), default=1.0)


def _copy_cost(machine: Machine, a: int, b: int) -> tuple[int, float, int]:
    count = len(machine.devices)
    src, dst = machine.devices[a % count], machine.devices[b % count]
    src_on_host, dst_on_host = a >= count or src.kind == "CPU", b >= count or dst.kind == "CPU"
    if src is dst and src_on_host == dst_on_host:
        return 0, 0.0, 0
    src_is_own, dst_is_own = a < count or src.kind == "CPU", b < count or dst.kind == "CPU"
    if src_is_own and dst_is_own and (direct := machine.link(src.name, dst.name)):
        return direct.latency_ns, 1e9 / direct.bytes_per_s, direct.interval_ns
    src_host, dst_host = host_of(src.name), host_of(dst.name)
    legs: list[Link] = []
    if not src_on_host:
        legs += filter(None, [machine.link(src.name, src_host)])
    if src_host != dst_host:
        legs += filter(None, [machine.link(src_host, dst_host)])
    if not dst_on_host:
        legs += filter(None, [machine.link(dst_host, dst.name)])
    if not legs:
        return machine.host_hop_ns, 0.0, 0
    latency, per_byte = sum(leg.latency_ns for leg in legs), sum(1e9 / leg.bytes_per_s for leg in legs)
    return latency, per_byte, max(leg.interval_ns for leg in legs)
