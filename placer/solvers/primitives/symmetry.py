"""Devices that can trade places."""

from __future__ import annotations

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem

BY_DEVICE = ("memory_limit_bytes", "op_time_ns", "op_workspace_bytes", "unit_allowed", "tensor_on_host", "consumer_on_host")


def interchangeable(problem: PlacementProblem) -> list[list[int]]:
    """Groups of devices, ascending, any two of which can be swapped without a change to what assignments cost and hold."""
    groups: list[list[int]] = []
    for d in range(problem.devices):
        for group in groups:
            if _alike(problem, group[0], d) and all(_alike(problem, other, d) for other in group[1:]):
                group.append(d)
                break
        else:
            groups.append([d])
    return [group for group in groups if len(group) > 1]


def _alike(problem: PlacementProblem, a: int, b: int) -> bool:
    if problem.host in (a, b) or (problem.device_kinds[a] == "CPU") != (problem.device_kinds[b] == "CPU"):
        return False
    if any((getattr(problem, name)[..., a] != getattr(problem, name)[..., b]).any() for name in BY_DEVICE):
        return False
    swapped = np.arange(2 * problem.devices)
    swapped[[a, b]], swapped[[a + problem.devices, b + problem.devices]] = [b, a], [b + problem.devices, a + problem.devices]
    return all(
        bool((cost == cost[np.ix_(swapped, swapped)]).all()) for cost in (problem.copy_latency_ns, problem.copy_ns_per_byte)
    )


def canonical(assignment: Assignment, groups: list[list[int]]) -> Assignment:
    """The same up to swaps: the devices of each group are taken in order of their first units."""
    device = assignment.device.copy()
    for group in groups:
        there = np.isin(assignment.device, group)
        used, first = np.unique(assignment.device[there], return_index=True)
        order = used[np.argsort(first)]
        for old, new in zip(order.tolist(), group, strict=False):
            device[assignment.device == old] = new
    return Assignment(device)
