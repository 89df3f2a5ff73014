"""Max-min: of all ready ops, the one whose earliest end is the latest, where it ends first."""

from __future__ import annotations

from placer.problem.arrays import Ints
from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.min_min import BRAUN, IBARRA_KIM
from placer.solvers.primitives.list_scheduling import Schedule
from placer.solvers.primitives.ready_list import ReadyList, ready_list_scheduler, schedule_pairs
from placer.solvers.sources import references


def max_min_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules the op whose earliest end is the latest, among the ops that are ready together, until none of them is left.

    Long ops thus start early, and short ones fill the rest. The paper's tasks are independent; here those that are ready together
    are. Time: N W D for at most W ready ops.
    """
    return schedule_pairs(problem, _last_end, in_batches=True)


def _last_end(ready: ReadyList, ops: Ints) -> tuple[int, int]:
    ends = ready.ends(ops)
    row = int(ends.min(axis=1).argmax())
    return int(ops[row]), int(ends[row].argmin())


def solver() -> Heuristic:
    """Max-min, by list scheduling."""
    return ready_list_scheduler("max_min", max_min_schedule, references(IBARRA_KIM, BRAUN))
