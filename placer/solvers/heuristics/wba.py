"""WBA: a random choice of the ready ops and devices that lengthen the schedule least."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import RandomHeuristic
from placer.solvers.primitives.list_scheduling import Schedule
from placer.solvers.primitives.ready_list import NEVER, ReadyList, schedule_pairs, within_limits

SOURCE = (
    "J. Blythe, S. Jain, E. Deelman, Y. Gil, K. Vahi, A. Mandal, K. Kennedy, Task scheduling strategies for workflow-based "
    "applications in grids, IEEE International Symposium on Cluster Computing and the Grid (CCGrid), 2005, "
    "doi:10.1109/CCGRID.2005.1558639"
)


def wba_schedule(problem: PlacementProblem, width: float, draw: Callable[[int], int]) -> Schedule:
    """Schedules a random pair of op and device among those that lengthen the schedule least, until no ready op is left.

    Ops that become ready wait until all ops that were ready before are scheduled. Time: N W D for at most W ready ops.

    Args:
        problem: N ops on D devices.
        width: pairs are drawn from that lengthen the schedule by at most this share, 0 to 1, of the way from least to most.
        draw: draws a number below the number that it gets.
    """
    return schedule_pairs(problem, partial(_draw_pair, width, draw), in_batches=True)


def _draw_pair(width: float, draw: Callable[[int], int], ready: ReadyList, ops: Ints) -> tuple[int, int]:
    ends = ready.ends(ops)
    longer = np.maximum(0, ends - ready.free.max())
    least, most = longer.min(), longer[ends < NEVER].max()
    rows, devices = np.nonzero((longer <= least + width * (most - least)) & (ends < NEVER))
    drawn = draw(len(rows))
    return int(ops[rows[drawn]]), int(devices[drawn])


def wba_assignment(problem: PlacementProblem, rng: np.random.Generator) -> Assignment:
    """The assignment of one such schedule, with a width of 0.5."""
    schedule = wba_schedule(problem, 0.5, lambda below: int(rng.integers(below)))
    return within_limits(problem, schedule.assignment)


def solver() -> RandomHeuristic:
    """Workflow-based allocation (WBA), by list scheduling."""
    return RandomHeuristic("wba", wba_assignment, SOURCE)
