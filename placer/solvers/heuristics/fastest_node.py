"""All ops on the device that runs all of them in the least time, where they may be there."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.met import least_time
from placer.solvers.heuristics.mst import SAGA
from placer.solvers.primitives.list_scheduling import Schedule
from placer.solvers.primitives.ready_list import NEVER, ReadyList, ready_list_scheduler, schedule_in_order


def fastest_node_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules all ops in their order on one device: that with the least time, if units that may not be there took their least.

    A unit that may not be there, or does not fit, goes to the device where its ops take least. Time: (N + E) D.
    """
    time = np.where(problem.units.allowed, problem.unit_time_ns, NEVER)
    fastest = int(np.where(problem.units.allowed, time, time.min(axis=1, keepdims=True)).sum(axis=0).argmin())
    return schedule_in_order(problem, partial(_there, fastest))


def _there(device: int, ready: ReadyList, op: int) -> int:
    return device if ready.open[ready.problem.ops.unit[op], device] else least_time(ready, op)


def solver() -> Heuristic:
    """One device for all ops: the baseline of comparisons on several processors."""
    return ready_list_scheduler("fastest_node", fastest_node_schedule, SAGA)
