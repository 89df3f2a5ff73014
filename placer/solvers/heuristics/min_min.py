"""Min-min: of all ready ops, the one that can end first, where it ends first."""

from __future__ import annotations

from placer.problem.arrays import Ints
from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.list_scheduling import Schedule
from placer.solvers.primitives.ready_list import ReadyList, ready_list_scheduler, row_and_device, schedule_pairs
from placer.solvers.sources import references

IBARRA_KIM = (
    "O. H. Ibarra, C. E. Kim, Heuristic algorithms for scheduling independent tasks on nonidentical processors, Journal of "
    "the ACM 24(2), 1977, doi:10.1145/322003.322011"
)
BRAUN = (
    "T. D. Braun, H. J. Siegel, N. Beck, L. L. Bölöni, M. Maheswaran, A. I. Reuther, J. P. Robertson, M. D. Theys, B. Yao, D."
    " Hensgen, R. F. Freund, A comparison of eleven static heuristics for mapping a class of independent tasks onto "
    "heterogeneous distributed computing systems, Journal of Parallel and Distributed Computing 61(6), 2001, "
    "doi:10.1006/jpdc.2000.1714"
)


def min_min_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules the pair of op and device that ends first, among the ops that are ready together, until none of them is left.

    The paper's tasks are independent; here those that are ready together are. Time: N W D for at most W ready ops.
    """
    return schedule_pairs(problem, _first_end, in_batches=True)


def _first_end(ready: ReadyList, ops: Ints) -> tuple[int, int]:
    row, device = row_and_device(ready.ends(ops))
    return int(ops[row]), device


def solver() -> Heuristic:
    """Min-min, by list scheduling."""
    return ready_list_scheduler("min_min", min_min_schedule, references(IBARRA_KIM, BRAUN))
