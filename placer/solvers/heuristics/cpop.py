"""CPOP: the critical path on one device, everything else where it finishes first."""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush

import numpy as np

from placer.problem.problem import PlacementProblem
from placer.solvers.heuristics.heft import earliest
from placer.solvers.primitives.list_scheduling import Schedule, list_scheduler, mean_copy_ns, mean_time_ns, upward_rank_ns
from placer.solvers.sources import TOPCUOGLU


def cpop_schedule(problem: PlacementProblem) -> Schedule:
    """Takes ready ops by descending upward plus downward rank; ops of the critical path go to the device that runs it fastest.

    N log N and linear in edges times devices. As in the paper, save that an op of the path that may not be on that device,
    or whose unit has another one already, is treated like those beside the path. Knows no memory limits.
    """
    schedule = Schedule(problem)
    if not problem.num_ops:
        return schedule
    time, copy = mean_time_ns(problem).tolist(), mean_copy_ns(problem).tolist()
    up, down = upward_rank_ns(schedule), [0.0] * problem.num_ops
    for op in range(problem.num_ops):
        for e in schedule.out_of[op]:
            to = schedule.consumer[e]
            down[to] = max(down[to], down[op] + time[op] + copy[e])
    rank = [a + b for a, b in zip(up, down, strict=True)]

    path = [max(range(problem.num_ops), key=lambda op: up[op])]
    while after := schedule.out_of[path[-1]]:
        path.append(schedule.consumer[max(after, key=lambda e: copy[e] + up[schedule.consumer[e]])])
    critical = set(path)
    allowed = problem.units.allowed[problem.ops.unit[path]]
    cheapest = np.where(allowed, problem.ops.time_ns[path], np.iinfo(np.int64).max).min(axis=1, keepdims=True)
    device = int(np.argmin(np.where(allowed, problem.ops.time_ns[path], cheapest).sum(axis=0)))

    queue = [(-rank[op], op) for op in range(problem.num_ops) if not schedule.waits[op]]
    queue.sort()
    while queue:
        _, op = heappop(queue)
        if op in critical and device in schedule.choices(op):
            ready = schedule.place(op, device, schedule.gap(op, device))
        else:
            ready = schedule.place(op, *earliest(schedule, op))
        for other in ready:
            heappush(queue, (-rank[other], other))
    return schedule


cpop = partial(
    list_scheduler,
    "cpop",
    cpop_schedule,
    TOPCUOGLU,
)
