"""Several devices taken as two: a relaxation, so that what bounds two devices bounds any number."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placer.problem.problem import Ints, PlacementProblem

NEVER = np.iinfo(np.int64).max // 4


def merged(problem: PlacementProblem) -> PlacementProblem | None:
    """The devices of each of the two `sides` as one.

    An op takes the least of a side's times, a copy the least between any two places of the sides, and copies within a side's
    memory are left out; the side's limit is the sum. No assignment costs or holds less in the original. None where the
    kernels of one side differ in what they keep in host memory.
    """
    side = sides(problem)
    members = [np.flatnonzero(side == g) for g in range(2)]
    first = np.array([problem.host, members[1][0]])
    for flags in (problem.tensor_on_host, problem.consumer_on_host):
        if (flags != flags[:, first[side]]).any():
            return None

    allowed = problem.unit_allowed
    time = np.where(allowed, problem.unit_time_ns, NEVER)
    fastest = np.stack([group[time[:, group].argmin(axis=1)] for group in members], axis=1)[problem.op_unit]
    ops = np.arange(problem.ops)[:, None]
    workspace = np.where(allowed[problem.op_unit], problem.op_workspace_bytes, NEVER)
    able = np.stack([allowed[:, group].any(axis=1) for group in members], axis=1)
    least = np.stack([workspace[:, group].min(axis=1, initial=NEVER) for group in members], axis=1)
    limits = [problem.memory_limit_bytes[group] for group in members]
    places = [np.append(group, group + problem.devices) for group in members]
    places = [part[part % problem.devices == part] for part in places] + [part[part >= problem.devices] for part in places]

    between = [[np.ix_(src, dst) for dst in places] for src in places]
    return replace(
        problem,
        device_names=tuple("+".join(problem.device_names[d] for d in group) for group in members),
        device_kinds=tuple(problem.device_kinds[d] for d in first),
        memory_limit_bytes=np.array([-1 if (limit < 0).any() else limit.sum() for limit in limits]),
        asynchronous=problem.asynchronous[first],
        op_time_ns=problem.op_time_ns[ops, fastest],
        op_dispatch_ns=problem.op_dispatch_ns[ops, fastest],
        op_compute_ns=problem.op_compute_ns[ops, fastest],
        op_workspace_bytes=np.where(able[problem.op_unit], least, 0),
        unit_allowed=able,
        tensor_on_host=problem.tensor_on_host[:, first],
        consumer_on_host=problem.consumer_on_host[:, first],
        copy_latency_ns=np.array([[problem.copy_latency_ns[pair].min() for pair in row] for row in between]),
        copy_ns_per_byte=np.array([[problem.copy_ns_per_byte[pair].min() for pair in row] for row in between]),
        copy_interval_ns=None,
        device_call_ns=None,
        device_threads=None,
        device_wake_ns=None,
        op_cold_ns=None,
    )


def sides(problem: PlacementProblem) -> Ints:
    """[D]: 0 for devices of the host's kind, 1 for all others; where there is one kind only, 1 for all but the host."""
    kinds = np.array(problem.device_kinds)
    alike = kinds == kinds[problem.host]
    return np.where(np.arange(problem.devices) == problem.host if alike.all() else alike, 0, 1)
