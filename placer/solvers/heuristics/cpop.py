"""CPOP: the critical path on one device, every other op where it ends first."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.heft import SOURCE, earliest_end
from placer.solvers.primitives.list_scheduling import Schedule, list_scheduler, mean_copy_ns, mean_time_ns, upward_rank_ns


def cpop_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules ready ops by descending upward plus downward rank (Topcuoglu, Hariri, Wu 2002).

    Ops of the critical path go to the device that runs the whole path fastest; every other op goes where it ends first. It
    differs from the paper in one case: an op of the critical path is scheduled like the other ops if it may not be on the path's
    device, or if its unit already has another device. Ignores memory limits. Time: N log N + E D.
    """
    schedule = Schedule(problem)
    if not problem.num_ops:
        return schedule
    time, copy = mean_time_ns(problem).tolist(), mean_copy_ns(problem).tolist()
    up, down = upward_rank_ns(schedule), [0.0] * problem.num_ops
    for op in range(problem.num_ops):
        for e in schedule.out_of[op]:
            consumer = schedule.consumer[e]
            down[consumer] = max(down[consumer], down[op] + time[op] + copy[e])
    rank = [a + b for a, b in zip(up, down, strict=True)]

    path = [max(range(problem.num_ops), key=lambda op: up[op])]
    while out_edges := schedule.out_of[path[-1]]:
        path.append(schedule.consumer[max(out_edges, key=lambda e: copy[e] + up[schedule.consumer[e]])])
    critical = set(path)
    allowed = problem.units.allowed[problem.ops.unit[path]]
    cheapest = np.where(allowed, problem.ops.time_ns[path], np.iinfo(np.int64).max).min(axis=1, keepdims=True)
    device = int(np.argmin(np.where(allowed, problem.ops.time_ns[path], cheapest).sum(axis=0)))

    queue = [(-rank[op], op) for op in range(problem.num_ops) if not schedule.waits[op]]
    queue.sort()
    while queue:
        _, op = heappop(queue)
        if op in critical and device in schedule.choices(op):
            ready = schedule.place(op, device, schedule.earliest_start(op, device))
        else:
            ready = schedule.place(op, *earliest_end(schedule, op))
        for other in ready:
            heappush(queue, (-rank[other], other))
    return schedule


def solver() -> Heuristic:
    """Critical path on a processor (CPOP), by list scheduling."""
    return list_scheduler("cpop", cpop_schedule, SOURCE)
