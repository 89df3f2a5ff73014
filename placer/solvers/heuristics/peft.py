"""PEFT: each op on the device from which the rest of the graph can end first."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Floats
from placer.problem.problem import PlacementProblem
from placer.problem.step_edges import step_edges_of
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.list_scheduling import LEVEL_OP_RUNS, Schedule, list_scheduler, mean_copy_ns

SOURCE = (
    "H. Arabnejad, J. G. Barbosa, List scheduling algorithm for heterogeneous systems by an optimistic cost table, IEEE "
    "Transactions on Parallel and Distributed Systems 25(3), 2014, doi:10.1109/TPDS.2013.57"
)


def peft_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules ready ops by descending mean optimistic cost, each on the device where end plus optimistic cost is least.

    The algorithm of Arabnejad, Barbosa (2014), extended to this problem: means are over the allowed devices, and an op
    follows its unit once that has a device. Ignores memory limits. Time: N log N + E D².
    """
    schedule = Schedule(problem)
    cost_ns = optimistic_cost_ns(schedule)
    rank = np.where(problem.units.allowed[problem.ops.unit], cost_ns, np.nan)
    order = (-np.nanmean(rank, axis=1)).tolist()
    optimistic = cost_ns.tolist()
    queue = sorted((order[op], op) for op in range(problem.num_ops) if not schedule.waits[op])
    while queue:
        _, op = heappop(queue)
        starts = [(schedule.earliest_start(op, d), d) for d in schedule.choices(op)]
        _, device, start = min((start + schedule.time_ns[op][d] + optimistic[op][d], d, start) for start, d in starts)
        for ready in schedule.place(op, device, start):
            heappush(queue, (order[ready], ready))
    return schedule


def optimistic_cost_ns(schedule: Schedule) -> Floats:
    """[N, D]: the time from an op's end on a device to the end of the step, if later ops choose devices freely and never wait."""
    problem = schedule.problem
    copy = mean_copy_ns(problem)
    time = np.where(problem.units.allowed[problem.ops.unit], problem.ops.time_ns, np.inf)
    apart = ~np.eye(problem.num_devices, dtype=np.bool_)
    cost = np.zeros((problem.num_ops, problem.num_devices))
    consumer = step_edges_of(problem).consumer
    for op in reversed(range(problem.num_ops)):
        spend(LEVEL_OP_RUNS)
        if out := schedule.out_of[op]:
            edges = slice(out.start, out.stop)
            rest = cost[consumer[edges]] + time[consumer[edges]]
            paths = rest[:, None, :] + copy[edges, None, None] * apart
            cost[op] = paths.min(axis=2).max(axis=0)
    return cost


def solver() -> Heuristic:
    """Predict earliest finish time (PEFT), by list scheduling."""
    return list_scheduler("peft", peft_schedule, SOURCE)
