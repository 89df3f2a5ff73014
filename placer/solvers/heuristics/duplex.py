"""Duplex: the shorter one of the schedules of min-min and max-min."""

from __future__ import annotations

from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.max_min import max_min_schedule
from placer.solvers.heuristics.min_min import BRAUN, min_min_schedule
from placer.solvers.primitives.list_scheduling import Schedule
from placer.solvers.primitives.ready_list import ready_list_scheduler


def duplex_schedule(problem: PlacementProblem) -> Schedule:
    """The schedule of `min_min_schedule`, or that of `max_min_schedule` if it is shorter. Time: that of both."""
    return min(min_min_schedule(problem), max_min_schedule(problem), key=lambda schedule: schedule.makespan_ns)


def solver() -> Heuristic:
    """Duplex, by list scheduling."""
    return ready_list_scheduler("duplex", duplex_schedule, BRAUN)
