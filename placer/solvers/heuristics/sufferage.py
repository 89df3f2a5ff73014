"""Sufferage: of all ready ops, the one that would lose most if it could not have its best device."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.list_scheduling import Schedule
from placer.solvers.primitives.ready_list import NEVER, ReadyList, ready_list_scheduler, schedule_pairs

SOURCE = (
    "M. Maheswaran, S. Ali, H. J. Siegel, D. Hensgen, R. F. Freund, Dynamic mapping of a class of independent tasks onto "
    "heterogeneous computing systems, Journal of Parallel and Distributed Computing 59(2), 1999, doi:10.1006/jpdc.1999.1581"
)


def sufferage_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules the ready op whose earliest end and second earliest end, on another device, differ most, where it ends first.

    An op with one device only does not suffer. The paper's tasks are independent, and arrive in batches; here all ready ops are
    compared each time. Time: N W D log D for at most W ready ops.
    """
    return schedule_pairs(problem, _most_sufferage)


def _most_sufferage(ready: ReadyList, ops: Ints) -> tuple[int, int]:
    ends = ready.ends(ops)
    ordered = np.sort(ends, axis=1)
    first, second = ordered[:, 0], ordered[:, min(1, ordered.shape[1] - 1)]
    row = int(np.where(second == NEVER, 0, second - first).argmax())
    return int(ops[row]), int(ends[row].argmin())


def solver() -> Heuristic:
    """Sufferage, by list scheduling."""
    return ready_list_scheduler("sufferage", sufferage_schedule, SOURCE)
