"""MSBC: ready ops by three bounds on when they can be done."""

from __future__ import annotations

import numpy as np

from placer.common.clock import spend
from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.mst import SAGA, earliest_start
from placer.solvers.primitives.list_scheduling import LEVEL_OP_RUNS, Schedule, mean_time_ns
from placer.solvers.primitives.ready_list import NEVER, ready_list_scheduler, schedule_in_order
from placer.solvers.sources import references

SOURCE = (
    "the scheduling algorithm with multiple strict bounds constraints (MSBC), IEEE Pacific Rim Conference on Communications, "
    "Computers and Signal Processing (PACRIM), 2005, doi:10.1109/PACRIM.2005.1517309"
)


def msbc_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules ready ops by descending sum of three bounds, each on the device where it starts first.

    The first bound is the least time at which the op can end if no op waits for a device. The device with that end is the op's
    favourite. The second is the longest path to the op in mean times without copies. The third is when the op can start on its
    favourite. The rule follows the implementation of SAGA. Time: (N + E) D.
    """
    schedule = Schedule(problem)
    allowed, time = problem.units.allowed[problem.ops.unit], mean_time_ns(problem).tolist()
    ends, favourite = [0] * problem.num_ops, [0] * problem.num_ops
    path, rank = [0.0] * problem.num_ops, [0.0] * problem.num_ops
    for op in range(problem.num_ops):
        spend(LEVEL_OP_RUNS)
        starts = np.zeros(problem.num_devices, np.int64)
        for e in schedule.into[op]:
            source = schedule.producer[e]
            starts = np.maximum(starts, ends[source] + np.array(schedule.copy_ns[e][favourite[source]]))
            path[op] = max(path[op], path[source] + time[source])
        bounds = np.where(allowed[op], starts + problem.ops.time_ns[op], NEVER)
        favourite[op] = int(bounds.argmin())
        ends[op] = int(bounds[favourite[op]])
        rank[op] = ends[op] + path[op] + int(starts[favourite[op]])
    return schedule_in_order(problem, earliest_start, lambda _, op: rank[op])


def solver() -> Heuristic:
    """Multiple strict bounds constraints (MSBC), by list scheduling."""
    return ready_list_scheduler("msbc", msbc_schedule, references(SOURCE, SAGA))
