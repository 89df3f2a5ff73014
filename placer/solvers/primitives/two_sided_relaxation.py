"""A relaxation of several devices to two: a bound on its total cost is one on the original's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.parts import Devices, Links
from placer.problem.problem import PlacementProblem

FORBIDDEN = np.iinfo(np.int64).max // 4
"""Time and workspace on a forbidden device, above all others."""


def two_sided_relaxation(problem: PlacementProblem) -> PlacementProblem | None:
    """The problem with the devices of each of the two `sides` replaced by one device.

    An op takes the least of its times on a side's devices. A copy takes the least time between any two places of the sides;
    copies within a side's memory are free. The memory limit of a side is the sum of its devices' limits. No assignment costs
    less or holds less in the original. None if the kernels of one side differ in what they keep in host memory.
    """
    side = sides(problem)
    members = [np.flatnonzero(side == g) for g in range(2)]
    first = np.array([problem.devices.host, members[1][0]])
    for flags in (problem.tensors.on_host, problem.consumers.on_host):
        if (flags != flags[:, first[side]]).any():
            return None

    allowed = problem.units.allowed
    time = np.where(allowed, problem.unit_time_ns, FORBIDDEN)
    fastest = np.stack([group[time[:, group].argmin(axis=1)] for group in members], axis=1)[problem.ops.unit]
    ops = np.arange(problem.num_ops)[:, None]
    workspace = np.where(allowed[problem.ops.unit], problem.ops.workspace_bytes, FORBIDDEN)
    able = np.stack([allowed[:, group].any(axis=1) for group in members], axis=1)
    least = np.stack([workspace[:, group].min(axis=1, initial=FORBIDDEN) for group in members], axis=1)
    limits = [problem.devices.memory_limit_bytes[group] for group in members]
    places = [np.append(group, group + problem.num_devices) for group in members]
    places = [part[part % problem.num_devices == part] for part in places] + [
        part[part >= problem.num_devices] for part in places
    ]

    between = [[np.ix_(src, dst) for dst in places] for src in places]
    return PlacementProblem(
        devices=Devices(
            names=tuple("+".join(problem.devices.names[d] for d in group) for group in members),
            kinds=tuple(problem.devices.kinds[d] for d in first),
            memory_limit_bytes=np.array([-1 if (limit < 0).any() else limit.sum() for limit in limits]),
            asynchronous=problem.devices.asynchronous[first],
            call_overhead_ns=problem.devices.call_overhead_ns,
            split_ns=problem.devices.split_ns,
            waiting_ns=problem.devices.waiting_ns,
        ),
        links=Links(
            latency_ns=np.array([[problem.links.latency_ns[pair].min() for pair in row] for row in between]),
            ns_per_byte=np.array([[problem.links.ns_per_byte[pair].min() for pair in row] for row in between]),
            contention=problem.links.contention,
        ),
        units=replace(problem.units, allowed=able),
        ops=replace(
            problem.ops,
            time_ns=problem.ops.time_ns[ops, fastest],
            dispatch_ns=problem.ops.dispatch_ns[ops, fastest],
            compute_ns=problem.ops.compute_ns[ops, fastest],
            workspace_bytes=np.where(able[problem.ops.unit], least, 0),
        ),
        tensors=replace(problem.tensors, on_host=problem.tensors.on_host[:, first]),
        consumers=replace(problem.consumers, on_host=problem.consumers.on_host[:, first]),
    )


def sides(problem: PlacementProblem) -> Ints:
    """[D]: 0 for devices of the host's kind and 1 for the others; with one kind only, 0 for the host and 1 for the others."""
    kinds = np.array(problem.devices.kinds)
    alike = kinds == kinds[problem.devices.host]
    return np.where(np.arange(problem.num_devices) == problem.devices.host if alike.all() else alike, 0, 1)
