"""PEFT: each op where it and the best that can follow it finish first."""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush

import numpy as np

from placer.problem.arrays import Floats
from placer.problem.problem import PlacementProblem
from placer.problem.step_edges import step_edges_of
from placer.solvers.primitives.list_scheduling import Schedule, list_scheduler, mean_copy_ns
from placer.solvers.sources import ARABNEJAD


def peft_schedule(problem: PlacementProblem) -> Schedule:
    """Takes ready ops by descending mean optimistic cost and gives each the device with the least end plus optimistic cost.

    Linear in edges times devices squared, and N log N. As in the paper, save that the mean is over the devices that are
    allowed, and an op of a unit that has its device follows it. Knows no memory limits.
    """
    schedule = Schedule(problem)
    after = optimistic_cost_ns(schedule)
    rank = np.where(problem.units.allowed[problem.ops.unit], after, np.nan)
    order = (-np.nanmean(rank, axis=1)).tolist()
    optimistic = after.tolist()
    queue = sorted((order[op], op) for op in range(problem.num_ops) if not schedule.waits[op])
    while queue:
        _, op = heappop(queue)
        starts = [(schedule.gap(op, d), d) for d in schedule.choices(op)]
        _, device, start = min((start + schedule.time_ns[op][d] + optimistic[op][d], d, start) for start, d in starts)
        for ready in schedule.place(op, device, start):
            heappush(queue, (order[ready], ready))
    return schedule


def optimistic_cost_ns(schedule: Schedule) -> Floats:
    """[N, D]: from an op's end on a device to the end of all, every op after it free to choose its device and never waiting."""
    problem = schedule.problem
    copy = mean_copy_ns(problem)
    time = np.where(problem.units.allowed[problem.ops.unit], problem.ops.time_ns, np.inf)
    apart = ~np.eye(problem.num_devices, dtype=np.bool_)
    cost = np.zeros((problem.num_ops, problem.num_devices))
    consumer = step_edges_of(problem).consumer
    for op in reversed(range(problem.num_ops)):
        if out := schedule.out_of[op]:
            edges = slice(out.start, out.stop)
            follows = cost[consumer[edges]] + time[consumer[edges]]
            ways = follows[:, None, :] + copy[edges, None, None] * apart
            cost[op] = ways.min(axis=2).max(axis=0)
    return cost


peft = partial(
    list_scheduler,
    "peft",
    peft_schedule,
    ARABNEJAD,
)
