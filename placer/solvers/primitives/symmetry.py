"""Interchangeable devices."""

from __future__ import annotations

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem


def interchangeable(problem: PlacementProblem) -> list[list[int]]:
    """Groups of devices, ascending, such that a swap of any two changes neither the cost, the step nor the memory of a plan."""
    groups: list[list[int]] = []
    for d in range(problem.num_devices):
        for group in groups:
            if _alike(problem, group[0], d) and all(_alike(problem, other, d) for other in group[1:]):
                group.append(d)
                break
        else:
            groups.append([d])
    return [group for group in groups if len(group) > 1]


def _alike(problem: PlacementProblem, a: int, b: int) -> bool:
    hosts, kinds = problem.devices.hosts, problem.devices.kinds
    if a in hosts or b in hosts or hosts[a] != hosts[b] or (kinds[a] == "CPU") != (kinds[b] == "CPU"):
        return False
    by_device = (
        problem.devices.memory_limit_bytes,
        problem.devices.asynchronous,
        problem.devices.threads,
        problem.devices.shares_cores,
        problem.devices.call_ns,
        problem.devices.wake_ns,
        problem.units.allowed,
        problem.ops.time_ns,
        problem.ops.dispatch_ns,
        problem.ops.compute_ns,
        problem.ops.workspace_bytes,
        problem.tensors.on_host,
        problem.consumers.on_host,
    )
    if any((array[..., a] != array[..., b]).any() for array in by_device):
        return False
    swapped = np.arange(problem.num_devices)
    swapped[[a, b]] = [b, a]
    swapped = np.append(swapped, swapped + problem.num_devices)
    links = problem.links
    return all(
        bool((cost == cost[np.ix_(swapped, swapped)]).all()) for cost in (links.latency_ns, links.ns_per_byte, links.interval_ns)
    )


def canonical(assignment: Assignment, groups: list[list[int]]) -> Assignment:
    """The assignment with the devices of each group swapped so that their first units are in ascending order."""
    device = assignment.device.copy()
    for group in groups:
        in_group = np.isin(assignment.device, group)
        used, first = np.unique(assignment.device[in_group], return_index=True)
        order = used[np.argsort(first)]
        for old, new in zip(order.tolist(), group, strict=False):
            device[assignment.device == old] = new
    return Assignment(device)
